#include <chorus/core/posix_file.h>
#include <chorus/io/digest.h>
#include <chorus/io/hdf5.h>
#include <chorus/io/hdf5_layout.h>
#include <hdf5.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <set>
#include <utility>

namespace chorus {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored as they lie in memory");

constexpr std::size_t block_bytes = 4 << 20;  // digests and writes share a block while it is in the cache

/// Held during calls to HDF5: keeps it from printing, and threads from entering a build that isn't thread-safe (HDF5
/// is one per process, hence one lock per process).
class Quiet {
 public:
  Quiet() : lock_(mutex()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Quiet() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex one;
    return one;
  }
  std::scoped_lock<std::recursive_mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

/// HDF5's error stack, the cause first.
std::string error_stack() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned depth, const H5E_error2_t* error, void* into) -> herr_t {
        auto& out = *static_cast<std::string*>(into);
        if (depth < 4 && error->desc) out += (out.empty() ? "" : "; ") + std::string(error->desc);
        return 0;
      },
      &text);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.empty() ? "HDF5 gives no reason" : text;
}

/// Passes on what an HDF5 function returned, unless it failed.
template <class R>
R check(R result, const std::filesystem::path& file, const std::string& dataset, const char* action) {
  if (result < 0)
    fail("hdf5", "cannot ", action, ' ', dataset, dataset.empty() ? "" : " of ", file.string(), ": ", error_stack());
  return result;
}

/// Owns an HDF5 identifier.
class Id {
 public:
  Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Id() { reset(); }
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Id& operator=(Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  operator hid_t() const { return id_; }
  herr_t reset() { return id_ >= 0 ? close_(std::exchange(id_, -1)) : 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

hid_t stored_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return H5T_IEEE_F32LE;
    case DType::f64: return H5T_IEEE_F64LE;
    case DType::i32: return H5T_STD_I32LE;
    case DType::i64: return H5T_STD_I64LE;
    case DType::u8: return H5T_STD_U8LE;
    case DType::bf16: return H5T_STD_U16LE;
  }
  fail("hdf5", "unknown dtype");
}

Id make_space(const Shape& shape, const std::filesystem::path& file, const std::string& dataset) {
  std::vector<hsize_t> sizes;
  for (int d = 0; d < shape.rank(); ++d) sizes.push_back(static_cast<hsize_t>(shape[d]));
  const hid_t id = shape.rank() ? H5Screate_simple(shape.rank(), sizes.data(), nullptr) : H5Screate(H5S_SCALAR);
  return {check(id, file, dataset, "describe"), H5Sclose};
}

Id access_properties(const std::filesystem::path& file) {
  Id access(check(H5Pcreate(H5P_FILE_ACCESS), file, "", "open"), H5Pclose);
  // Our files are written once and privately, so a lock protects nothing, and some file systems have none.
  check(H5Pset_file_locking(access, false, true), file, "", "open");
  check(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), file, "", "open");
  // The 1.10 format: checksummed metadata, compact groups, virtual datasets.
  check(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_LATEST), file, "", "open");
  return access;
}

void tag_bf16(hid_t dataset, const std::filesystem::path& file, const std::string& path) {
  const Id type(check(H5Tcopy(H5T_C_S1), file, path, "tag"), H5Tclose);
  check(H5Tset_size(type, 4), file, path, "tag");
  check(H5Tset_strpad(type, H5T_STR_NULLPAD), file, path, "tag");
  const Id space(check(H5Screate(H5S_SCALAR), file, path, "tag"), H5Sclose);
  const Id attribute(check(H5Acreate2(dataset, "dtype", type, space, H5P_DEFAULT, H5P_DEFAULT), file, path, "tag"), H5Aclose);
  check(H5Awrite(attribute, type, "bf16"), file, path, "tag");
}

}  // namespace

struct Hdf5Writer::Impl {
  struct Part {
    Hdf5Extent extent;
    std::function<Tensor()> fetch;
  };
  std::filesystem::path path;
  Hdf5Layout layout;
  std::vector<Part> parts;
  Id driver{-1, H5FDunregister}, file{-1, H5Fclose};

