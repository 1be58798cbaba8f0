// The audio front end and the loader alone: sound files to batches of log-mels, in seconds of sound per second.
//   bench_frontend --make FOLDER   writes 200 recordings of noise (42 minutes, 16 kHz) and our features of the first one
//   bench_frontend FOLDER          reads them once to fill the system's cache, then four times against the clock
// NeMo's front end with 80 mels and dither, no SpecAugment; decoded sound is not kept; one thread per core.
#include <chorus/core/rng.h>
#include <chorus/io/audio.h>
#include <chorus/io/hdf5.h>
#include <chorus/io/loader.h>
#include <omp.h>

#include <chrono>
#include <cstdio>

#include "process.h"
#include "utterances.h"

namespace chorus::bench {
namespace {

namespace fs = std::filesystem;

FeatureConfig features() {
  FeatureConfig config;
  config.mels = 80;
  return config;
}

std::vector<float> noise(std::uint64_t stream, double seconds) {
  std::vector<float> samples(static_cast<std::size_t>(seconds * features().sample_rate));
  fill_normal(random_key(stream, "frontend"), 0, std::span<float>(samples), 0.0, 0.1);
  return samples;
}

void make(const fs::path& folder) {
  fs::create_directories(folder);
  std::vector<ManifestEntry> entries;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const fs::path name = std::to_string(i) + ".wav";
    const double length = utterance_seconds[i % std::size(utterance_seconds)];
    write_wav(folder / name, noise(i, length), features().sample_rate);
    ManifestEntry entry;
    entry.audio = name, entry.duration = length, entry.text = "hello";
    entries.push_back(std::move(entry));
  }
  write_manifest(folder / "manifest.jsonl", entries);

  Context context;
  const auto sound = read_audio(folder / "0.wav", features().sample_rate);
  const Frontend frontend(features());
  const auto first = frontend(std::span<const float>(sound));
  fs::remove(folder / "first.h5");  // the writer overwrites nothing
  Hdf5Writer writer(folder / "first.h5");
  writer.add("features", Tensor::of(context, {std::ssize(first) / features().mels, features().mels}, first));
  writer.finish();
}

void measure(const fs::path& folder) {
  using Clock = std::chrono::steady_clock;
  const double resident = resident_bytes("VmRSS");
  const auto entries = read_manifest(folder / "manifest.jsonl");
  const Frontend frontend(features());
  const Tokenizer tokenizer(train_tokenizer(std::vector<std::string>{"hello"}, {.type = "char"}));
  SampleOptions options;
  options.spec_augment.freq_masks = options.spec_augment.time_masks = 0;
  options.cache_bytes = 0;
  const SampleMaker maker(entries, frontend, tokenizer, options);
  BatchConfig batches;
  batches.batch_frames = 25000;
  const BatchPlanner planner(batches, maker.utterances(), 1, features().sample_rate,
                             [&](std::int64_t samples) { return frontend.frames(samples); });
  double sound = 0;
  for (const auto& entry : entries) sound += entry.duration;
  constexpr std::int64_t epochs = 4;  // against the clock, after one that fills the system's cache
  double seconds = 0;
  for (const auto& [first, end] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 1 + epochs}}) {
    const auto begin = Clock::now();
    Loader loader(planner, maker, {.threads = omp_get_max_threads()}, {.epoch = first, .batch = 0}, end);
    std::int64_t samples = 0;
    while (auto batch = loader.next()) {
      samples += batch->counts.samples;
      loader.reuse(std::move(*batch));  // as the trainer does
    }
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    require(samples == (end - first) * std::ssize(entries), "bench_frontend", samples, " samples");
  }
  sound *= epochs;
  std::printf("seconds %.4f\naudio_seconds %.1f\nmemory %.1f\n", seconds, sound,
              (resident_bytes("VmHWM") - resident) / 1048576.0);
  std::printf("figure frontend.seconds_per_s %.5g audio s/s\n", sound / seconds);
}

}  // namespace
}  // namespace chorus::bench

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "build/bench/frontend";
  try {
    if (first == "--make" && argc > 2) {
      chorus::bench::make(argv[2]);
    } else {
      if (argc == 1 && !std::filesystem::exists(first)) chorus::bench::make(first);
      chorus::bench::measure(first);
    }
    return 0;
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
