// The executable under mpirun trains what it trains alone.
#include <chorus/parallel/group/mpi.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;

/// Loss of each step, from the record of a run.
std::vector<double> losses_of(const std::filesystem::path& run) {
  std::ifstream lines(run / "metrics.jsonl");
  std::vector<double> losses;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.at("event") == "step") losses.push_back(json.at("loss"));
  }
  return losses;
}

TEST(MpiRun, TwoProcessesTrainAsOneDoes) {
  if (!mpi_built() || std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "built without MPI, or no mpirun";
  const Folder folder("mpi_run");
  write_corpus(folder.path);
  std::ofstream(folder.path / "tiny.toml") << tiny_config;
  const auto run = [&](const std::string& launcher, const std::string& name, const std::string& more = "") {
    const std::string command = "cd " + folder.path.string() + " && " + launcher + " " CHORUS_EXECUTABLE +
                                " train tiny.toml data.train=corpus.jsonl trainer.output_dir=" + name +
                                " optimizer.eps=1e-3 trainer.precision=fp64 " + more + " > " + name + ".log 2>&1";
    const int status = std::system(command.c_str());
    std::ifstream log(folder.path / (name + ".log"));
    EXPECT_EQ(status, 0) << std::string(std::istreambuf_iterator<char>(log), {});
    return losses_of(folder.path / name);
  };
  // As root Open MPI wants to be asked twice, and more ranks than cores need leave.
  const std::string mpirun = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2";
  const auto one = run("", "one"), data = run(mpirun, "data"), tensor = run(mpirun, "tensor", "parallel.tp_size=2");
  ASSERT_EQ(one.size(), 30u);
  for (const auto* many : {&data, &tensor}) {
    ASSERT_EQ(many->size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR((*many)[i] / one[i], 1, 1e-10) << "step " << i + 1;
  }
}

}  // namespace
}  // namespace chorus
