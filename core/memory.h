// Pooled memory of one rank, accounted by what it is used for.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace chorus {

enum class Category { parameters, gradients, optimizer, activations, workspace, communication };
inline constexpr int category_count = 6;
std::string_view name(Category);

struct MemoryOptions {
  std::size_t limit = 0;  ///< bytes that may be in use at once; 0 = no limit of our own
  bool pooled = true;     ///< false: every block comes from the system (sanitizers see each one)
};

struct MemoryStats {
  std::array<std::size_t, category_count> current{}, peak{};  ///< bytes in use by category
  std::size_t total = 0, peak_total = 0;                      ///< bytes in use
  std::size_t reserved = 0;                                   ///< bytes taken from the system
  std::size_t system_allocations = 0;                         ///< times the system was asked
};

/// Blocks of 64-byte aligned memory. Thread-safe. Freed blocks are merged and reused, nothing returns to the system
/// before the end, so a training loop in its steady state takes no page faults.
class Memory {
 public:
  explicit Memory(MemoryOptions options = {});
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Throws `Error` with a report by category when the limit or the machine is exhausted.
  void* allocate(std::size_t bytes, Category category);
  void free(void* block, std::size_t bytes, Category category) noexcept;
  /// Counts bytes that live elsewhere, on a GPU, against the same limit; throws like `allocate`, and undoes it.
  void charge(std::size_t bytes, Category category);
  void discharge(std::size_t bytes, Category category) noexcept;

  MemoryStats stats() const;
  void reset_peak();
  /// One line per category: bytes now, bytes at peak.
  std::string report() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chorus
