// Recordings of any length, and many of them, transcribed in bounded memory.
#pragma once
#include <chorus/apps/transcriber.h>
#include <chorus/io/chunks.h>

#include <functional>
#include <optional>

namespace chorus {

/// How recordings are cut, in seconds.
struct CutOptions {
  std::optional<double> chunk{};  ///< model.encoder_chunk_size_seconds unless given; 0: recordings stay whole
  double shortest = 0.5;          ///< a shorter tail joins the chunk before it; never less than two feature frames
  double quiet = 0;               ///< cut at the quietest place of so much at the end of a chunk; 0: at its end
  double longest = 300;           ///< what is heard as one piece when nothing is cut; longer recordings are an error
};
/// The same in samples, checked: a chunk must be longer than the shortest tail and the stretch in which to cut.
ChunkOptions chunk_options(const CutOptions& cut, const RunConfig& config);

struct TranscriptionOptions {
  ChunkOptions chunks;
  double batch_seconds = 60;  ///< chunks of so much sound are heard together; 0: one by one, each as soon as it is complete
  bool word_times = false;
};

/// A recording to be transcribed.
struct TranscriptionJob {
  std::string name;                   ///< in messages
  std::function<AudioStream()> open;  ///< called when its turn comes; may throw `Error`
};

/// One chunk and its transcript; times in seconds from the recording's beginning, those of words too.
struct Segment {
  double start = 0, end = 0;
  Transcript transcript;
};

/// Told in the order of the jobs: the segments of each, then its end.
struct TranscriptionHooks {
  std::function<void(std::size_t job, const Segment& segment)> segment;
  /// `problem` says why the recording could not be heard, or not to its end; else empty.
  std::function<void(std::size_t job, double seconds, const std::string& problem)> end;
};

struct TranscriptionTotals {
  std::int64_t recordings = 0, failed = 0, segments = 0;
  double sound_seconds = 0, seconds = 0;  ///< heard, and what it took
};

/// Hears the recordings one after another. No more than a batch of chunks (and the one being cut) is in memory. Chunks are
/// encoded and decoded alone: what is heard together doesn't matter, nor whether a chunk was part of a recording or all of it.
/// A recording that can't be read, or a chunk that can't be heard, costs nobody else's transcript.
TranscriptionTotals transcribe_all(const Transcriber& transcriber, std::span<const TranscriptionJob> jobs,
                                   const TranscriptionOptions& options, const TranscriptionHooks& hooks);

}  // namespace chorus
