#include <chorus/core/mapped_file.h>
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/kernels/device_memory.h>
#include <chorus/tensor/tensor.h>

#include <cstring>
#include <utility>

namespace chorus {

Cpu cpu(const Context& context, const char* op) {
  require(std::holds_alternative<Cpu>(context.device), op, "has no kernel for CUDA tensors");
  return {};
}

Storage::Storage(Context& context, std::size_t bytes, Category category, bool with_memory)
    : context(context), data(nullptr), bytes(bytes), category(category) {
  if (with_memory)
    data = std::visit([&](auto device) { return kernel::allocate(device, context.memory, bytes, category); }, context.device);
}

Storage::Storage(Context& context, std::unique_ptr<MappedFile> mapped)
    : context(context), data(mapped->data()), bytes(mapped->bytes()), category(Category::disk), file(std::move(mapped)) {
  context.memory.charge(bytes, category);
}

Storage::~Storage() { release(); }

void Storage::release() {
  if (file) {
    context.memory.discharge(bytes, category);
    file.reset();
    data = nullptr;
    return;
  }
  std::visit([&](auto device) { kernel::free(device, context.memory, data, bytes, category); }, context.device);
  data = nullptr;
}

void Storage::take(Storage& other) {
  require(!data && other.bytes == bytes && other.category == category, "Storage::take", other.bytes, " bytes for ", bytes);
  std::swap(data, other.data);
}

std::int64_t padded_rows(std::int64_t rows) {
  std::int64_t step = 32;
  while (rows > 16 * step) step *= 2;
  return (rows + step - 1) / step * step;
}

Tensor Tensor::empty(Context& context, const Shape& shape, DType dtype, Category category) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  std::int64_t elements = shape.numel();
  if (shape.rank() >= 2 && shape[-1] > 0) elements = padded_rows(elements / shape[-1]) * shape[-1];
  t.storage_ = std::make_shared<Storage>(context, static_cast<std::size_t>(elements) * size_of(dtype), category);
  return t;
}

Tensor Tensor::unbacked(Context& context, const Shape& shape, DType dtype) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.storage_ = std::make_shared<Storage>(context, 0, Category::parameters);
  return t;
}

Tensor Tensor::released(Context& context, const Shape& shape, DType dtype, Category category) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  t.storage_ = std::make_shared<Storage>(context, bytes, category, false);
  return t;
}

Tensor Tensor::in_file(Context& context, const Shape& shape, DType dtype, const std::filesystem::path& folder,
                       const std::string& name) {
  cpu(context, "Tensor::in_file");
  Tensor t = released(context, shape, dtype, Category::disk);
  if (t.bytes() > 0) t.storage_ = std::make_shared<Storage>(context, std::make_unique<MappedFile>(folder, name, t.bytes()));
  return t;
}

Tensor Tensor::zeros(Context& context, const Shape& shape, DType dtype, Category category) {
  Tensor t = empty(context, shape, dtype, category);
  t.fill(0);
  return t;
}

Tensor Tensor::full(Context& context, const Shape& shape, DType dtype, double value, Category category) {
  Tensor t = empty(context, shape, dtype, category);
  t.fill(value);
  return t;
}

void* Tensor::fetched() const {
  if (storage_->keeper) storage_->keeper->fetch(*storage_);
  return storage_->data ? static_cast<char*>(storage_->data) + offset_ : nullptr;
}

std::int64_t Tensor::rows() const {
  std::int64_t n = 1;
  for (int d = 0; d + 1 < rank(); ++d) n *= shape_[d];
  return n;
}

void Tensor::let_go() const {
  if (storage_ && storage_->file) storage_->file->let_go(offset_, bytes());
}

void Tensor::expect() const {
  if (storage_ && storage_->file) storage_->file->expect(offset_, bytes());
}

Tensor Tensor::flat_view(std::int64_t first, const Shape& shape) const {
  require(first >= 0 && first + shape.numel() <= numel(), "flat_view", shape, " at element ", first, " of ", *this);
  Tensor t = detach();
  t.layout_ = nullptr;
  t.offset_ += static_cast<std::size_t>(first) * size_of(dtype_);
  t.shape_ = shape;
  return t;
}

Tensor Tensor::rows_view(std::int64_t begin, std::int64_t end) const {
  require(rank() >= 1 && 0 <= begin && begin <= end && end <= shape_[0], "rows_view", "[", begin, ", ", end, ") of ", *this);
  Shape shape = shape_;
  shape[0] = end - begin;
  return flat_view(shape_[0] ? begin * (numel() / shape_[0]) : 0, shape);
}

Tensor Tensor::reshaped(const Shape& shape) const {
  require(shape.numel() == numel(), "reshaped", *this, " to ", shape);
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::detach() const {
  Tensor t = *this;
  t.node_ = nullptr;
  return t;
}

Tensor Tensor::clone(Category category) const {
  Tensor t = empty(context(), shape_, dtype_, category);
  t.copy_from(*this);
  t.layout_ = layout_;
  return t;
}

void Tensor::copy_from(const Tensor& other) const {
  require(other.shape() == shape_ && other.dtype() == dtype_, "copy_from", other, " into ", *this);
  std::visit([&](auto device) { kernel::copy(device, other.data(), data(), bytes()); }, context().device);
}

void Tensor::copy_from_host(const void* source) const {
  std::visit([&](auto device) { kernel::copy_from_host(device, source, data(), bytes()); }, context().device);
}

void Tensor::copy_to_host(void* target) const {
  std::visit([&](auto device) { kernel::copy_to_host(device, data(), target, bytes()); }, context().device);
}

void Tensor::fill(double value) const {
  if (value == 0) return std::visit([&](auto device) { kernel::set_zero(device, data(), bytes()); }, context().device);
  dispatch<float, bf16, double, std::int32_t, std::int64_t, std::uint8_t>(dtype_, "fill", [&]<class T>() {
    const std::vector<T> values(static_cast<std::size_t>(numel()), static_cast<T>(value));
    copy_from_host(values.data());
  });
}

std::vector<double> Tensor::to_doubles() const {
  std::vector<double> out(static_cast<std::size_t>(numel()));
  dispatch<float, bf16, double, std::int32_t, std::int64_t, std::uint8_t>(dtype_, "to_doubles", [&]<class T>() {
    std::vector<T> values(out.size());
    copy_to_host(values.data());
    std::transform(values.begin(), values.end(), out.begin(), [](T v) { return static_cast<double>(v); });
  });
  return out;
}

double Tensor::item() const {
  require(numel() == 1, "item", "of ", *this, "; one element is needed");
  return to_doubles()[0];
}

Tensor empty_like(const Tensor& x) { return Tensor::empty(x.context(), x.shape(), x.dtype()); }

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t) return out << "no tensor";
  return out << t.dtype() << ' ' << t.shape();
}

}  // namespace chorus
