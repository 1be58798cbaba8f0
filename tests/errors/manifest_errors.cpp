// Manifests and lines of them that can't be used.
#include <sys/stat.h>

#include "errors/runs.h"
#include "errors/sections.h"

namespace chorus::errors {
namespace {

/// A line that training goes on without.
Seen bad_line(const Scene& scene, const std::string& text, std::initializer_list<std::string_view> parts) {
  return costs_a_line(scene, text, "left out a line: ", "1 with an unusable manifest line", parts);
}
/// Where the entry's place in its sound is wrong.
Seen bad_range(const Scene& scene, const std::string& more, std::initializer_list<std::string_view> parts) {
  return costs_a_line(scene, line("ab.wav", "ab", more), "dropped a sample: train.jsonl:5", "4 failed to load", parts,
                      {"batches.concat_probability=0"});
}
/// A file that is no manifest ends training before anything is made but the run's folder.
Seen manifest_refused(std::initializer_list<std::string_view> parts, std::vector<std::string> overrides = {}) {
  const std::string message = error_of([&] { train(tiny(std::move(overrides)), {}); });
  expect_parts(message, parts);
  EXPECT_FALSE(std::filesystem::exists("run/checkpoints"));
  return {message, "nothing was trained; a run's checkpoints stay as they are; exit status 1"};
}
/// What the configuration names isn't there.
Seen no_file(const Scene& scene, std::initializer_list<std::string_view> parts) {
  const Ended ended = scene.chorus({"train", "my.toml"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_FALSE(std::filesystem::exists("run"));
  expect_parts(ended.err, parts);
  return {ended.err, "nothing was started, made or changed; exit status 2"};
}
std::string my_toml(const std::string& train) {
  return "[data]\ntrain = \"" + train + "\"\n[trainer]\noutput_dir = \"run\"\n[batches]\nglobal_batch_size = 4\n";
}

}  // namespace

void manifest_errors(ErrorTable& table) {
  table.section(
      "Manifest",
      "A bad line costs itself, unless `data.skip_bad_lines = false`. Fields that aren't Chorus's are ignored, as NeMo "
      "does. A byte order mark, CR LF, blank lines and a last line without its end do no harm.");
  table.add("a line that is no JSON", [](Scene& s) {
    return bad_line(s, "{\"audio_filepath\": \"ab.wav\", \"text\": ab}\n",
                    {"train.jsonl:5: no JSON: column 38", "one object per line"});
  });
  table.add("a line that is JSON, but no object", [](Scene& s) {
    return bad_line(s, "[\"ab.wav\", \"ab\"]\n", {"train.jsonl:5: expected a JSON object, found array"});
  });
  table.add("a field that is missing", [](Scene& s) {
    return bad_line(s, "{\"path\": \"ab.wav\", \"text\": \"ab\"}\n",
                    {"train.jsonl:5: field 'audio_filepath' is missing", "path, text"});
  });
  table.add("a field of the wrong type", [](Scene& s) {
    return bad_line(s, line("ab.wav", "ab", ", \"duration\": \"0.3 s\""),
                    {"train.jsonl:5: field 'duration' is \"0.3 s\", expected a number"});
  });
  table.add("a negative offset", [](Scene& s) {
    return bad_line(s, line("ab.wav", "ab", ", \"offset\": -1"),
                    {"train.jsonl:5: field 'offset' is -1, expected seconds >= 0"});
  });
  table.add("an offset beyond the end of the sound", [](Scene& s) {
    return bad_range(s, ", \"offset\": 99, \"duration\": 0.3", {"ab.wav", "offset 99 s lies outside its 0.32 s"});
  });
  table.add("a duration beyond the end of the sound (10 ms are taken for rounding)", [](Scene& s) {
    return bad_range(s, ", \"offset\": 0.2, \"duration\": 0.3",
                     {"ab.wav", "offset 0.2 s and duration 0.3 s reach beyond its 0.32 s"});
  });
  table.add("bad lines with `data.skip_bad_lines = false`: all at once", [](Scene& s) {
    write_corpus(s, "ab\n" + line("", "ab"));
    return manifest_refused({"train.jsonl:5: no JSON", "train.jsonl:6: field 'audio_filepath' is empty"},
                            {"data.skip_bad_lines=false"});
  });
  table.add("no line that can be used", [](Scene& s) {
    s.write("train.jsonl", line("gone.wav", "ab") + "ab\n");
    return manifest_refused(
        {"train.jsonl has no entry that can be used: 1 with an unusable manifest line, 1 without a readable sound file"});
  });
  table.add("a line of megabytes", [](Scene& s) {
    s.write("train.jsonl", std::string(std::size_t{3} << 20, 'x'));
    return manifest_refused({"train.jsonl has a line of more than 1048575 bytes"});
  });
  table.add("a compressed manifest", [](Scene& s) {
    s.write("train.jsonl", "\x1f\x8b\x08");
    return manifest_refused({"train.jsonl is compressed by gzip"});
  });
  table.add("a manifest in UTF-16", [](Scene& s) {
    s.write("train.jsonl", "\xff\xfe{");
    return manifest_refused({"train.jsonl is UTF-16"});
  });
  table.add("a manifest that doesn't exist", [](Scene& s) {
    s.write("my.toml", my_toml("gone.jsonl"));
    return no_file(s, {"my.toml:2:9: data.train = \"gone.jsonl\": there is no such file"});
  });
  table.add("a folder in place of a manifest", [](Scene& s) {
    s.write("my.toml", my_toml("."));
    return no_file(s, {"my.toml:2:9: data.train = \".\": is a folder"});
  });
  table.add("a pipe in place of a manifest", [](Scene& s) {
    s.write("my.toml", my_toml("pipe.jsonl"));
    EXPECT_EQ(mkfifo("pipe.jsonl", 0600), 0);
    return no_file(s, {"my.toml:2:9: data.train = \"pipe.jsonl\": is no regular file"});
  });
  table.add("bad lines in a manifest to evaluate on", [](Scene& s) {
    write_corpus(s);
    train_tiny();
    s.write("heldout.jsonl", line("ab.wav", "ab") + "ab\n" + line("ab.wav", "ab", ", \"offset\": true"));
    const Ended ended = s.chorus({"evaluate", "--run", "run", "heldout.jsonl"});
    EXPECT_EQ(ended.status, 1);
    expect_parts(ended.err, {"heldout.jsonl:2: no JSON", "heldout.jsonl:3: field 'offset' is true, expected a number"});
    return Seen{ended.line("jsonl:2") + '\n' + ended.line("jsonl:3"), "the others are evaluated; exit status 1"};
  });
  table.add("a manifest that changed since the run began", [](Scene& s) {
    write_corpus(s);
    train_tiny();
    write_corpus(s, line("ab.wav", "ab"));
    const std::string message = error_of([] { train(tiny(), {}); });
    expect_parts(message, {"train.jsonl isn't the manifest", "choose another trainer.output_dir"});
    EXPECT_TRUE(std::filesystem::exists("run/checkpoints/step-000004"));
    return Seen{message, "the run and its checkpoints stay as they are; exit status 1"};
  });
}

}  // namespace chorus::errors
