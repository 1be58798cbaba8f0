// An HDF5 file driver that keeps what HDF5 itself writes (a file's structure) in memory, and nothing for the holes where
// tensors go. Included by hdf5.cpp only.
#pragma once
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <new>

namespace chorus {

/// The pages HDF5 has written, by page number; bytes never written read as zero.
struct Hdf5Layout {
  static constexpr haddr_t page_bytes = 4096;
  std::map<haddr_t, std::array<char, page_bytes>> pages;
  haddr_t bytes = 0;  ///< of the file

  /// Calls f(page, first byte in it, bytes, bytes done before) for each page of [position, position + size).
  template <class F>
  static void for_each_page(haddr_t position, std::size_t size, F&& f) {
    for (std::size_t done = 0; done < size;) {
      const haddr_t begin = (position + done) % page_bytes;
      const std::size_t n = std::min<std::size_t>(page_bytes - begin, size - done);
      f((position + done) / page_bytes, begin, n, done);
      done += n;
    }
  }
  void read(haddr_t position, std::size_t size, char* into) const {
    for_each_page(position, size, [&](haddr_t page, haddr_t begin, std::size_t n, std::size_t done) {
      if (const auto found = pages.find(page); found != pages.end()) {
        std::memcpy(into + done, found->second.data() + begin, n);
      } else {
        std::memset(into + done, 0, n);
      }
    });
  }
  void write(haddr_t position, std::size_t size, const char* from) {
    for_each_page(position, size, [&](haddr_t page, haddr_t begin, std::size_t n, std::size_t done) {
      std::memcpy(pages.try_emplace(page).first->second.data() + begin, from + done, n);
    });
    bytes = std::max(bytes, position + size);
  }

  /// The driver as a class that HDF5 can register. Its property in an access list is a `Hdf5Layout*`.
  static H5FD_class_t driver();
};

namespace detail {

/// HDF5's view of one open layout.
struct Hdf5LayoutFile {
  H5FD_t base;  // first, by HDF5's contract
  Hdf5Layout* layout;
  haddr_t end_of_addresses;
};
inline Hdf5LayoutFile* layout_file(H5FD_t* file) { return reinterpret_cast<Hdf5LayoutFile*>(file); }
inline const Hdf5LayoutFile* layout_file(const H5FD_t* file) { return reinterpret_cast<const Hdf5LayoutFile*>(file); }

}  // namespace detail

inline H5FD_class_t Hdf5Layout::driver() {
  using detail::Hdf5LayoutFile, detail::layout_file;
  // Generic, because later versions of HDF5 have members that 1.10 lacks.
  const auto versioned = [](auto c) {
    if constexpr (requires { c.version; }) c.version = 1;
    if constexpr (requires { c.value; }) c.value = static_cast<decltype(c.value)>(512);  // the range for private drivers
    return c;
  };
  H5FD_class_t c = versioned(H5FD_class_t{});
  c.name = "chorus_layout";
  c.maxaddr = (haddr_t{1} << 62) - 1;
  c.fc_degree = H5F_CLOSE_STRONG;
  c.fapl_size = sizeof(Hdf5Layout*);
  c.open = [](const char*, unsigned, hid_t access, haddr_t) -> H5FD_t* {
    const auto* layout = static_cast<Hdf5Layout* const*>(H5Pget_driver_info(access));
    auto* file = layout ? new (std::nothrow) Hdf5LayoutFile{{}, *layout, 0} : nullptr;
    return file ? &file->base : nullptr;
  };
  c.close = [](H5FD_t* file) -> herr_t {
    delete layout_file(file);
    return 0;
  };
  c.query = [](const H5FD_t*, unsigned long* flags) -> herr_t {
    if (flags) *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_ACCUMULATE_METADATA;
    return 0;
  };
  c.get_eoa = [](const H5FD_t* file, H5FD_mem_t) { return layout_file(file)->end_of_addresses; };
  c.set_eoa = [](H5FD_t* file, H5FD_mem_t, haddr_t end) -> herr_t {
    layout_file(file)->end_of_addresses = end;
    return 0;
  };
  c.get_eof = [](const H5FD_t* file, H5FD_mem_t) { return layout_file(file)->layout->bytes; };
  c.read = [](H5FD_t* file, H5FD_mem_t, hid_t, haddr_t position, std::size_t size, void* into) -> herr_t {
    layout_file(file)->layout->read(position, size, static_cast<char*>(into));
    return 0;
  };
  c.write = [](H5FD_t* file, H5FD_mem_t, hid_t, haddr_t position, std::size_t size, const void* from) -> herr_t {
    try {
      layout_file(file)->layout->write(position, size, static_cast<const char*>(from));
      return 0;
    } catch (const std::bad_alloc&) {
      return -1;
    }
  };
  c.truncate = [](H5FD_t* file, hid_t, hbool_t) -> herr_t {
    layout_file(file)->layout->bytes = layout_file(file)->end_of_addresses;
    return 0;
  };
  const H5FD_mem_t kinds[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(kinds), std::end(kinds), c.fl_map);
  return c;
}

}  // namespace chorus
