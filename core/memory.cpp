#include <chorus/core/error.h>
#include <chorus/core/memory.h>
#include <chorus/core/text.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <sstream>
#include <vector>

namespace chorus {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t first_region = std::size_t{64} << 20, largest_step = std::size_t{1} << 30;
// Blocks up to this size come from slabs and are kept by exact size when freed. Larger ones are merged at once; between them
// lies no small block, which would keep them apart.
constexpr std::size_t largest_small = std::size_t{256} << 10, slab_bytes = std::size_t{4} << 20;

std::size_t round_up(std::size_t bytes, std::size_t step) { return (bytes + step - 1) / step * step; }

// Memory of the host. Address space is taken once and regions are made of it from its end on, so that each touches the one
// before; where there is none (a limit of the system, other processes' tools), each region lies where the system puts it. Pages
// appear on first touch, and regions start at huge pages, so that the kernel can back all of them with these.
class HostRegions {
 public:
  HostRegions() = default;
  HostRegions(const HostRegions&) = delete;
  HostRegions& operator=(const HostRegions&) = delete;
  ~HostRegions() {
    if (space_) munmap(space_, size_);
    for (const auto& [region, bytes] : elsewhere_) munmap(region, bytes);
  }
  // `bytes` is a multiple of the huge page.
  void* take(std::size_t bytes) {
    if (!asked_) reserve();
    if (bytes <= left_) {
      char* const region = space_ + left_ - bytes;
      if (mprotect(region, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
      left_ -= bytes;
      madvise(region, bytes, MADV_HUGEPAGE);
      return region;
    }
    char* const region = map(bytes, PROT_READ | PROT_WRITE, 0);
    if (!region) return nullptr;
    madvise(region, bytes, MADV_HUGEPAGE);
    elsewhere_.push_back({region, bytes});
    return region;
  }

 private:
  void reserve() {
    asked_ = true;
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return;
    size_ = round_up(2 * static_cast<std::size_t>(pages) * static_cast<std::size_t>(page), huge_page);
    space_ = map(size_, PROT_NONE, MAP_NORESERVE);
    left_ = space_ ? size_ : 0;
  }
  static char* map(std::size_t bytes, int protection, int flags) {
    void* raw = mmap(nullptr, bytes + huge_page, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    auto* begin = static_cast<char*>(raw);
    const std::size_t lead = (huge_page - reinterpret_cast<std::uintptr_t>(raw) % huge_page) % huge_page;
    if (lead) munmap(begin, lead);
    if (lead != huge_page) munmap(begin + lead + bytes, huge_page - lead);
    return begin + lead;
  }

  char* space_ = nullptr;
  std::size_t size_ = 0, left_ = 0;
  bool asked_ = false;
  std::vector<std::pair<void*, std::size_t>> elsewhere_;
};

void* new_block(std::size_t bytes) { return ::operator new (bytes, std::align_val_t{alignment}, std::nothrow); }
void delete_block(void* block, std::size_t) noexcept { ::operator delete (block, std::align_val_t{alignment}); }

// What is free, by address, merged with its neighbours when given back.
class FreeRanges {
 public:
  // From the end of the last range that fits.
  char* take_last(std::size_t bytes) {
    for (auto range = ranges_.end(); range != ranges_.begin();)
      if ((--range)->second >= bytes) return cut(range, range->first + range->second - bytes, bytes);
    return nullptr;
  }
  // The first place that fits. Of a range only what begins at `start(begin, end)` is looked at.
  template <class Start>
  char* take_first(std::size_t bytes, const Start& start) {
    for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
      char* const end = range->first + range->second;
      char* const block = start(range->first, end);
      if (static_cast<std::size_t>(end - block) >= bytes) return cut(range, block, bytes);
    }
    return nullptr;
  }
  // This very block, if all of it is free.
  bool take_at(char* block, std::size_t bytes) {
    auto range = ranges_.upper_bound(block);
    if (range == ranges_.begin()) return false;
    --range;
    return range->first + range->second >= block + bytes && cut(range, block, bytes);
  }
  void give_back(char* begin, std::size_t bytes) {
    auto next = ranges_.lower_bound(begin);
    if (next != ranges_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin) {
        begin = before->first;
        bytes += before->second;
        ranges_.erase(before);
      }
    }
    if (next != ranges_.end() && begin + bytes == next->first) {
      bytes += next->second;
      ranges_.erase(next);
    }
    ranges_.emplace(begin, bytes);
  }

 private:
  using Ranges = std::map<char*, std::size_t>;

  char* cut(Ranges::iterator range, char* block, std::size_t bytes) {
    char* const end = range->first + range->second;
    if (block > range->first) {
      range->second = static_cast<std::size_t>(block - range->first);
    } else {
      ranges_.erase(range);
    }
    if (end > block + bytes) ranges_.emplace(block + bytes, end - (block + bytes));
    return block;
  }
  Ranges ranges_;
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
  constexpr std::array<std::string_view, category_count> names{"parameters", "gradients",     "optimizer", "activations",
                                                               "workspace",  "communication", "disk"};
  return names[static_cast<std::size_t>(category)];
}

struct Memory::Impl {
  struct Region {
    char* begin;
    char* end;
    char* used;  // begin of the first block ever given out
  };

