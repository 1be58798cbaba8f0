// MD5 (RFC 1321), to split corpora by the hash of a name as published splits do. Not for anything that needs security.
#pragma once
#include <string>
#include <string_view>

namespace chorus {

/// 32 lower-case hexadecimal digits.
std::string md5(std::string_view text);

/// The digest, read as one big-endian number, modulo `divisor` (1 .. 2^24).
unsigned md5_modulo(std::string_view text, unsigned divisor);

}  // namespace chorus
