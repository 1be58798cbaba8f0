// Disks that are full, read-only or broken, at every kind of write of a run.
#include <chorus/io/checkpoint.h>
#include <chorus/io/checkpoint/folder.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "e2e/tiny_run.h"
#include "errors/sections.h"

namespace chorus::errors {
namespace {

namespace fs = std::filesystem;

/// A fault of tests/faults/interposed for the programs that are started in its lifetime.
class WriteFault {
 public:
  explicit WriteFault(const std::string& fault) {
    ::setenv("LD_PRELOAD", CHORUS_WRITE_FAULTS, 1);
    ::setenv("CHORUS_FAULT", fault.c_str(), 1);
  }
  ~WriteFault() {
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("CHORUS_FAULT");
  }
  WriteFault(const WriteFault&) = delete;
  WriteFault& operator=(const WriteFault&) = delete;
};

/// Without what differs from run to run: free bytes, names of writers.
std::string steady(std::string text) {
  text = std::regex_replace(text, std::regex(R"(has [0-9]+ bytes free)"), "has N bytes free");
  text = std::regex_replace(text, std::regex(R"(step-([0-9]+)\.tmp-[A-Za-z0-9_-]+)"), "step-$1.tmp-...");
  text = std::regex_replace(text, std::regex(R"([0-9]+ of the [0-9]+ bytes)"), "N of the M bytes");
  return std::regex_replace(text, std::regex(R"([0-9]+ bytes were written)"), "N bytes were written");
}

/// Six steps in two phases, a checkpoint after every second; in the folder `run`.
std::vector<std::string> six_steps(Scene& scene, std::vector<std::string> more = {}) {
  if (!fs::exists("tiny.toml")) {
    testing::write_corpus(".");
    scene.write("tiny.toml", testing::tiny_config);
  }
  std::vector<std::string> arguments = {"train",
                                        "tiny.toml",
                                        "data.train=corpus.jsonl",
                                        "trainer.output_dir=run",
                                        "trainer.checkpoint_every_n_steps=2",
                                        "trainer.keep_checkpoints=3",
                                        "phases[0].steps=3",
                                        "phases[1].steps=3",
                                        "phases[0].schedule.warmup_steps=1",
                                        "phases[1].schedule.warmup_steps=1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Steps of the intact checkpoints in `run`; a damaged one is a failure.
std::vector<std::uint64_t> saved_steps() {
  std::vector<std::uint64_t> steps;
  for (const auto& folder : step_folders("run/checkpoints")) {
    EXPECT_TRUE(Checkpoint(folder.path).verify().empty()) << folder.path;
    steps.push_back(folder.step);
  }
  return steps;
}

void expect_no_leftovers() {
  for (const auto& entry : fs::recursive_directory_iterator("run")) {
    const std::string name = entry.path().filename();
    for (const char* mark : {".tmp", ".old", ".del"}) EXPECT_EQ(name.find(mark), name.npos) << entry.path();
  }
}

/// How the steps of `metrics.jsonl` are numbered.
std::vector<std::int64_t> metric_steps() {
  std::ifstream in("run/metrics.jsonl");
  std::vector<std::int64_t> steps;
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.at("event") == "step") steps.push_back(json.at("step"));
  }
  return steps;
}

const std::vector<std::int64_t> all_steps = {1, 2, 3, 4, 5, 6};

/// The weights that the same run ends with where nothing fails: "weights <digest>", of the same build.
std::string undisturbed_weights() {
  static const std::string weights = [] {
    Scene scene;
    return scene.chorus(six_steps(scene)).line("weights ");
  }();
  return weights;
}

/// The same command again, now that it can write, ends where an undisturbed run does.
void expect_recovery(Scene& scene) {
  const Ended again = scene.chorus(six_steps(scene));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.line("weights "), undisturbed_weights());
  expect_no_leftovers();
}

void saving_errors(ErrorTable& table) {
  table.add("the disk is full when a periodic checkpoint is written", [](Scene& s) {
    const std::string weights = undisturbed_weights();
    Ended ended;
    {
      const WriteFault fault("call=write path=step-000002.tmp room=5000");
      ended = s.chorus(six_steps(s));
    }
    EXPECT_EQ(ended.status, 0) << ended.err;
    const std::string line = ended.line("no checkpoint of step 2");
    expect_parts(line,
                 {"rank-0000.h5", "No space left on device (errno 28)", "bytes free", "training goes on", "after step 3"});
    EXPECT_EQ(ended.line("weights "), weights);
    EXPECT_EQ(saved_steps(), (std::vector<std::uint64_t>{6, 4, 3}));
    EXPECT_EQ(metric_steps(), all_steps);
    expect_no_leftovers();
    return Seen{steady(line),
                "the run, to the same weights; the checkpoint is tried again a tenth of the interval later, exit status 0"};
  });
  table.add("the disk turns read-only before the last checkpoint", [](Scene& s) {
    Ended ended;
    {
      const WriteFault fault("call=mkdir path=step-000006 errno=30");
      ended = s.chorus(six_steps(s));
    }
    EXPECT_EQ(ended.status, 1) << ended.err;
    const std::string line = ended.line("the last checkpoint, of step 6");
    expect_parts(line, {"Read-only file system (errno 30)", "the newest one is run/checkpoints/step-000004"});
    EXPECT_EQ(saved_steps(), (std::vector<std::uint64_t>{4, 2}));
    expect_recovery(s);
    return Seen{steady(line), "the checkpoints before; exit status 1, and the same command goes on from the newest"};
  });
  table.add("the disk reports an error when it is told to keep a checkpoint", [](Scene& s) {
    Ended ended;
    {
      const WriteFault fault("call=flush path=step-000002 errno=5");
      ended = s.chorus(six_steps(s));
    }
    EXPECT_EQ(ended.status, 0) << ended.err;
    const std::string line = ended.line("no checkpoint of step 2");
    expect_parts(line, {"cannot flush", "Input/output error (errno 5)"});
    EXPECT_EQ(saved_steps(), (std::vector<std::uint64_t>{6, 4, 3}));
    expect_no_leftovers();
    return Seen{steady(line), "as above: what the disk hasn't confirmed is no checkpoint"};
  });
  table.add("the disk is slow, takes writes in small parts or is interrupted by signals", [](Scene& s) {
    const std::string weights = undisturbed_weights();
    for (const char* kind :
         {"call=write path=run most=1000", "call=any path=run errno=4 count=5", "call=any path=run delay=3"}) {
      fs::remove_all("run");
      const WriteFault fault(kind);
      const Ended ended = s.chorus(six_steps(s));
      EXPECT_EQ(ended.status, 0) << kind << ended.err;
      EXPECT_EQ(ended.line("weights "), weights) << kind;
      EXPECT_EQ(saved_steps(), (std::vector<std::uint64_t>{6, 4, 2})) << kind;
      expect_no_leftovers();
    }
    return Seen{"nothing", "everything"};
  });
}

void log_errors(ErrorTable& table) {
  table.add("metrics.jsonl can't be written for a while", [](Scene& s) {
    Ended ended;
    {
      const WriteFault fault("call=write path=metrics.jsonl errno=28 at=2 count=3");
      ended = s.chorus(six_steps(s));
    }
    EXPECT_EQ(ended.status, 0) << ended.err;
    const std::string line = ended.line("cannot write run/metrics.jsonl");
    expect_parts(line, {"No space left on device (errno 28)", "waits"});
    expect_parts(ended.out, {"run/metrics.jsonl can be written again, with the 3 records that waited"});
    EXPECT_EQ(metric_steps(), all_steps);
    return Seen{steady(line), "the run, and every line: they wait in memory and are written as soon as that works"};
  });
  table.add("metrics.jsonl can't be written until the end", [](Scene& s) {
    Ended ended;
    {
      const WriteFault fault("call=write path=metrics.jsonl errno=5 at=3");
      ended = s.chorus(six_steps(s));
    }
    EXPECT_EQ(ended.status, 1) << ended.err;
    const std::string line = ended.line("is not complete");
    expect_parts(line, {"run/metrics.jsonl is not complete", " records could not be written", "Input/output error (errno 5)"});
    EXPECT_EQ(ended.line("weights "), undisturbed_weights());
    EXPECT_EQ(saved_steps().front(), 6u);
    return Seen{steady(line), "the run and its last checkpoint; the lines written before; exit status 1"};
  });
  table.add("trace.json can't be written", [](Scene& s) {
    Ended ended;
    {
      const WriteFault fault("call=write path=trace.json room=100");
      ended = s.chorus(six_steps(s, {"trainer.trace=true"}));
    }
    EXPECT_EQ(ended.status, 0) << ended.err;
    const std::string line = ended.line("no trace of this run");
    expect_parts(line, {"run/trace.json", "No space left on device (errno 28)"});
    EXPECT_EQ(saved_steps().front(), 6u);
    EXPECT_FALSE(fs::exists("run/trace.json"));
    expect_no_leftovers();
    return Seen{steady(line), "the run and its last checkpoint, and a trace of an earlier invocation; exit status 0"};
  });
}

void start_errors(ErrorTable& table) {
  for (const char* file : {"config.toml", "tokenizer.model", "statistics.json"}) {
    table.add(std::string("no room for ") + file + " of a new run", [file](Scene& s) {
      Ended ended;
      {
        const WriteFault fault(std::string("call=write path=run/") + file + " room=10");
        ended = s.chorus(six_steps(s));
      }
      EXPECT_EQ(ended.status, 1) << ended.err;
      const std::string line = ended.line(std::string("run/") + file);
      expect_parts(line, {"No space left on device (errno 28)", "bytes free"});
      EXPECT_FALSE(fs::exists(fs::path("run") / file)) << "a part of it is there";
      expect_no_leftovers();
      if (file == std::string("statistics.json")) expect_recovery(s);  // the last of the three: all are made anew or used
      return Seen{steady(line), "nothing was trained; exit status 1, and the same command starts once there is room"};
    });
  }
  table.add("the folder for optimizer state can't be made", [](Scene& s) {
    Ended ended;
    {
      const WriteFault fault("call=mkdir path=state errno=13");
      ended = s.chorus(six_steps(s, {"trainer.optimizer_offload_folder=fast/state"}));
    }
    EXPECT_EQ(ended.status, 1) << ended.err;
    const std::string line = ended.line("fast/state");
    expect_parts(line, {"trainer.optimizer_offload_folder: ", "cannot create fast/state: Permission denied (errno 13)"});
    EXPECT_TRUE(saved_steps().empty());
    expect_recovery(s);
    return Seen{steady(line), "nothing was trained; exit status 1"};
  });
  table.add("a manifest of `chorus data` doesn't fit on the disk", [](Scene& s) {
    fs::create_directories("sounds");
    std::string texts;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
      texts += std::string(name) + ": hello " + name + " there\n";
      write_wav(fs::path("sounds") / (std::string(name) + ".wav"), std::vector<float>(8000, 0.1F), 8000);
    }
    s.write("texts.txt", texts);
    s.write("out/train.jsonl", "the manifest before\n");
    Ended ended;
    {
      const WriteFault fault("call=write path=train.jsonl room=100");
      ended = s.chorus({"data", "asterisk", "--texts", "texts.txt", "--sounds", "sounds", "--out", "out"});
    }
    EXPECT_EQ(ended.status, 1) << ended.out;
    const std::string line = ended.line("out/train.jsonl");
    expect_parts(line, {"No space left on device (errno 28)", "bytes free"});
    std::ifstream in("out/train.jsonl");
    std::string kept;
    std::getline(in, kept);
    EXPECT_EQ(kept, "the manifest before");
    EXPECT_FALSE(fs::exists("out/train.jsonl.tmp"));
    return Seen{steady(line), "the manifest that was there before; exit status 1"};
  });
}

