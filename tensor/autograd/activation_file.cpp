#include <chorus/tensor/autograd/activation_file.h>

#include <algorithm>

namespace chorus {

std::uint64_t ActivationFile::take(std::uint64_t bytes) {
  used_ += bytes;
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [position, length] = *range;
    if (length < bytes) continue;
    free_.erase(range);
    if (length > bytes) free_.emplace(position + bytes, length - bytes);
    return position;
  }
  end_ += bytes;
  return end_ - bytes;
}

void ActivationFile::give_back(std::uint64_t position, std::uint64_t bytes) {
  if (bytes == 0) return;
  used_ -= bytes;
  auto range = free_.emplace(position, bytes).first;
  if (const auto after = std::next(range); after != free_.end() && position + bytes == after->first) {
    range->second += after->second;
    free_.erase(after);
  }
  if (range == free_.begin()) return;
  if (const auto before = std::prev(range); before->first + before->second == position) {
    before->second += range->second;
    free_.erase(range);
  }
}

OffloadedTensors::OffloadedTensors(std::shared_ptr<ActivationFile> file, Context& context, const std::vector<Tensor*>& tensors)
    : file_(std::move(file)), context_(context) {
  cpu(context, "activation offload");
  for (Tensor* tensor : tensors) {
    Tensor like = Tensor::unbacked(context, tensor->shape(), tensor->dtype());
    like.set_layout(tensor->layout());
    const std::uint64_t position = file_->take(tensor->bytes());
    places_.push_back({position, std::move(like)});
    file_->file_.write_at(tensor->data(), tensor->bytes(), position);
    *tensor = {};
  }
  file_->written_.push_back(this);
}

void OffloadedTensors::leave() {
  std::erase(file_->written_, this);
  for (const auto& place : places_) file_->give_back(place.position, place.like.bytes());
  places_.clear();
}

OffloadedTensors::~OffloadedTensors() {
  if (reading_.valid()) reading_.wait();  // it writes into memory of ours
  leave();
}

void OffloadedTensors::start_reading() {
  if (reading_.valid()) return;
  struct Read {
    void* to;
    std::size_t bytes;
    std::uint64_t position;
  };
  std::vector<Read> reads;
  for (auto& place : places_) {
    Tensor tensor = Tensor::empty(context_, place.like.shape(), place.like.dtype());
    tensor.set_layout(place.like.layout());
    place.like = std::move(tensor);
    reads.push_back({place.like.data(), place.like.bytes(), place.position});
  }
  reading_ = std::async(std::launch::async, [file = &file_->file_, reads = std::move(reads)] {
    for (const auto& read : reads) file->read(read.to, read.bytes, read.position);
  });
}

void OffloadedTensors::bring_back(const std::vector<Tensor*>& tensors) {
  require(tensors.size() == places_.size(), "activation offload", tensors.size(), " tensors are asked for, ", places_.size(),
          " were written");
  start_reading();
  {
    const Span span(context_.trace, "wait for activations");
    reading_.get();
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) *tensors[i] = places_[i].like;
  leave();
  if (!file_->written_.empty()) file_->written_.back()->start_reading();
}

}  // namespace chorus