  explicit Impl(std::filesystem::path target) : path(std::move(target)) {
    const H5FD_class_t driver_class = Hdf5Layout::driver();
    driver = Id(check(H5FDregister(&driver_class), path, "", "lay out"), H5FDunregister);
    const Id access = access_properties(path);
    Hdf5Layout* const into = &layout;
    check(H5Pset_driver(access, driver, &into), path, "", "lay out");
    // Large tensors start at a page, for readers that map the file.
    check(H5Pset_alignment(access, 16 * Hdf5Layout::page_bytes, Hdf5Layout::page_bytes), path, "", "lay out");
    const Id root(check(H5Pcreate(H5P_FILE_CREATE), path, "", "lay out"), H5Pclose);
    check(H5Pset_obj_track_times(root, false), path, "", "lay out");
    file = Id(check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, root, access), path, "", "lay out"), H5Fclose);
  }

  /// Equal tensors make equal bytes, so no object keeps the time of its creation: groups neither, which is why they are made
  /// here and not along with their datasets.
  void create_groups(const std::string& dataset) {
    const Id creation(check(H5Pcreate(H5P_GROUP_CREATE), path, dataset, "create"), H5Pclose);
    check(H5Pset_obj_track_times(creation, false), path, dataset, "create");
    for (auto end = dataset.find('/', 1); end != dataset.npos; end = dataset.find('/', end + 1)) {
      const std::string group = dataset.substr(0, end);
      if (check(H5Lexists(file, group.c_str(), H5P_DEFAULT), path, group, "look for") > 0) continue;
      const Id id(check(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT), path, group, "create"), H5Gclose);
    }
  }

  Id create_dataset(const Hdf5Dataset& dataset, hid_t space, hid_t creation) {
    create_groups(dataset.path);
    check(H5Pset_obj_track_times(creation, false), path, dataset.path, "create");
    Id id(check(H5Dcreate2(file, dataset.path.c_str(), stored_type(dataset.dtype), space, H5P_DEFAULT, creation, H5P_DEFAULT),
                path, dataset.path, "create"),
          H5Dclose);
    if (dataset.dtype == DType::bf16) tag_bf16(id, path, dataset.path);
    return id;
  }

  Hdf5FileRecord write(PosixFile& out);
};

Hdf5Writer::Hdf5Writer(std::filesystem::path path) {
  const Quiet quiet;
  impl_ = std::make_unique<Impl>(std::move(path));
}

Hdf5Writer::~Hdf5Writer() {
  const Quiet quiet;
  impl_.reset();
}

void Hdf5Writer::add(const std::string& path, const Tensor& tensor) {
  require(static_cast<bool>(tensor), "hdf5", "no tensor for ", path, " of ", impl_->path.string());
  add({path, tensor.shape(), tensor.dtype()}, [tensor = tensor.detach()] { return tensor; });
}

void Hdf5Writer::add(const Hdf5Dataset& dataset, std::function<Tensor()> fetch) {
  const Quiet quiet;
  const auto& [path, shape, dtype] = dataset;
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  const Id creation(check(H5Pcreate(H5P_DATASET_CREATE), impl_->path, path, "create"), H5Pclose);
  check(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), impl_->path, path, "create");
  check(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), impl_->path, path, "create");
  const Id space = make_space(shape, impl_->path, path);
  const Id id = impl_->create_dataset(dataset, space, creation);
  const haddr_t position = bytes ? H5Dget_offset(id) : 0;
  require(position != HADDR_UNDEF, "hdf5", "no place for ", path, " of ", impl_->path.string(), ": ", error_stack());
  impl_->parts.push_back({{path, position, bytes, ""}, std::move(fetch)});
}

void Hdf5Writer::add_virtual(const Hdf5Dataset& dataset, std::span<const Hdf5Source> sources) {
  const Quiet quiet;
  const auto& file = impl_->path;
  const Id creation(check(H5Pcreate(H5P_DATASET_CREATE), file, dataset.path, "create"), H5Pclose);
  const Id whole = make_space(dataset.shape, file, dataset.path);
  for (const Hdf5Source& source : sources) {
    const Id from = make_space(source.shape, file, source.dataset);
    const Id box = make_space(dataset.shape, file, dataset.path);
    if (dataset.shape.rank()) {
      std::vector<hsize_t> start, count;
      for (int d = 0; d < dataset.shape.rank(); ++d) {
        start.push_back(static_cast<hsize_t>(source.offset[d]));
        count.push_back(static_cast<hsize_t>(source.shape[d]));
      }
      if (source.shape.numel()) {
        check(H5Sselect_hyperslab(box, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr), file, dataset.path,
              "map");
      }
    }
    check(H5Pset_virtual(creation, box, source.file.c_str(), ('/' + source.dataset).c_str(), from), file, dataset.path, "map");
  }
  impl_->create_dataset(dataset, whole, creation);
}