/// Runs a shell command in which $CHORUS is the executable; returns its exit status.
int shell(const std::string& command) {
  ::setenv("CHORUS", CHORUS_EXECUTABLE, 1);
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string joined(const std::vector<std::string>& arguments) {
  std::string text;
  for (const auto& argument : arguments) text += " '" + argument + "'";
  return text;
}

std::string content(const char* file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

void output_errors(ErrorTable& table) {
  table.add("standard output goes to a full disk", [](Scene& s) {
    EXPECT_EQ(shell("\"$CHORUS\"" + joined(six_steps(s)) + " >/dev/full 2>err"), 1);
    const std::string err = content("err");
    expect_parts(err, {"standard output can't be written, which ends nothing before its time: No space left on device",
                       "chorus: standard output can't be written"});
    EXPECT_EQ(saved_steps(), (std::vector<std::uint64_t>{6, 4, 2}));
    EXPECT_EQ(metric_steps(), all_steps);
    return Seen{err, "the run and all its files; exit status 1"};
  });
  table.add("whoever reads standard output of a training goes away", [](Scene& s) {
    EXPECT_EQ(shell("{ \"$CHORUS\"" + joined(six_steps(s)) + " 2>err; echo $? >status; } | true"), 0);
    EXPECT_EQ(content("status"), "1\n");
    const std::string err = content("err");
    expect_parts(err, {"Broken pipe"});
    EXPECT_EQ(saved_steps(), (std::vector<std::uint64_t>{6, 4, 2}));
    EXPECT_EQ(metric_steps(), all_steps);
    return Seen{err, "the run and all its files; exit status 1"};
  });
}

}  // namespace

void write_errors(ErrorTable& table) {
  table.section(
      "Writing",
      "Provoked by a library that stands between `chorus` and the system (tests/faults/interposed). Whole files are written "
      "beside their name, flushed and renamed, so the content before stays until the new one is safe.");
  saving_errors(table);
  log_errors(table);
  start_errors(table);
  output_errors(table);
}

}  // namespace chorus::errors
