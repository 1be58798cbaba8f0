// Ranks that work together. One-rank runs take the same path through `SoloGroup`.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

namespace chorus {

/// The collectives that exist so far; every reduction is a plain sum.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void all_reduce(std::span<double> values) = 0;
  virtual void all_reduce(std::span<std::int64_t> values) = 0;
};

/// A group of one.
class SoloGroup final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(std::span<double>) override {}
  void all_reduce(std::span<std::int64_t>) override {}
};

}  // namespace chorus
