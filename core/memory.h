// Pooled memory of one rank, accounted by what it is used for.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace chorus {

/// `disk` is what lies in mapped files (core/mapped_file.h): counted by itself, in no total and under no limit.
enum class Category { parameters, gradients, optimizer, activations, workspace, communication, disk };
inline constexpr int category_count = 7;
std::string_view name(Category);

/// True, except in builds with AddressSanitizer, which sees a stray access only in blocks of the system's own.
bool pooled_by_default();

/// Where a pool gets its regions. Null functions mean the host's memory. `take` returns 64-byte aligned memory or null.
/// The pool keeps its books outside the regions, so they may lie on a device that the host cannot write to.
struct MemorySource {
  void* (*take)(std::size_t bytes) = nullptr;
  void (*give_back)(void* region, std::size_t bytes) noexcept = nullptr;
};

struct MemoryOptions {
  std::size_t limit = 0;              ///< bytes that may be in use at once; 0 = no limit of our own
  bool pooled = pooled_by_default();  ///< false: every block comes from the source directly
  MemorySource source{};
};

struct MemoryStats {
  std::array<std::size_t, category_count> current{}, peak{};  ///< bytes in use by category
  std::size_t total = 0, peak_total = 0;                      ///< bytes in use, but for those on disk
  std::size_t reserved = 0;                                   ///< bytes of address space taken from the system
  std::size_t touched = 0;             ///< of these, from the first byte ever given out of each region; pooled memory only
  std::size_t system_allocations = 0;  ///< times the system was asked
};

/// Blocks of 64-byte aligned memory. Thread-safe. Freed blocks are merged and reused, nothing returns to the system
/// before the end, so a training loop in its steady state takes no page faults. Regions of the host lie next to each other
/// where address space can be had, and are used from the end on. Gradients above 256 KiB lie at the other end of what was used
/// before: as activations go in the backward pass gradients take their place, and what is free between them stays in one piece.
class Memory {
 public:
  explicit Memory(MemoryOptions options = {});
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Throws `Error` with a report by category when the limit or the machine is exhausted, and for `Category::disk`, which has
  /// no memory. No bytes: null.
  void* allocate(std::size_t bytes, Category category);
  /// `bytes` and `category` are those of the allocation. Null is ignored.
  void free(void* block, std::size_t bytes, Category category) noexcept;
  /// Counts bytes that live elsewhere: on a GPU, against the same limit, throwing like `allocate`; or on disk. And undoes it.
  void charge(std::size_t bytes, Category category);
  void discharge(std::size_t bytes, Category category) noexcept;

  MemoryStats stats() const;
  void reset_peak();
  /// One line per category: bytes now, bytes at peak. Of the disk only where something was there.
  std::string report() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chorus
