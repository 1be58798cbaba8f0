// Run folders and checkpoints that don't fit or are damaged.
#include <chorus/apps/run_lock.h>
#include <chorus/core/posix_file.h>
#include <chorus/io/digest.h>

#include <fstream>

#include "errors/runs.h"
#include "errors/sections.h"

namespace chorus::errors {
namespace {

namespace fs = std::filesystem;
constexpr const char* stays = "the run and its checkpoints stay as they are; exit status 1";

/// A run of four steps with checkpoints of steps 2 and 4.
void write_run(const Scene& scene) {
  write_corpus(scene);
  train_tiny({"trainer.checkpoint_every_n_steps=2"});
}
void damage(const fs::path& file) {
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  const auto middle = static_cast<std::streamoff>(fs::file_size(file) / 2);
  bytes.seekg(middle);
  const auto byte = static_cast<char>(bytes.get() ^ 1);
  bytes.seekp(middle);
  bytes.put(byte);
}
Seen resume_refused(std::initializer_list<std::string_view> parts, std::vector<std::string> overrides = {}) {
  const std::string message = error_of([&] { train(tiny(std::move(overrides)), {}); });
  expect_parts(message, parts);
  EXPECT_TRUE(fs::exists("run/checkpoints/step-000004/manifest.json"));
  return {message, stays};
}

}  // namespace

void checkpoint_errors(ErrorTable& table) {
  table.section("Run folder and checkpoints",
                "A run goes on from the newest checkpoint that is intact, byte by byte; nothing that is there is removed or "
                "overwritten because it can't be used.");
  table.add("the newest checkpoint is damaged", [](Scene& s) {
    write_run(s);
    damage("run/checkpoints/step-000004/rank-0000.h5");
    testing::Heard heard;
    const TrainingResult result = train(tiny({"trainer.checkpoint_every_n_steps=2"}), heard.hooks());
    EXPECT_EQ(result.step, 4);
    EXPECT_EQ(heard.steps.size(), 2u);
    EXPECT_TRUE(heard.said("at step 2"));
    const std::string said = heard.messages.at(0);
    expect_parts(said, {"skipped run/checkpoints/step-000004", "rank-0000.h5: its bytes differ"});
    return Seen{said, "training goes on from the one before"};
  });
  table.add("no checkpoint is intact", [](Scene& s) {
    write_run(s);
    damage("run/checkpoints/step-000002/rank-0000.h5");
    damage("run/checkpoints/step-000004/rank-0000.h5");
    return resume_refused({"none of the 2 checkpoints in run/checkpoints is intact"});
  });
  table.add("the checkpoints are those of another model", [](Scene& s) {
    write_run(s);
    train_tiny({"trainer.output_dir=other", "model.llm.hidden_size=32", "model.llm.num_hidden_layers=0"});
    fs::remove_all("run/checkpoints");
    fs::copy("other/checkpoints", "run/checkpoints", fs::copy_options::recursive);
    return resume_refused({"step-000004 is of another model", "of another shape: model/", "(32) instead of (16)",
                           "missing in it: model/llm/layers/0"});
  });
  table.add("a checkpoint of a later version", [](Scene& s) {
    write_run(s);
    const fs::path file = "run/checkpoints/step-000004/manifest.json";
    std::string rest = read_file(file);
    rest.erase(0, rest.find('\n') + 1);
    const std::string schema = "\"schema\": " + std::to_string(Manifest::current_schema);
    EXPECT_NE(rest.find(schema), rest.npos);
    rest.replace(rest.find(schema), schema.size(), "\"schema\": 99");
    std::ofstream(file, std::ios::binary) << "{\"digest\": \"" << digest(rest.data(), rest.size()) << "\",\n" << rest;
    return resume_refused({"has schema 99", "read it with the version that wrote it"});
  });
  table.add("another configuration for the same folder", [](Scene& s) {
    write_run(s);
    return resume_refused(
        {"run holds a run with another configuration", "was: optimizer.weight_decay", "now: optimizer.weight_decay = 0.5"},
        {"optimizer.weight_decay=0.5"});
  });
  table.add("the run's config.toml is gone", [](Scene& s) {
    write_run(s);
    fs::remove("run/config.toml");
    return resume_refused({"run has no config.toml"});
  });
  table.add("the run's tokenizer.model is gone", [](Scene& s) {
    write_run(s);
    fs::remove("run/tokenizer.model");
    return resume_refused({"run has lost its tokenizer.model"});
  });
  table.add("the run's statistics.json is damaged", [](Scene& s) {
    write_run(s);
    fs::resize_file("run/statistics.json", 30);
    return resume_refused({"run/statistics.json is damaged"});
  });
  table.add("the run's statistics.json is that of other data", [](Scene& s) {
    write_run(s);
    std::string text = read_file("run/statistics.json");
    text.replace(text.find("\"mean\":[") + 8, 1, "7");
    s.write("run/statistics.json", text);
    return resume_refused({"run/statistics.json isn't the one that the checkpoints were trained with"});
  });
  table.add("another process trains in the folder", [](Scene& s) {
    write_run(s);
    const RunLock lock("run");
    return resume_refused({"another process is training in run"});
  });
  table.add("a run's tokenizer replaced by another one, for transcription", [](Scene& s) {
    write_run(s);
    s.write("run/tokenizer.model", train_tokenizer(std::vector<std::string>{"abcde"}, {.type = "char"}));
    const std::string message = error_of([] { load_run("run", [](const std::string&) {}); });
    expect_parts(message, {"run/tokenizer.model isn't the one"});
    return Seen{message, stays};
  });
  table.add("a folder that is no run, for evaluation", [](Scene& s) {
    std::filesystem::create_directory("mine");
    const Ended ended = s.chorus({"evaluate", "--run", "mine", "heldout.jsonl"});
    EXPECT_EQ(ended.status, 1);
    expect_parts(ended.err, {"mine has no config.toml: it is no run"});
    return Seen{ended.err, "everything; exit status 1"};
  });
  table.add("`trainer.output_dir` is below a file", [](Scene& s) {
    s.write("my.toml",
            "[data]\ntrain = \"train.jsonl\"\n[trainer]\noutput_dir = \"run/a\"\n[batches]\nglobal_batch_size = 4\n");
    s.write("run", "mine");
    s.write("train.jsonl", "");
    const Ended ended = s.chorus({"train", "my.toml"});
    EXPECT_EQ(ended.status, 2);
    EXPECT_EQ(read_file("run"), "mine");
    expect_parts(ended.err, {"my.toml:4:14: trainer.output_dir = \"run/a\": run is a file"});
    return Seen{ended.err, "the file; nothing was started; exit status 2"};
  });
  for (const std::string key : {"output_dir", "optimizer_offload_folder"}) {
    table.add("`trainer." + key + "` is a file", [key](Scene& s) {
      s.write("my.toml",
              "[data]\ntrain = \"train.jsonl\"\n[trainer]\n" + key + " = \"run\"\n[batches]\nglobal_batch_size = 4\n");
      s.write("run", "mine");
      s.write("train.jsonl", "");
      const Ended ended = s.chorus({"train", "my.toml"});
      EXPECT_EQ(ended.status, 2);
      EXPECT_EQ(read_file("run"), "mine");
      expect_parts(ended.err, {"my.toml:4:" + std::to_string(key.size() + 4) + ": trainer." + key + " = \"run\": is a file"});
      return Seen{ended.err, "the file; nothing was started; exit status 2"};
    });
  }
}

}  // namespace chorus::errors
