#include <chorus/core/error.h>
#include <chorus/io/sound_file.h>

#include <array>
#include <cstdlib>

namespace chorus {
namespace {
constexpr int lowest_rate = 1000, highest_rate = 768'000, most_channels = 64;
}  // namespace

SoundFile believable(const char* op, SoundFile file, const SF_INFO& info, const std::filesystem::path& path) {
  require(file != nullptr, op, path, ": ", sf_strerror(nullptr), " Expected WAV, FLAC, OGG, MP3 or the like");
  // A header that says nonsense must not decide how much memory is taken.
  require(info.samplerate >= lowest_rate && info.samplerate <= highest_rate, op, path, ": ", info.samplerate,
          " Hz in its header, expected ", lowest_rate, " to ", highest_rate);
  require(info.channels >= 1 && info.channels <= most_channels, op, path, ": ", info.channels,
          " channels in its header, expected 1 to ", most_channels);
  return file;
}

SoundFile open_sound_file(const char* op, const std::filesystem::path& path, SF_INFO& info) {
  // Opening a pipe would wait for its writer for ever; io/pipe_sound.h reads those.
  const auto status = std::filesystem::status(path);
  require(std::filesystem::exists(status), op, path, " does not exist");
  require(std::filesystem::is_regular_file(status), op, path, " is ",
          std::filesystem::is_directory(status) ? "a folder" : "no regular file", ", expected a sound file");
  require(std::filesystem::file_size(path) > 0, op, path, " is empty: 0 bytes, expected a sound file");
  info = {};
  return believable(op, SoundFile(sf_open(path.c_str(), SFM_READ, &info)), info, path);
}

std::string truncation(SNDFILE* file) {
  // libsndfile silently shortens such a file; only its log tells: "data : <promised> (should be <there>)".
  std::array<char, 16384> buffer{};
  sf_command(file, SFC_GET_LOG_INFO, buffer.data(), static_cast<int>(buffer.size()) - 1);
  const std::string log = buffer.data();
  const std::size_t line = log.find("data : ");
  if (line == log.npos) return {};
  const std::string entry = log.substr(line, log.find('\n', line) - line);
  const std::size_t note = entry.find("(should be ");
  if (note == entry.npos) return {};
  const long long promised = std::atoll(entry.c_str() + 7), there = std::atoll(entry.c_str() + note + 11);
  // Streams of unknown length promise 0 or nearly 2^31 or 2^32 bytes, which is no truncation.
  if (promised <= there || promised >= 0x7FFFF000) return {};
  return " is truncated: " + std::to_string(there) + " bytes of sound where its header promises " + std::to_string(promised);
}

}  // namespace chorus
