#include <chorus/io/hdf5.h>

#include "workloads.h"

namespace chorus::bench {

void write_export(const Workload& work, const Tensor& loss, const std::string& file) {
  std::filesystem::remove(file);  // the writer overwrites nothing
  Hdf5Writer writer(file);
  writer.add("loss", loss.detach());
  for (const auto& [path, tensor] : work.inputs) writer.add(path, tensor);
  for (const auto& entry : work.store.trainable) {
    writer.add("weights/" + entry.path, entry.param->value);
    writer.add("gradients/" + entry.path, entry.param->grad());
  }
  writer.finish();
}

}  // namespace chorus::bench
