// Long recordings cut into pieces that are heard one by one.
#pragma once
#include <chorus/io/audio_stream.h>

#include <optional>

namespace chorus {

/// All in samples.
struct ChunkOptions {
  std::int64_t chunk = 0;     ///< of a chunk; 0: a recording is one piece
  std::int64_t shortest = 1;  ///< a tail of fewer samples joins the chunk before it, which then is longer than `chunk`
  std::int64_t quiet = 0;     ///< the cut goes to the quietest place of so many last samples of a chunk; 0: to its end
  std::int64_t longest = 0;   ///< what is taken as one piece when `chunk` is 0; 0: anything
};

struct Chunk {
  std::int64_t begin = 0;  ///< sample of the recording
  std::vector<float> samples;
};

/// Cuts a stream; holds one chunk and a tail at a time. Where it cuts depends on the samples only. Every sample is in exactly
/// one chunk, and only the last chunk of a recording without `quiet` may have another length than `chunk`.
class ChunkReader {
 public:
  /// The stream must outlive it. Errors: shortest or quiet not less than chunk.
  ChunkReader(AudioStream& stream, const ChunkOptions& options);
  /// None at the end. Throws when a recording that is to stay whole is longer than `longest`.
  std::optional<Chunk> next();
  std::int64_t samples() const { return begin_; }  ///< given so far

 private:
  std::size_t cut() const;
  AudioStream& stream_;
  ChunkOptions options_;
  std::vector<float> buffer_;
  std::int64_t begin_ = 0;
};

}  // namespace chorus
