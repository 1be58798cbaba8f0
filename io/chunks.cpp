#include <chorus/core/error.h>
#include <chorus/io/chunks.h>

#include <algorithm>

namespace chorus {

ChunkReader::ChunkReader(AudioStream& stream, const ChunkOptions& options) : stream_(stream), options_(options) {
  require(options.chunk >= 0 && options.shortest >= 1 && options.quiet >= 0 && options.longest >= 0, "ChunkReader", "chunk ",
          options.chunk, ", shortest ", options.shortest, ", quiet ", options.quiet, ", longest ", options.longest,
          " samples; expected none below 0");
  require(options.chunk == 0 || (options.shortest < options.chunk && options.quiet + options.shortest <= options.chunk),
          "ChunkReader", "a chunk of ", options.chunk, " samples must be longer than the shortest tail, ", options.shortest,
          ", and leave it beside the stretch in which to cut, ", options.quiet);
}

/// Where the buffer, which holds a chunk and a tail, is cut.
std::size_t ChunkReader::cut() const {
  const std::int64_t chunk = options_.chunk;
  if (options_.quiet == 0) return static_cast<std::size_t>(chunk);
  // The energy of 50 ms around each candidate, one candidate every 10 ms; of equal ones the last, for long chunks.
  const std::int64_t half = std::max(1, stream_.sample_rate() / 40), step = std::max(1, stream_.sample_rate() / 100);
  std::int64_t best = chunk;
  double least = -1;
  for (std::int64_t at = chunk; at >= chunk - options_.quiet; at -= step) {
    const auto first = std::max<std::int64_t>(0, at - half),
               last = std::min(static_cast<std::int64_t>(buffer_.size()), at + half);
    double energy = 0;
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i)
      energy += double{buffer_[i]} * buffer_[i];
    energy /= static_cast<double>(last - first);
    if (least >= 0 && energy >= least) continue;
    least = energy;
    best = at;
  }
  return static_cast<std::size_t>(best);
}

std::optional<Chunk> ChunkReader::next() {
  const std::int64_t ahead = options_.chunk > 0     ? options_.chunk + options_.shortest
                             : options_.longest > 0 ? options_.longest + 1
                                                    : INT64_MAX;
  const auto wanted = static_cast<std::size_t>(ahead);
  if (buffer_.size() < wanted) stream_.read(buffer_, wanted - buffer_.size());
  if (buffer_.empty()) return std::nullopt;
  const bool more = buffer_.size() == wanted;
  require(options_.chunk > 0 || !more, "ChunkReader", "the recording is longer than ",
          static_cast<double>(options_.longest) / stream_.sample_rate(),
          " s, the most that is heard as one piece: give model.encoder_chunk_size_seconds or --chunk-seconds");
  Chunk chunk{begin_, {}};
  if (more) {
    const auto end = buffer_.begin() + static_cast<std::ptrdiff_t>(cut());
    chunk.samples.assign(buffer_.begin(), end);
    buffer_.erase(buffer_.begin(), end);
  } else {
    chunk.samples.swap(buffer_);
  }
  begin_ += static_cast<std::int64_t>(chunk.samples.size());
  return chunk;
}

}  // namespace chorus
