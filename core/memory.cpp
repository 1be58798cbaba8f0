#include <chorus/core/error.h>
#include <chorus/core/memory.h>
#include <chorus/core/text.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <sstream>
#include <vector>

namespace chorus {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t first_region = std::size_t{64} << 20, largest_step = std::size_t{1} << 30;
// Blocks up to this size are kept by exact size when freed; larger ones are merged at once, so that they never splinter.
constexpr std::size_t largest_bin = std::size_t{256} << 10;

std::size_t round_up(std::size_t bytes, std::size_t step) { return (bytes + step - 1) / step * step; }

// Pages appear on first touch. The mapping starts at a huge page, so that the kernel can back all of it with them.
void* map_region(std::size_t bytes) {
  void* raw = mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* begin = static_cast<char*>(raw);
  const std::size_t lead = (huge_page - reinterpret_cast<std::uintptr_t>(raw) % huge_page) % huge_page;
  if (lead) munmap(begin, lead);
  if (lead != huge_page) munmap(begin + lead + bytes, huge_page - lead);
  madvise(begin + lead, bytes, MADV_HUGEPAGE);
  return begin + lead;
}
void unmap_region(void* region, std::size_t bytes) noexcept { munmap(region, bytes); }

void* new_block(std::size_t bytes) { return ::operator new (bytes, std::align_val_t{alignment}, std::nothrow); }
void delete_block(void* block, std::size_t) noexcept { ::operator delete (block, std::align_val_t{alignment}); }

// Best fit over free ranges, merged with their neighbours when freed.
class FreeRanges {
 public:
  char* take(std::size_t bytes) {
    const auto found = by_size_.lower_bound({bytes, nullptr});
    if (found == by_size_.end()) return nullptr;
    const auto [size, begin] = *found;
    by_size_.erase(found);
    by_address_.erase(begin);
    if (size > bytes) insert(begin + bytes, size - bytes);
    return begin;
  }
  void give_back(char* begin, std::size_t bytes) {
    auto next = by_address_.lower_bound(begin);
    if (next != by_address_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin) {
        begin = before->first;
        bytes += before->second;
        by_size_.erase({before->second, before->first});
        by_address_.erase(before);
      }
    }
    if (next != by_address_.end() && begin + bytes == next->first) {
      bytes += next->second;
      by_size_.erase({next->second, next->first});
      by_address_.erase(next);
    }
    insert(begin, bytes);
  }

 private:
  void insert(char* begin, std::size_t bytes) {
    by_size_.insert({bytes, begin});
    by_address_.insert({begin, bytes});
  }
  std::set<std::pair<std::size_t, char*>> by_size_;
  std::map<char*, std::size_t> by_address_;
};

}  // namespace

bool pooled_by_default() {
#ifdef __SANITIZE_ADDRESS__
  return false;
#else
  return true;
#endif
}

std::string_view name(Category category) {
  constexpr std::array<std::string_view, category_count> names{"parameters",  "gradients", "optimizer",
                                                               "activations", "workspace", "communication"};
  return names[static_cast<std::size_t>(category)];
}

struct Memory::Impl {
  explicit Impl(MemoryOptions given) : options(given) {
    if (!options.source.take)
      options.source = options.pooled ? MemorySource{map_region, unmap_region} : MemorySource{new_block, delete_block};
    if (options.pooled) bins.resize(largest_bin / alignment + 1);
  }
  ~Impl() {
    for (const auto& [region, bytes] : regions) options.source.give_back(region, bytes);
  }

  // `size` is a multiple of the alignment, here and below.
  void* take(std::size_t size) {
    if (!options.pooled) return take_from_source(size);
    if (size <= largest_bin) {
      auto& bin = bins[size / alignment];
      if (!bin.empty()) {
        void* block = bin.back();
        bin.pop_back();
        return block;
      }
    }
    if (char* block = ranges.take(size)) return block;
    empty_bins();
    if (char* block = ranges.take(size)) return block;
    if (!grow(size)) return nullptr;
    return ranges.take(size);
  }

  void give_back(void* block, std::size_t size) {
    if (!options.pooled) {
      stats.reserved -= size;
      options.source.give_back(block, size);
    } else if (size <= largest_bin) {
      bins[size / alignment].push_back(static_cast<char*>(block));
    } else {
      ranges.give_back(static_cast<char*>(block), size);
    }
  }

