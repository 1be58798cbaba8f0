// A contiguous row-major array in the memory of one rank. Handles share storage; views exist along dim 0 only.
#pragma once
#include <chorus/tensor/context.h>
#include <chorus/tensor/dtype.h>
#include <chorus/tensor/layout.h>
#include <chorus/tensor/shape.h>

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace chorus {

struct Node;
class MappedFile;

class Storage;

/// Knows where the bytes of a storage are while it has no memory: on other ranks, or underway.
class Keeper {
 public:
  virtual ~Keeper() = default;
  /// Gives it memory and its bytes. Called by the thread that computes, when an op reads a tensor.
  virtual void fetch(Storage& storage) = 0;
};

/// Bytes owned by a context's memory, given back when the last handle goes.
class Storage {
 public:
  Storage(Context& context, std::size_t bytes, Category category, bool with_memory = true);
  /// The bytes of a file, counted as `Category::disk`.
  Storage(Context& context, std::unique_ptr<MappedFile> file);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  /// Gives the memory back, while handles stay.
  void release();
  /// Takes over the memory of `other`, of as many bytes and the same category; has none before.
  void take(Storage& other);

  Context& context;
  void* data;
  std::size_t bytes;
  Category category;
  Keeper* keeper = nullptr;          ///< null: data is always there
  std::unique_ptr<MappedFile> file;  ///< where data lies if not in memory
};

class Tensor {
 public:
  Tensor() = default;
  /// Uninitialised. Tensors of rank 2 and more get `padded_rows` rows of storage (see there).
  static Tensor empty(Context&, const Shape&, DType, Category = Category::activations);
  static Tensor zeros(Context&, const Shape&, DType, Category = Category::activations);
  /// Of this shape, but without memory: what checks of shapes and layouts need of a parameter.
  static Tensor unbacked(Context&, const Shape&, DType);
  /// A flat array whose storage gets its memory later (Storage::take).
  static Tensor released(Context&, const Shape&, DType, Category);
  /// A flat array of zeros whose storage is a file without a name in `folder` (core/mapped_file.h), on the CPU. Throws where
  /// the folder isn't there or its disk has too little room.
  static Tensor in_file(Context&, const Shape&, DType, const std::filesystem::path& folder, const std::string& name);
  static Tensor full(Context&, const Shape&, DType, double value, Category = Category::activations);
  /// Copies host values; T must be the element type of a DType.
  template <class T>
  static Tensor of(Context& context, const Shape& shape, std::span<const T> values, Category category = Category::activations) {
    Tensor t = empty(context, shape, dtype_of<T>, category);
    require(static_cast<std::int64_t>(values.size()) == shape.numel(), "Tensor::of", values.size(), " values for shape ",
            shape);
    t.copy_from_host(values.data());
    return t;
  }
  template <class T>
  static Tensor of(Context& context, const Shape& shape, const std::vector<T>& values,
                   Category category = Category::activations) {
    return of(context, shape, std::span<const T>(values), category);
  }

  explicit operator bool() const { return storage_ != nullptr; }
  Context& context() const { return storage_->context; }
  const Shape& shape() const { return shape_; }
  std::int64_t size(int dim) const { return shape_[dim]; }
  int rank() const { return shape_.rank(); }
  std::int64_t numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }

  /// All dims but the last flattened: a [.., n] tensor seen as rows x cols. Rank 0 and 1 are one row.
  std::int64_t cols() const { return rank() ? shape_[-1] : 1; }
  std::int64_t rows() const;

  void* data() const {
    if (!storage_) return nullptr;
    if (storage_->data) [[likely]]
      return static_cast<char*>(storage_->data) + offset_;
    return fetched();
  }
  Storage& storage() const { return *storage_; }
  template <class T>
  T* as() const {
    require(dtype_ == dtype_of<std::remove_const_t<T>>, "Tensor::as", "is ", dtype_, ", asked for ",
            dtype_of<std::remove_const_t<T>>);
    return static_cast<T*>(data());
  }
  /// Elements as a span; CPU only.
  template <class T>
  std::span<T> span() const {
    return {as<T>(), static_cast<std::size_t>(numel())};
  }

  /// [begin, end) of dim 0, sharing storage; outside autograd.
  Tensor rows_view(std::int64_t begin, std::int64_t end) const;
  /// Same elements under another shape of equal size, sharing storage and autograd node.
  Tensor reshaped(const Shape& shape) const;
  /// Elements [first, first + shape.numel()) as a tensor of its own shape, sharing storage; outside autograd.
  Tensor flat_view(std::int64_t first, const Shape& shape) const;
  /// A copy with storage of its own, outside autograd.
  Tensor clone(Category = Category::activations) const;
  /// The same values outside autograd.
  Tensor detach() const;
  /// Whether no other handle shares the storage, so that its owner may write into it.
  bool unshared() const { return storage_.use_count() == 1; }
  /// Of elements in a file: they go from memory to the disk until somebody touches them again. Others stay where they are.
  void let_go() const;
  /// Of elements in a file: begins to read them.
  void expect() const;
  /// Bytes of storage from this tensor's first element on.
  std::size_t capacity() const { return storage_ ? storage_->bytes - offset_ : 0; }

  void copy_from(const Tensor& other) const;  ///< same shape and type
  void copy_from_host(const void* source) const;
  void copy_to_host(void* target) const;
  void fill(double value) const;
  double item() const;                     ///< the value of a one-element floating tensor
  std::vector<double> to_doubles() const;  ///< any type, for tests and reports

  const std::shared_ptr<Node>& node() const { return node_; }
  void set_node(std::shared_ptr<Node> node) { node_ = std::move(node); }
  bool requires_grad() const { return node_ != nullptr; }

  /// How it lies on a mesh; null where nothing was said, as on one rank and for constants. Ops derive their result's from their
  /// inputs' (layout_rules.h).
  const std::shared_ptr<const Layout>& layout() const { return layout_; }
  void set_layout(std::shared_ptr<const Layout> layout) { layout_ = std::move(layout); }

 private:
  void* fetched() const;
  std::shared_ptr<Storage> storage_;
  std::size_t offset_ = 0;  // bytes
  Shape shape_;
  DType dtype_ = DType::f32;
  std::shared_ptr<Node> node_;
  std::shared_ptr<const Layout> layout_;
};

/// Of the same shape and type, in the same context; its values are unspecified.
Tensor empty_like(const Tensor& x);

std::ostream& operator<<(std::ostream& out, const Tensor& t);  ///< "f32 (3, 4)"

/// Rows that a matrix of `rows` rows gets storage for. Matrix products round their row count up to it, so that batches
/// of every length need few distinct kernels (rows beyond the end hold unspecified values that nobody reads).
/// Multiples of 32 up to 512, then of a sixteenth of the next power of two.
std::int64_t padded_rows(std::int64_t rows);

}  // namespace chorus