  explicit Impl(MemoryOptions given) : options(given) {
    if (!options.source.take) {
      if (options.pooled)
        host.emplace();
      else
        options.source = {new_block, delete_block};
    }
    if (options.pooled) bins.resize(largest_small / alignment + 1);
  }
  ~Impl() {
    if (host) return;
    for (const Region& region : regions)
      options.source.give_back(region.begin, static_cast<std::size_t>(region.end - region.begin));
  }

  // `size` is a multiple of the alignment, here and below.
  void* take(std::size_t size, Category category) {
    if (!options.pooled) return take_from_source(size);
    return size <= largest_small ? take_small(size) : take_large(size, category);
  }

  void give_back(void* block, std::size_t size) {
    if (!options.pooled) {
      stats.reserved -= size;
      options.source.give_back(block, size);
    } else if (size <= largest_small) {
      bins[size / alignment].push_back(static_cast<char*>(block));
    } else {
      large.give_back(static_cast<char*>(block), size);
    }
  }

  char* take_small(std::size_t size) {
    auto& bin = bins[size / alignment];
    if (!bin.empty()) {
      char* const block = bin.back();
      bin.pop_back();
      return block;
    }
    if (char* block = small.take_last(size)) return block;
    empty_bins();
    if (char* block = small.take_last(size)) return block;
    char* const slab = take_large(slab_bytes, Category::workspace);
    if (!slab) return nullptr;
    slabs.push_back(slab);
    small.give_back(slab, slab_bytes);
    return small.take_last(size);
  }

  char* take_large(std::size_t size, Category category) {
    char* block = nullptr;
    if (category == Category::gradients)
      block = large.take_first(size, [this](char* begin, char* end) { return used_in(begin, end); });
    if (!block) block = large.take_last(size);
    if (!block) {
      free_slabs();
      block = large.take_last(size);
    }
    if (!block && grow(size)) block = large.take_last(size);
    if (!block) return nullptr;
    // A block reaches over several regions where these touch each other, which they may by chance too.
    for (Region& region : regions)
      if (region.begin < block + size && block < region.end) region.used = std::min(region.used, std::max(region.begin, block));
    return block;
  }

  void* take_from_source(std::size_t size) {
    void* block = host ? host->take(size) : options.source.take(size);
    if (!block) return nullptr;
    ++stats.system_allocations;
    stats.reserved += size;
    return block;
  }