  void* take_from_source(std::size_t size) {
    void* block = options.source.take(size);
    if (!block) return nullptr;
    ++stats.system_allocations;
    stats.reserved += size;
    return block;
  }

  bool grow(std::size_t size) {
    // Growing in proportion keeps the number of regions small; a smaller region is tried where the system refuses.
    for (const std::size_t extra : {std::clamp(stats.reserved / 2, first_region, largest_step), std::size_t{0}}) {
      const std::size_t bytes = round_up(std::max(size, extra), huge_page);
      if (void* region = take_from_source(bytes)) {
        regions.push_back({region, bytes});
        ranges.give_back(static_cast<char*>(region), bytes);
        return true;
      }
    }
    return false;
  }

  void check_limit(const char* op, std::size_t bytes, Category category) const {
    // Not require(): the report is text that only a failure should pay for.
    if (options.limit != 0 && (bytes > options.limit || stats.total > options.limit - bytes))
      fail(op, bytes, " bytes of ", name(category), " would exceed the limit of ", options.limit, " bytes (",
           human_bytes(static_cast<double>(options.limit)), ")\n", report());
  }
  void count(std::size_t bytes, Category category) {
    const auto i = static_cast<std::size_t>(category);
    stats.current[i] += bytes;
    stats.peak[i] = std::max(stats.peak[i], stats.current[i]);
    stats.total += bytes;
    stats.peak_total = std::max(stats.peak_total, stats.total);
  }
  void discount(std::size_t bytes, Category category) {
    stats.current[static_cast<std::size_t>(category)] -= bytes;
    stats.total -= bytes;
  }

  void empty_bins() {
    for (std::size_t i = 0; i < bins.size(); ++i) {
      for (char* block : bins[i]) ranges.give_back(block, i * alignment);
      bins[i].clear();
    }
  }

  std::string report() const {
    std::ostringstream text;
    for (int i = 0; i < category_count; ++i)
      text << name(static_cast<Category>(i)) << ": " << human_bytes(static_cast<double>(stats.current[i])) << ", peak "
           << human_bytes(static_cast<double>(stats.peak[i])) << '\n';
    text << "total: " << human_bytes(static_cast<double>(stats.total)) << ", peak "
         << human_bytes(static_cast<double>(stats.peak_total)) << ", reserved "
         << human_bytes(static_cast<double>(stats.reserved)) << " in " << stats.system_allocations << " requests\n";
    return text.str();
  }

  MemoryOptions options;
  mutable std::mutex mutex;
  MemoryStats stats;
  FreeRanges ranges;
  std::vector<std::vector<char*>> bins;  // by size / alignment
  std::vector<std::pair<void*, std::size_t>> regions;
};

Memory::Memory(MemoryOptions options) : impl_(std::make_unique<Impl>(options)) {}
Memory::~Memory() = default;

void* Memory::allocate(std::size_t bytes, Category category) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(impl_->mutex);
  impl_->check_limit("Memory::allocate", bytes, category);
  // Rounding up would wrap around near the end of the address space; no machine has that much.
  void* block = bytes < (std::size_t{1} << 62) ? impl_->take(round_up(bytes, alignment)) : nullptr;
  if (!block)
    fail("Memory::allocate", "the system has no room for ", bytes, " bytes (", human_bytes(static_cast<double>(bytes)), ") of ",
         name(category), '\n', impl_->report());
  impl_->count(bytes, category);
  return block;
}

void Memory::free(void* block, std::size_t bytes, Category category) noexcept {
  if (!block) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->give_back(block, round_up(bytes, alignment));
  impl_->discount(bytes, category);
}

void Memory::charge(std::size_t bytes, Category category) {
  const std::lock_guard lock(impl_->mutex);
  impl_->check_limit("Memory::charge", bytes, category);
  impl_->count(bytes, category);
}

void Memory::discharge(std::size_t bytes, Category category) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->discount(bytes, category);
}

MemoryStats Memory::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

void Memory::reset_peak() {
  const std::lock_guard lock(impl_->mutex);
  impl_->stats.peak = impl_->stats.current;
  impl_->stats.peak_total = impl_->stats.total;
}

std::string Memory::report() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->report();
}

}  // namespace chorus
