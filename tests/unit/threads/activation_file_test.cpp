// Activations that wait on disk: read ahead by a thread, in room that is used again.
#include <chorus/tensor/autograd/activation_file.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>

namespace chorus {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct OffloadFolder {
  fs::path path = fs::temp_directory_path() / ("chorus_offload." + std::to_string(getpid()));
  OffloadFolder() { fs::create_directories(path); }
  ~OffloadFolder() { fs::remove_all(path); }
};

/// Tensors of some shapes, and what was in them.
struct Batch {
  std::vector<Tensor> tensors;
  std::vector<std::vector<double>> values;
  Batch(Context& context, const std::vector<Shape>& shapes, double phase) {
    for (const auto& shape : shapes) {
      std::vector<double> some(static_cast<std::size_t>(shape.numel()));
      for (std::size_t i = 0; i < some.size(); ++i) some[i] = std::sin(phase + static_cast<double>(i));
      tensors.push_back(Tensor::of(context, shape, some));
      values.push_back(std::move(some));
    }
  }
  std::vector<Tensor*> handles() {
    std::vector<Tensor*> all;
    for (auto& tensor : tensors) all.push_back(&tensor);
    return all;
  }
  void expect_back() const {
    for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_EQ(tensors[i].to_doubles(), values[i]);
  }
};

std::vector<Batch> some_batches(Context& context) {
  std::vector<Batch> batches;
  for (int i = 0; i < 6; ++i) batches.emplace_back(context, std::vector<Shape>{{70 + 10 * i, 13}, {5, 70}, {0, 4}}, i);
  return batches;
}
constexpr std::uint64_t all_bytes = 8 * (13 * (6 * 70 + 10 * 15) + 6 * 5 * 70);

TEST(ActivationFiles, GiveBackWhatWasWrittenInRoomThatIsUsedAgain) {
  const OffloadFolder folder;
  const auto file = std::make_shared<ActivationFile>(folder.path);
  EXPECT_TRUE(fs::is_empty(folder.path)) << "it has no name, so nothing is left of a program that is killed";
  Context context;
  for (int step = 0; step < 3; ++step) {
    auto batches = some_batches(context);
    const std::size_t all = context.memory.stats().total;
    std::vector<std::unique_ptr<OffloadedTensors>> offloaded;
    for (auto& batch : batches) offloaded.push_back(std::make_unique<OffloadedTensors>(file, context, batch.handles()));
    EXPECT_EQ(file->waiting(), all_bytes);
    EXPECT_EQ(context.memory.stats().total, 0u);
    for (std::size_t i = batches.size(); i-- > 0;) {
      offloaded[i]->bring_back(batches[i].handles());
      batches[i].expect_back();
    }
    EXPECT_EQ(context.memory.stats().total, all);
    EXPECT_EQ(file->waiting(), 0u);
    EXPECT_EQ(file->bytes(), all_bytes) << "step " << step;
  }
}

TEST(ActivationFiles, BringTensorsBackInAnyOrderOrNever) {
  const OffloadFolder folder;
  const auto file = std::make_shared<ActivationFile>(folder.path);
  Context context;
  for (int step = 0; step < 4; ++step) {
    auto batches = some_batches(context);
    std::vector<std::unique_ptr<OffloadedTensors>> offloaded;
    for (auto& batch : batches) offloaded.push_back(std::make_unique<OffloadedTensors>(file, context, batch.handles()));
    for (const std::size_t i : {3u, 0u, 5u, 1u}) {  // the others go while they are read ahead, or are never read
      offloaded[i]->bring_back(batches[i].handles());
      batches[i].expect_back();
    }
    offloaded.clear();
    EXPECT_EQ(file->waiting(), 0u);
  }
  EXPECT_EQ(file->bytes(), all_bytes);
}

TEST(ActivationFiles, KeepLayouts) {
  const OffloadFolder folder;
  const auto file = std::make_shared<ActivationFile>(folder.path);
  Context context;
  Tensor x = Tensor::full(context, {3, 2}, DType::bf16, 1.5);
  x.set_layout(std::make_shared<const Layout>(Layout{{"tp", placement::shard(0), 6, 1}}));
  OffloadedTensors offloaded(file, context, {&x});
  EXPECT_FALSE(x);
  offloaded.bring_back({&x});
  ASSERT_TRUE(x && x.layout());
  EXPECT_EQ(x.dtype(), DType::bf16);
  EXPECT_EQ(*x.layout(), (Layout{{"tp", placement::shard(0), 6, 1}}));
  EXPECT_EQ(x.to_doubles(), std::vector<double>(6, 1.5));
}

TEST(ActivationFiles, NameTheFolderThatIsMissing) {
  try {
    const ActivationFile file("/nowhere/at/all");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot create /nowhere/at/all/activations."));
  }
}

}  // namespace
}  // namespace chorus
