// Real file systems that are too small or read-only, in a mount namespace of the test's own.
#include <chorus/core/posix_file.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
namespace fs = std::filesystem;

/// A file system of its own for the process that makes it, or the reason why not.
std::string mount_small(const fs::path& folder, const std::string& size) {
  fs::create_directories(folder);
  if (::unshare(CLONE_NEWNS) != 0) return std::string("unshare: ") + std::strerror(errno);
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return std::string("private mounts: ") + std::strerror(errno);
  if (::mount("none", folder.c_str(), "tmpfs", 0, ("size=" + size).c_str()) != 0)
    return std::string("tmpfs: ") + std::strerror(errno);
  return {};
}

/// Runs `f` in a process that may mount; its text is passed back: "" is success, "skip: ..." what can't be tried here.
std::string in_process(const std::function<std::string()>& f) {
  int ends[2];
  require(::pipe(ends) == 0, "test", "no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    std::string text;
    try {
      text = f();
    } catch (const std::exception& error) {
      text = std::string("threw ") + error.what();
    }
    if (::write(ends[1], text.data(), text.size()) < 0) ::_exit(2);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char block[4096];
  for (ssize_t n; (n = ::read(ends[0], block, sizeof block)) > 0;) text.append(block, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "the process ended with " + std::to_string(status);
}

std::vector<std::string> short_run() {
  return {"phases[0].steps=4", "phases[1].steps=4", "trainer.checkpoint_every_n_steps=2"};
}

TEST(Mounts, ADiskTooSmallForAllCheckpointsCostsCheckpointsNotTheRun) {
  const Folder folder("small");
  const auto corpus = write_corpus(folder.path);
  TrainingResult plain;
  std::uintmax_t one = 0;
  {
    const RunConfig config = tiny(corpus, folder.path / "plain", short_run());
    plain = train(config, {});
    for (const auto& file : fs::directory_iterator(config.trainer.output_dir / "checkpoints" / "step-000008"))
      one += file.file_size();
  }
  const std::string text = in_process([&]() -> std::string {
    // Room for two and a half: the third and the last don't fit beside the first two.
    const std::string reason = mount_small(folder.path / "disk", std::to_string(one * 5 / 2));
    if (!reason.empty()) return "skip: " + reason;
    const RunConfig config = tiny(corpus, folder.path / "disk" / "run", short_run());
    Heard heard;
    std::string error;
    try {
      train(config, heard.hooks());
    } catch (const Error& e) {
      error = e.what();
    }
    if (error.find("the last checkpoint, of step 8") == error.npos || error.find("No space left on device") == error.npos)
      return "the end said '" + error + "'";
    if (heard.steps.size() != 8) return std::to_string(heard.steps.size()) + " steps were trained";
    if (!heard.said("no checkpoint of step 6")) return "no word of the checkpoint that was missed";
    std::string skipped;
    const auto newest =
        find_checkpoint(config.trainer.output_dir / "checkpoints", [&](const std::string& line) { skipped += line; });
    if (!newest || newest->manifest().step != 4 || !skipped.empty())
      return "the newest checkpoint isn't that of step 4; " + skipped;
    // Once there is room, the same command ends like an undisturbed run.
    if (::mount("none", (folder.path / "disk").c_str(), nullptr, MS_REMOUNT, ("size=" + std::to_string(one * 10)).c_str()) != 0)
      return std::string("remount: ") + std::strerror(errno);
    const TrainingResult again = train(config, {});
    return again.weight_hash == plain.weight_hash ? "" : "the weights differ";
  });
  if (text.starts_with("skip: ")) GTEST_SKIP() << "no file system can be mounted here: " << text.substr(6);
  EXPECT_EQ(text, "");
}

TEST(Mounts, ADiskTooSmallForActivationsEndsTheRunWithWhatIsFree) {
  const Folder folder("small_offload");
  const auto corpus = write_corpus(folder.path);
  const std::string text = in_process([&]() -> std::string {
    const std::string reason = mount_small(folder.path / "disk", "8k");
    if (!reason.empty()) return "skip: " + reason;
    auto keys = short_run();
    const std::string target = "offload_folder=" + (folder.path / "disk" / "activations").string();
    for (const std::string& key : {std::string("checkpointing_llm=full"), std::string("checkpointing_perception=full"), target})
      keys.push_back("trainer.activation_" + key);
    try {
      train(tiny(corpus, folder.path / "run", keys), {});
    } catch (const Error& error) {
      const std::string said = error.what();
      const bool clear =
          said.find("bytes to " + (folder.path / "disk" / "activations" / "activations.").string()) != said.npos &&
          said.find("No space left on device (errno 28); its file system has ") != said.npos;
      if (!clear) return "said " + said;
      return fs::is_empty(folder.path / "disk" / "activations") ? "" : "left a file";
    }
    return "trained";
  });
  if (text.starts_with("skip: ")) GTEST_SKIP() << "no file system can be mounted here: " << text.substr(6);
  EXPECT_EQ(text, "");
}

TEST(Mounts, ADiskTooSmallForOptimizerStateEndsTheRunBeforeItsFirstStep) {
  const Folder folder("small_state");
  const auto corpus = write_corpus(folder.path);
  const std::string text = in_process([&]() -> std::string {
    const std::string reason = mount_small(folder.path / "disk", "8k");
    if (!reason.empty()) return "skip: " + reason;
    auto keys = short_run();
    const fs::path state = folder.path / "disk" / "state";
    keys.push_back("trainer.optimizer_offload_folder=" + state.string());
    Heard heard;
    try {
      train(tiny(corpus, folder.path / "run", keys), heard.hooks());
    } catch (const Error& error) {
      const std::string said = error.what();
      const bool clear = said.find("cannot reserve ") != said.npos &&
                         said.find(" bytes for " + (state / "optimizer.").string()) != said.npos &&
                         said.find("No space left on device (errno 28); its file system has 8192 bytes free") != said.npos;
      if (!clear) return "said " + said;
      if (!heard.steps.empty()) return "took steps";
      return fs::is_empty(state) ? "" : "left a file";
    }
    return "trained";
  });
  if (text.starts_with("skip: ")) GTEST_SKIP() << "no file system can be mounted here: " << text.substr(6);
  EXPECT_EQ(text, "");
}

TEST(Mounts, AReadOnlyRunFolderIsRefusedForTrainingAndReadForTheRest) {
  const Folder folder("readonly");
  const auto corpus = write_corpus(folder.path);
  const std::string text = in_process([&]() -> std::string {
    const std::string reason = mount_small(folder.path / "disk", "64m");
    if (!reason.empty()) return "skip: " + reason;
    const RunConfig config = tiny(corpus, folder.path / "disk" / "run", short_run());
    const TrainingResult result = train(config, {});
    if (::mount("none", (folder.path / "disk").c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      return std::string("remount: ") + std::strerror(errno);
    try {
      train(config, {});
      return "trained on a read-only file system";
    } catch (const Error& error) {
      const std::string said = error.what();
      if (said.find("run.lock") == said.npos || said.find("Read-only file system (errno 30)") == said.npos)
        return "said " + said;
    }
    const LoadedRun run = load_run(config.trainer.output_dir, {});
    return run.step == result.step ? "" : "loaded step " + std::to_string(run.step);
  });
  if (text.starts_with("skip: ")) GTEST_SKIP() << "no file system can be mounted here: " << text.substr(6);
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace chorus
