// What tests of files share: a folder of their own, tensors of every bit pattern, noise, and the text of an error.
#pragma once
#include <chorus/core/rng.h>
#include <chorus/tensor/tensor.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace chorus {

/// A new empty folder, removed at the end. Its name is unique, as tests run at the same time.
struct TemporaryFolder {
  TemporaryFolder() {
    std::string name = ::testing::TempDir() + "chorus-test-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr, "test", "no temporary folder");
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path path;
};

/// A tensor whose bytes run through all values, NaNs and denormals among them; another `salt`, other bytes.
inline Tensor ramp(Context& context, const Shape& shape, DType dtype, std::size_t salt = 0) {
  const Tensor t = Tensor::empty(context, shape, dtype);
  auto* bytes = static_cast<unsigned char*>(t.data());
  for (std::size_t i = 0; i < t.bytes(); ++i) bytes[i] = static_cast<unsigned char>(31 * i + 7 * (i >> 8) + 1 + 13 * salt);
  return t;
}

inline void expect_same_bytes(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.dtype(), b.dtype()) << what;
  ASSERT_TRUE(a.shape() == b.shape()) << what << ": " << a << " and " << b;
  const auto *x = static_cast<const unsigned char*>(a.data()), *y = static_cast<const unsigned char*>(b.data());
  for (std::size_t i = 0; i < a.bytes(); ++i) {
    ASSERT_EQ(x[i], y[i]) << what << ": byte " << i << " of " << a.bytes();
  }
}

/// Samples of noise, sigma 0.2.
inline std::vector<float> noise(std::size_t n) {
  std::vector<float> x(n);
  fill_normal(random_key(5, "noise"), 0, std::span<float>(x), 0, 0.2);
  return x;
}

/// What `f` throws, or "no error".
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace chorus