  bool grow(std::size_t size) {
    // Growing in proportion keeps the number of regions small; a smaller region is tried where the system refuses.
    for (const std::size_t extra : {std::clamp(stats.reserved / 2, first_region, largest_step), std::size_t{0}}) {
      const std::size_t bytes = round_up(std::max(size, extra), huge_page);
      if (void* taken = take_from_source(bytes)) {
        const Region region{static_cast<char*>(taken), static_cast<char*>(taken) + bytes, static_cast<char*>(taken) + bytes};
        const auto by_address = [](const Region& a, const Region& b) { return a.begin < b.begin; };
        regions.insert(std::upper_bound(regions.begin(), regions.end(), region, by_address), region);
        large.give_back(region.begin, bytes);
        return true;
      }
    }
    return false;
  }

  // Where what was given out before begins in [begin, end); `end` if nothing was.
  char* used_in(char* begin, char* end) const {
    for (const Region& region : regions)
      if (region.used < std::min(region.end, end) && begin < region.end) return std::max(begin, region.used);
    return end;
  }

  void check_limit(const char* op, std::size_t bytes, Category category) const {
    // Not require(): the report is text that only a failure should pay for.
    if (category != Category::disk && options.limit != 0 && (bytes > options.limit || stats.total > options.limit - bytes))
      fail(op, bytes, " bytes of ", name(category), " would exceed the limit of ", options.limit, " bytes (",
           human_bytes(static_cast<double>(options.limit)), ")\n", report());
  }
  void count(std::size_t bytes, Category category) {
    const auto i = static_cast<std::size_t>(category);
    stats.current[i] += bytes;
    stats.peak[i] = std::max(stats.peak[i], stats.current[i]);
    if (category == Category::disk) return;
    stats.total += bytes;
    stats.peak_total = std::max(stats.peak_total, stats.total);
  }
  void discount(std::size_t bytes, Category category) {
    stats.current[static_cast<std::size_t>(category)] -= bytes;
    if (category != Category::disk) stats.total -= bytes;
  }

  void empty_bins() {
    for (std::size_t i = 0; i < bins.size(); ++i) {
      for (char* block : bins[i]) small.give_back(block, i * alignment);
      bins[i].clear();
    }
  }

  void free_slabs() {
    empty_bins();
    std::erase_if(slabs, [this](char* slab) {
      if (!small.take_at(slab, slab_bytes)) return false;
      large.give_back(slab, slab_bytes);
      return true;
    });
  }

  std::string report() const {
    std::ostringstream text;
    for (int i = 0; i < category_count; ++i)
      if (static_cast<Category>(i) != Category::disk || stats.peak[i] > 0)
        text << name(static_cast<Category>(i)) << ": " << human_bytes(static_cast<double>(stats.current[i])) << ", peak "
             << human_bytes(static_cast<double>(stats.peak[i])) << '\n';
    text << "total: " << human_bytes(static_cast<double>(stats.total)) << ", peak "
         << human_bytes(static_cast<double>(stats.peak_total)) << ", reserved "
         << human_bytes(static_cast<double>(stats.reserved)) << " in " << stats.system_allocations << " requests\n";
    return text.str();
  }

  MemoryOptions options;
  std::optional<HostRegions> host;
  mutable std::mutex mutex;
  MemoryStats stats;
  FreeRanges large, small;               // `small` within the slabs
  std::vector<std::vector<char*>> bins;  // small blocks, by size / alignment
  std::vector<char*> slabs;
  std::vector<Region> regions;  // by address
};

Memory::Memory(MemoryOptions options) : impl_(std::make_unique<Impl>(options)) {}
Memory::~Memory() = default;

void* Memory::allocate(std::size_t bytes, Category category) {
  if (bytes == 0) return nullptr;
  require(category != Category::disk, "Memory::allocate", "has no memory on disk");
  const std::lock_guard lock(impl_->mutex);
  impl_->check_limit("Memory::allocate", bytes, category);
  // Rounding up would wrap around near the end of the address space; no machine has that much.
  void* block = bytes < (std::size_t{1} << 62) ? impl_->take(round_up(bytes, alignment), category) : nullptr;
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
  MemoryStats stats = impl_->stats;
  for (const auto& region : impl_->regions) stats.touched += static_cast<std::size_t>(region.end - region.used);
  return stats;
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
