#include <chorus/io/digest.h>
#include <xxhash.h>

#include <algorithm>
#include <new>

namespace chorus {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (!xxh || XXH3_128bits_reset(xxh) != XXH_OK) throw std::bad_alloc();
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;

void Hasher::update(const void* data, std::size_t bytes) { XXH3_128bits_update(state_->xxh, data, bytes); }
std::string Hasher::hex() const { return to_hex(XXH3_128bits_digest(state_->xxh)); }

std::string digest(const void* data, std::size_t bytes) { return to_hex(XXH3_128bits(data, bytes)); }

std::string file_digest(const PosixFile& file) {
  constexpr std::size_t block_bytes = 4 << 20;
  const auto block = std::make_unique_for_overwrite<char[]>(block_bytes);
  Hasher hasher;
  const std::uint64_t end = file.bytes();
  for (std::uint64_t at = 0; at < end;) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(block_bytes, end - at));
    file.read(block.get(), n, at);
    hasher.update(block.get(), n);
    at += n;
  }
  return hasher.hex();
}

}  // namespace chorus