Hdf5FileRecord Hdf5Writer::Impl::write(PosixFile& out) {
  Hdf5FileRecord record;
  record.bytes = layout.bytes;
  std::vector<Part*> order;
  for (auto& part : parts) {
    if (part.extent.bytes) {
      order.push_back(&part);
    } else {
      part.extent.digest = digest(nullptr, 0);
    }
  }
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->extent.position < b->extent.position; });

  Hasher all;
  std::uint64_t at = 0;
  std::vector<char> buffer;
  const auto put = [&](const char* data, std::size_t bytes, Hasher* own) {
    for (std::size_t done = 0; done < bytes; done += block_bytes) {
      const std::size_t n = std::min(block_bytes, bytes - done);
      all.update(data + done, n);
      if (own) own->update(data + done, n);
      out.write(data + done, n);
    }
    at += bytes;
  };
  const auto put_structure = [&](std::uint64_t end) {
    require(end >= at, "hdf5", "datasets of ", path.string(), " overlap at byte ", end);
    buffer.resize(end - at);
    layout.read(at, buffer.size(), buffer.data());
    put(buffer.data(), buffer.size(), nullptr);
  };
  for (Part* part : order) {
    put_structure(part->extent.position);
    const Tensor tensor = part->fetch();
    require(tensor && tensor.bytes() == part->extent.bytes, "hdf5", part->extent.path, " of ", path.string(), " is ", tensor,
            " when it is written; ", part->extent.bytes, " bytes were announced");
    const bool on_host = std::holds_alternative<Cpu>(tensor.context().device);
    std::unique_ptr<char[]> staged;
    if (!on_host) {
      staged = std::make_unique_for_overwrite<char[]>(tensor.bytes());
      tensor.copy_to_host(staged.get());
    }
    Hasher own;
    put(on_host ? static_cast<const char*>(tensor.data()) : staged.get(), tensor.bytes(), &own);
    part->extent.digest = own.hex();
  }
  put_structure(record.bytes);
  record.digest = all.hex();
  out.commit();
  for (auto& part : parts) record.extents.push_back(part.extent);
  return record;
}

Hdf5FileRecord Hdf5Writer::finish() {
  {
    const Quiet quiet;
    require(impl_->file >= 0, "hdf5", impl_->path.string(), " is finished already");
    check(impl_->file.reset(), impl_->path, "", "lay out");
  }
  PosixFile out = PosixFile::create(impl_->path, impl_->layout.bytes);
  try {
    return impl_->write(out);
  } catch (...) {
    std::error_code ignored;  // a part of a file is no file
    std::filesystem::remove(impl_->path, ignored);
    throw;
  }
}

namespace {

void check_seal(const std::filesystem::path& path, const Hdf5Seal& seal) {
  const PosixFile file = PosixFile::open(path);
  const std::uint64_t bytes = file.bytes();
  require(bytes == seal.bytes, "hdf5", path.string(), " has ", bytes, " bytes; ", seal.bytes, " were written");
  const std::string found = file_digest(file);
  require(found == seal.digest, "hdf5", path.string(),
          " is damaged, so HDF5 doesn't get to see it: the digest of its bytes is ", found, ", not ", seal.digest);
}

/// For opening what a file holds. Links into other files are not followed: HDF5 would open those unchecked.
Id stay_inside(const std::filesystem::path& file) {
  Id access(check(H5Pcreate(H5P_DATASET_ACCESS), file, "", "open"), H5Pclose);
  const auto refuse = [](const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) -> herr_t { return -1; };
  check(H5Pset_elink_cb(access, refuse, nullptr), file, "", "open");
  return access;
}

}  // namespace

struct Hdf5File::Impl {
  std::filesystem::path path;
  std::set<std::string> sealed;  ///< the names that virtual datasets may lead to
  Id file{-1, H5Fclose};

