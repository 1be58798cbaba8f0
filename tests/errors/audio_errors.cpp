// Sound files that can't be used, and odd ones that can.
#include <sys/stat.h>

#include <cstring>
#include <limits>

#include "errors/runs.h"
#include "errors/sections.h"

namespace chorus::errors {
namespace {

/// A WAV file: 8-bit or float samples.
std::string wav(std::uint32_t rate, std::uint16_t channels, bool floats, const std::string& data, std::uint32_t promised = 0) {
  if (promised == 0) promised = static_cast<std::uint32_t>(data.size());
  const auto bytes = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  const std::uint16_t size = floats ? 4 : 1, block = static_cast<std::uint16_t>(size * channels);
  return "RIFF" + bytes(36 + promised) + "WAVEfmt " + bytes(std::uint32_t{16}) + bytes(std::uint16_t(floats ? 3 : 1)) +
         bytes(channels) + bytes(rate) + bytes(rate * block) + bytes(block) + bytes(std::uint16_t(8 * size)) + "data" +
         bytes(promised) + data;
}
std::string float_bytes(const std::vector<float>& samples) {
  std::string bytes(samples.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), samples.data(), bytes.size());
  return bytes;
}

/// A recording whose header already says that it can't be used.
Seen left_out(const Scene& scene, const std::string& audio, std::initializer_list<std::string_view> parts) {
  return costs_a_line(scene, line(audio, "ab"), "left out a recording: train.jsonl:5", "1 without a readable sound file",
                      parts);
}
/// One whose manifest gives its duration: only the loader opens it, every epoch again.
Seen dropped(const Scene& scene, const std::string& audio, std::initializer_list<std::string_view> parts,
             std::vector<std::string> overrides = {}) {
  overrides.push_back("batches.concat_probability=0");
  return costs_a_line(scene, line(audio, "ab", R"(, "duration": 0.32)"), "dropped a sample: train.jsonl:5", "4 failed to load",
                      parts, std::move(overrides));
}
/// One that is used although it isn't what the model hears.
Seen used(const Scene& scene, const std::string& audio, const std::string& how) {
  write_corpus(scene, line(audio, "ab"));
  const auto trained = train_tiny({"batches.concat_probability=0"});
  EXPECT_EQ(trained->result.drops.report(), "none");
  for (const auto& step : trained->heard.steps) EXPECT_EQ(step.samples, 5);
  return {"nothing", how};
}

}  // namespace

