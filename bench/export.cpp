#include <chorus/io/hdf5.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/merge.h>

#include <optional>

#include "workloads.h"

namespace chorus::bench {

void write_export(const Workload& work, const Tensor& loss, const std::string& file) {
  SoloGroup alone;
  write_export(work, loss, file, Mesh(alone, mesh_shape({}, 1)));
}

void write_export(const Workload& work, const Tensor& loss, const std::string& file, const Mesh& mesh) {
  std::optional<Hdf5Writer> writer;
  if (mesh.rank() == 0) {
    std::filesystem::remove(file);  // the writer overwrites nothing
    writer.emplace(file);
    writer->add("loss", loss.detach());
    for (const auto& [path, tensor] : work.inputs) writer->add(path, tensor);
  }
  for (const auto& entry : work.store.trainable) {
    for (const auto& [group, owned] : {std::pair{"weights/", entry.value}, {"gradients/", work.store.gradient(entry)}}) {
      const Tensor whole = held(owned, entry, work.store, mesh);
      if (writer) writer->add(group + entry.path, whole);
    }
  }
  if (writer) writer->finish();
}

}  // namespace chorus::bench