  Impl(std::filesystem::path source, std::span<const Hdf5Seal> seals) : path(std::move(source)) {
    bool own = false;
    for (const Hdf5Seal& seal : seals) {
      check_seal(path.parent_path() / seal.name, seal);
      sealed.insert(seal.name);
      own = own || seal.name == path.filename();
    }
    require(own, "hdf5", path.string(), " can't be opened without its digest: HDF5 crashes on some damaged files");
    const Quiet quiet;
    const Id access = access_properties(path);
    file = Id(check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), path, "", "open"), H5Fclose);
  }

  /// HDF5 itself opens the files that a virtual dataset leads to, so these must be among those that were checked.
  void check_sources(hid_t dataset, const std::string& name) const {
    const Id creation(check(H5Dget_create_plist(dataset), path, name, "inspect"), H5Pclose);
    if (check(H5Pget_layout(creation), path, name, "inspect") != H5D_VIRTUAL) return;
    std::size_t count = 0;
    check(H5Pget_virtual_count(creation, &count), path, name, "inspect");
    for (std::size_t i = 0; i < count; ++i) {
      const auto length = check(H5Pget_virtual_filename(creation, i, nullptr, 0), path, name, "inspect");
      std::string source(static_cast<std::size_t>(length) + 1, '\0');
      check(H5Pget_virtual_filename(creation, i, source.data(), source.size()), path, name, "inspect");
      source.pop_back();
      require(sealed.contains(source), "hdf5", name, " of ", path.string(), " lies in ", source,
              ", which can't be opened without its digest");
    }
  }

  Id open(const std::string& name) const {
    return {check(H5Dopen2(file, name.c_str(), stay_inside(path)), path, name, "open"), H5Dclose};
  }

  Hdf5Dataset describe(hid_t dataset, const std::string& name) const {
    const Id type(check(H5Dget_type(dataset), path, name, "inspect"), H5Tclose);
    const Id space(check(H5Dget_space(dataset), path, name, "inspect"), H5Sclose);
    const int rank = check(H5Sget_simple_extent_ndims(space), path, name, "inspect");
    require(rank <= Shape::max_rank, "hdf5", name, " of ", path.string(), " has ", rank, " dims; at most ", Shape::max_rank);
    std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
    check(H5Sget_simple_extent_dims(space, sizes.data(), nullptr), path, name, "inspect");
    Hdf5Dataset found{name, {}, DType::f32};
    for (const hsize_t size : sizes) found.shape.push_back(static_cast<std::int64_t>(size));
    for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64, DType::u8, DType::bf16}) {
      if (H5Tequal(type, stored_type(dtype)) <= 0) continue;
      if (dtype == DType::bf16 && H5Aexists(dataset, "dtype") <= 0) continue;
      found.dtype = dtype;
      return found;
    }
    fail("hdf5", name, " of ", path.string(),
         " is neither f32, f64, i32, i64, u8 nor bf16 (uint16 with an attribute `dtype`), ", "little-endian");
  }
};

Hdf5File::Hdf5File(std::filesystem::path path, std::span<const Hdf5Seal> seals)
    : impl_(std::make_unique<Impl>(std::move(path), seals)) {}

Hdf5File::~Hdf5File() {
  const Quiet quiet;
  impl_.reset();
}

std::vector<Hdf5Dataset> Hdf5File::datasets() const {
  const Quiet quiet;
  std::vector<std::string> names;
  // Generic in the link's description, whose type depends on the version of HDF5.
  const auto collect = [](hid_t, const char* name, const auto*, void* into) -> herr_t {
    static_cast<std::vector<std::string>*>(into)->emplace_back(name);
    return 0;
  };
  check(H5Lvisit(impl_->file, H5_INDEX_NAME, H5_ITER_INC, collect, &names), impl_->path, "", "list");
  std::sort(names.begin(), names.end());
  std::vector<Hdf5Dataset> found;
  const Id access = stay_inside(impl_->path);
  for (const auto& name : names) {
    const Id object(check(H5Oopen(impl_->file, name.c_str(), access), impl_->path, name, "open"), H5Oclose);
    if (H5Iget_type(object) == H5I_DATASET) found.push_back(impl_->describe(object, name));
  }
  return found;
}

Hdf5Dataset Hdf5File::dataset(const std::string& path) const {
  const Quiet quiet;
  return impl_->describe(impl_->open(path), path);
}

Tensor Hdf5File::read(Context& context, const std::string& path, Category category) const {
  const Quiet quiet;
  const Id id = impl_->open(path);
  impl_->check_sources(id, path);
  const Hdf5Dataset found = impl_->describe(id, path);
  const Tensor tensor = Tensor::empty(context, found.shape, found.dtype, category);
  const auto buffer = std::make_unique_for_overwrite<char[]>(tensor.bytes());
  check(H5Dread(id, stored_type(found.dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer.get()), impl_->path, path, "read");
  tensor.copy_from_host(buffer.get());
  return tensor;
}

}  // namespace chorus