void audio_errors(ErrorTable& table) {
  table.section("Sound",
                "A recording that can't be used costs itself, never the run: it is told with file and line (the first ten of a "
                "kind at the start, each once later), and counted by reason. With `loader.skip_bad_audio = false` a sample "
                "that can't be read ends training with the same message.");
  table.add("a file that doesn't exist, its duration not in the manifest",
            [](Scene& s) { return left_out(s, "gone.wav", {"\"gone.wav\" does not exist"}); });
  table.add("a file that doesn't exist, its duration in the manifest",
            [](Scene& s) { return dropped(s, "gone.wav", {"\"gone.wav\" does not exist"}); });
  table.add("a truncated WAV file", [](Scene& s) {
    s.write("short.wav", wav(8000, 1, false, std::string(900, '\x80'), 2560));
    return dropped(s, "short.wav", {"short.wav", "900 bytes of sound where its header promises 2560"});
  });
  table.add("an empty file", [](Scene& s) {
    s.write("empty.wav", "");
    return left_out(s, "empty.wav", {"empty.wav", "0 bytes"});
  });
  table.add("a sound file without samples", [](Scene& s) {
    s.write("zero.wav", wav(8000, 1, false, ""));
    return left_out(s, "zero.wav", {"zero.wav has 0 seconds"});
  });
  table.add("a file that is no sound", [](Scene& s) {
    s.write("text.wav", "this is no sound at all");
    return left_out(s, "text.wav", {"text.wav", "Expected WAV"});
  });
  table.add("a folder in place of a sound file", [](Scene& s) {
    std::filesystem::create_directory("folder.wav");
    return left_out(s, "folder.wav", {"folder.wav", "is a folder"});
  });
  table.add("a pipe in place of a sound file", [](Scene& s) {
    EXPECT_EQ(mkfifo("pipe.wav", 0600), 0);
    return left_out(s, "pipe.wav", {"pipe.wav", "is no regular file"});
  });
  table.add("a sample that isn't a number", [](Scene& s) {
    std::vector<float> samples(2560, 0.25f);
    samples[7] = std::numeric_limits<float>::quiet_NaN();
    s.write("nan.wav", wav(8000, 1, true, float_bytes(samples)));
    return dropped(s, "nan.wav", {"nan.wav", "sample 7 is nan"});
  });
  table.add("an infinite sample", [](Scene& s) {
    std::vector<float> samples(2560, 0.25f);
    samples[9] = std::numeric_limits<float>::infinity();
    s.write("inf.wav", wav(8000, 1, true, float_bytes(samples)));
    return dropped(s, "inf.wav", {"inf.wav", "sample 9 is inf"});
  });
  table.add("a header that says 1 Hz (resampled, 2 MB would be hours)", [](Scene& s) {
    s.write("slow.wav", wav(1, 1, false, std::string(2'000'000, '\x80')));
    return left_out(s, "slow.wav", {"slow.wav", "1 Hz in its header", "1000 to 768000"});
  });
  table.add("a header that says 1,000 channels", [](Scene& s) {
    s.write("wide.wav", wav(8000, 1000, false, std::string(100'000, '\x80')));
    return left_out(s, "wide.wav", {"wide.wav", "1000 channels", "1 to 64"});
  });
  table.add("an hour long (`batches.max_seconds` is 120 by default)", [](Scene& s) {
    s.write("hour.wav", wav(1000, 1, false, std::string(3'600'000, '\x80')));
    return costs_a_line(s, line("hour.wav", "ab"), "left out: train.jsonl:5", "1 too long",
                        {"3600 s are more than max_seconds = 120"});
  });
  table.add("ten hours long, with `batches.max_seconds = 0`", [](Scene& s) {
    s.write("day.wav", wav(1000, 1, false, "", 36'000'000));
    std::filesystem::resize_file("day.wav", 44 + 36'000'000);  // a hole: it takes no disk
    return costs_a_line(s, line("day.wav", "ab"), "dropped a sample: train.jsonl:5", "4 failed to load",
                        {"day.wav", "36000000 samples at 1000 Hz", "more than the 268435456"},
                        {"batches.max_seconds=0", "batches.concat_probability=0"});
  });
  table.add("shorter than two feature frames", [](Scene& s) {
    s.write("click.wav", wav(8000, 1, false, std::string(100, '\x80')));
    return costs_a_line(s, line("click.wav", "ab"), "left out: train.jsonl:5", "1 too short",
                        {"0.0125 s at speed 1.05 give 1 feature frames", "min_frames = 2"});
  });
  table.add("every sound file is gone", [](Scene& s) {
    s.write("train.jsonl", line("ab.wav", "ab", R"(, "duration": 0.32)") + line("bc.wav", "bc", R"(, "duration": 0.32)"));
    const std::string message = error_of([] { train(tiny(), {}); });
    expect_parts(message, {"none of 2 recordings can be read; the first: ", "\"ab.wav\" does not exist"});
    return Seen{message, "nothing was trained; exit status 1"};
  });
  table.add("stereo", [](Scene& s) {
    s.write("stereo.wav", wav(8000, 2, false, std::string(5120, '\x80')));
    return used(s, "stereo.wav", "used: channels are averaged");
  });
  table.add("recorded at 44.1 kHz for a model at 8 kHz", [](Scene& s) {
    s.write("cd.wav", wav(44100, 1, false, std::string(14112, '\x80')));
    return used(s, "cd.wav", "used: resampled to `features.sample_rate`");
  });
  table.add("recorded at 8 kHz for a model at 16 kHz", [](Scene& s) {
    write_corpus(s);
    const auto trained = train_tiny({"features.sample_rate=16000", "features.n_fft=512"});
    EXPECT_EQ(trained->result.drops.report(), "none");
    return Seen{"nothing", "used: resampled to `features.sample_rate`"};
  });
}

}  // namespace chorus::errors
