#include <chorus/core/posix_file.h>
#include <chorus/io/checkpoint.h>
#include <chorus/io/checkpoint/folder.h>
#include <chorus/io/hdf5.h>
#include <gmock/gmock.h>
#include <unit/io/files_fixture.h>

#include <chrono>
#include <cmath>
#include <thread>

namespace chorus {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  std::vector<CheckpointEntry> every_kind() {
    std::vector<CheckpointEntry> entries;
    const std::vector<Shape> shapes = {{}, {1}, {0}, {5}, {0, 3}, {7, 3}, {2, 3, 4}, {2, 1, 3, 2}, {150, 200}};
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8}) {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const std::string parameter = std::string(name(dtype)) + ".t" + std::to_string(i);
        entries.push_back({checkpoint_path("model", parameter), ramp(context, shapes[i], dtype)});
      }
    }
    return entries;
  }

  const TemporaryFolder temporary;
  const fs::path directory = temporary.path / "run" / "checkpoints";
  Context context;
};

TEST_F(CheckpointTest, DotsOfAParameterBecomeGroups) {
  EXPECT_EQ(checkpoint_path("optimizer/exp_avg", "llm.layers.0.attention.q.weight"),
            "optimizer/exp_avg/llm/layers/0/attention/q/weight");
}

TEST_F(CheckpointTest, EverythingComesBackBitForBit) {
  const auto entries = every_kind();
  const json state = {
      {"seed", 18446744073709551615u}, {"lr", 0.1}, {"cursor", {{"epoch", 3}, {"sample", -1}}}, {"phase", "main"}};
  const std::string config = "[model]\nname = \"größer\"\n";
  const SavedCheckpoint saved = save_checkpoint(directory, 120, entries, state, config);
  EXPECT_EQ(saved.folder, directory / "step-000120");
  EXPECT_THAT(saved.warnings, ::testing::IsEmpty());

  const Checkpoint checkpoint(saved.folder);
  EXPECT_THAT(checkpoint.verify(), ::testing::IsEmpty());
  EXPECT_EQ(checkpoint.manifest().step, 120u);
  EXPECT_EQ(checkpoint.manifest().world, 1);
  EXPECT_EQ(checkpoint.manifest().config, config);
  EXPECT_EQ(checkpoint.manifest().state, state);
  EXPECT_EQ(checkpoint.manifest().tensors.size(), entries.size());
  for (const auto& [path, tensor, part, later] : entries) {
    expect_same_bytes(checkpoint.read(context, path), tensor, path);
    const Tensor into = Tensor::empty(context, tensor.shape(), tensor.dtype());
    checkpoint.read(path, into);
    expect_same_bytes(into, tensor, path);
  }
  EXPECT_TRUE(checkpoint.contains("model/f32/t0"));
  EXPECT_FALSE(checkpoint.contains("model/f32"));
}

TEST_F(CheckpointTest, AnyHdf5ReaderSeesWholeTensorsAlsoAfterAMove) {
  const auto entries = every_kind();
  const fs::path moved = temporary.path / "elsewhere";
  fs::rename(save_checkpoint(directory, 1, entries, {}, "").folder, moved);
  const Hdf5File file(moved / "checkpoint.h5", Checkpoint(moved).seals());
  EXPECT_EQ(file.datasets().size(), entries.size());
  for (const auto& [path, tensor, part, later] : entries) expect_same_bytes(file.read(context, path), tensor, path);
}

TEST_F(CheckpointTest, EqualStatesGiveEqualCheckpoints) {
  const auto a = save_checkpoint(temporary.path / "a", 7, every_kind(), {{"x", 1}}, "c");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5 counts seconds: nothing may carry the time
  const auto b = save_checkpoint(temporary.path / "b", 7, every_kind(), {{"x", 1}}, "c");
  for (const char* name : {"manifest.json", "checkpoint.h5", "rank-0000.h5"}) {
    EXPECT_TRUE(read_file(a.folder / name) == read_file(b.folder / name)) << name << " differs";
  }
}

// Three ranks hold rows, columns and a corner of one tensor; boxes that cut across the chunks are read back.
TEST_F(CheckpointTest, ChunksOfSeveralRanksMakeOneTensor) {
  const Tensor whole = ramp(context, {6, 8, 3}, DType::f32), other = ramp(context, {4}, DType::i64);
  const auto box = [&](const Shape& offset, const Shape& shape) {
    const Tensor part = Tensor::empty(context, shape, DType::f32);
    auto* into = static_cast<std::uint32_t*>(part.data());
    const auto* from = static_cast<const std::uint32_t*>(whole.data());
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      for (std::int64_t j = 0; j < shape[1]; ++j) {
        for (std::int64_t k = 0; k < shape[2]; ++k) *into++ = from[((offset[0] + i) * 8 + offset[1] + j) * 3 + offset[2] + k];
      }
    }
    return part;
  };
  const auto entry = [&](const Shape& offset, const Shape& shape) {
    return CheckpointEntry{"w", box(offset, shape), CheckpointEntry::Part{offset, {6, 8, 3}}};
  };
  const fs::path folder = temporary_folder(directory, 5);
  fs::create_directories(folder);
  const std::vector<RankFile> ranks = {
      write_rank_file(folder, 0, std::vector{entry({0, 0, 0}, {2, 8, 3}), entry({2, 0, 0}, {4, 3, 3})}),
      write_rank_file(folder, 1, std::vector{entry({2, 3, 0}, {4, 5, 2})}),
      write_rank_file(folder, 2, std::vector{entry({2, 3, 2}, {4, 5, 1}), CheckpointEntry{"other", other}}),
  };
  Manifest about;
  about.step = 5;
  about.world = 3;
  const Checkpoint checkpoint(commit_checkpoint(folder, directory, about, ranks));
  EXPECT_THAT(checkpoint.verify(), ::testing::IsEmpty());
  EXPECT_EQ(checkpoint.manifest().world, 3);
  expect_same_bytes(checkpoint.read(context, "w"), whole, "w");
  expect_same_bytes(checkpoint.read(context, "other"), other, "other");
  expect_same_bytes(Hdf5File(checkpoint.folder() / "checkpoint.h5", checkpoint.seals()).read(context, "w"), whole, "virtual w");
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j < 8; ++j) {
      const Shape offset = {i, j, j % 3}, shape = {6 - i, (8 - j + 1) / 2, 3 - j % 3};
      const Tensor into = Tensor::empty(context, shape, DType::f32);
      checkpoint.read("w", into, {.offset = offset});
      std::ostringstream what;
      what << shape << " at " << offset;
      expect_same_bytes(into, box(offset, shape), what.str());
    }
  }
}

TEST_F(CheckpointTest, ChunksMustCoverATensorExactlyOnce) {
  const auto save = [&](std::vector<CheckpointEntry> entries) {
    return error_of([&] { save_checkpoint(directory, 1, entries, {}, ""); });
  };
  const auto rows = [&](std::int64_t first, std::int64_t count) {
    return CheckpointEntry{"w", ramp(context, {count, 2}, DType::f32), CheckpointEntry::Part{{first, 0}, {4, 2}}};
  };
  EXPECT_THAT(save({rows(0, 2)}), AllOf(HasSubstr("w: 1 chunks hold 4 of the 8 elements")));
  EXPECT_THAT(save({rows(0, 3), rows(2, 2)}), AllOf(HasSubstr("w: "), HasSubstr("overlap")));
  EXPECT_THAT(save({rows(0, 3), rows(3, 2)}), AllOf(HasSubstr("w: "), HasSubstr("doesn't fit")));
  EXPECT_EQ(save({rows(0, 3), rows(3, 1)}), "no error");
  EXPECT_THAT(save({{"a", ramp(context, {2}, DType::f32)}, {"a", ramp(context, {2}, DType::f32)}}), HasSubstr("a of"));
  for (const char* path : {"", "/a", "a/", "a//b", "../a", "a/./b", "a@0"}) {
    EXPECT_THAT(save({{path, ramp(context, {2}, DType::f32)}}), HasSubstr("can't be a path")) << path;
  }
  EXPECT_THAT(save({{"a", Tensor()}}), HasSubstr("no tensor for a"));
}

TEST_F(CheckpointTest, ReadErrorsSayWhatIsThereAndWhatWasWanted) {
  const std::vector<CheckpointEntry> entries = {{"model/q/weight", ramp(context, {4, 2}, DType::f32)},
                                                {"model/n", ramp(context, {3}, DType::i32)}};
  const Checkpoint checkpoint(save_checkpoint(directory, 1, entries, {}, "").folder);
  const auto read = [&](const char* path, const Shape& shape, DType dtype, const ReadOptions& options = {}) {
    const Tensor into = Tensor::zeros(context, shape, dtype);
    return error_of([&] { checkpoint.read(path, into, options); });
  };
  EXPECT_THAT(
      read("model/q/wieght", {4, 2}, DType::f32),
      AllOf(HasSubstr("step-000001"), HasSubstr("no tensor 'model/q/wieght'"), HasSubstr("nearest is 'model/q/weight'")));
  EXPECT_THAT(read("model/q/weight", {2, 4}, DType::f32),
              AllOf(HasSubstr("step-000001"), HasSubstr("model/q/weight is f32 (4, 2)"), HasSubstr("wanted as f32 (2, 4)"),
                    HasSubstr("shapes differ")));
  EXPECT_THAT(read("model/q/weight", {4, 2}, DType::bf16),
              AllOf(HasSubstr("wanted as bf16 (4, 2)"), HasSubstr("dtypes differ")));
  EXPECT_THAT(read("model/n", {3}, DType::f32, {.convert = true}), HasSubstr("only floating types"));
  EXPECT_THAT(read("model/q/weight", {2, 2}, DType::f32, {.offset = Shape{3, 0}}), HasSubstr("the box lies outside"));
  EXPECT_THAT(read("model/q/weight", {2}, DType::f32, {.offset = Shape{0}}), HasSubstr("the box lies outside"));
  EXPECT_THAT(error_of([&] { checkpoint.read("model/n", Tensor()); }), HasSubstr("no tensor to fill"));
}

TEST_F(CheckpointTest, FloatingTypesAreConvertedWhenAsked) {
  const std::vector<double> values = {1.0, -2.5, 1e-3, 3.14159265358979, 65504.0, -0.0};
  const std::vector<CheckpointEntry> entries = {{"x", Tensor::of(context, {2, 3}, values)}};
  const Checkpoint checkpoint(save_checkpoint(directory, 1, entries, {}, "").folder);
  const Tensor f32 = Tensor::empty(context, {2, 3}, DType::f32), half = Tensor::empty(context, {2, 3}, DType::bf16);
  checkpoint.read("x", f32, {.convert = true});
  checkpoint.read("x", half, {.convert = true});
  const Tensor row = Tensor::empty(context, {1, 2}, DType::f32);
  checkpoint.read("x", row, {.convert = true, .offset = Shape{1, 1}});
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(f32.span<float>()[i], static_cast<float>(values[i])) << i;
    EXPECT_EQ(half.span<bf16>()[i].bits, bf16(values[i]).bits) << i;
  }
  EXPECT_EQ(row.span<float>()[0], 65504.0f);
  EXPECT_TRUE(std::signbit(row.span<float>()[1]));
}

TEST_F(CheckpointTest, StateThatJsonWouldChangeIsRefused) {
  EXPECT_THAT(error_of([&] { save_checkpoint(directory, 1, {}, {{"best", NAN}}, ""); }), HasSubstr("NaN"));
  EXPECT_THAT(error_of([&] { save_checkpoint(directory, 1, {}, {}, "\xff"); }), HasSubstr("JSON"));
  EXPECT_TRUE(fs::is_empty(directory));
}

TEST_F(CheckpointTest, TheNewestIsFoundAndNoneIsNothing) {
  EXPECT_FALSE(find_checkpoint(directory, {}));
  const auto save = [&](std::uint64_t step) {
    save_checkpoint(directory, step, std::vector<CheckpointEntry>{{"x", Tensor::full(context, {3}, DType::f64, double(step))}},
                    {}, "");
  };
  for (const std::uint64_t step : {20u, 1'000'000u, 999'999u}) save(step);
  fs::create_directories(directory / "step-12");
  fs::create_directories(directory / "step-abcdef");
  write_file(directory / "step-9999999", "a file");
  std::vector<std::string> reports;
  const auto found = find_checkpoint(directory, [&](const std::string& text) { reports.push_back(text); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->manifest().step, 1'000'000u);
  EXPECT_EQ(found->read(context, "x").span<double>()[0], 1e6);
  EXPECT_THAT(reports, ::testing::IsEmpty());
}

TEST_F(CheckpointTest, AStepCanBeSavedAgain) {
  for (const double value : {1.0, 2.0, 3.0}) {
    const auto saved = save_checkpoint(
        directory, 4, std::vector<CheckpointEntry>{{"x", Tensor::full(context, {3}, DType::f64, value)}}, {}, "");
    EXPECT_THAT(saved.warnings, ::testing::IsEmpty());
    EXPECT_EQ(Checkpoint(saved.folder).read(context, "x").span<double>()[1], value);
    EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 1);
  }
}

TEST_F(CheckpointTest, RetentionKeepsTheNewestAndTheLatest) {
  const std::vector<CheckpointEntry> entries = {{"x", ramp(context, {10}, DType::f32)}};
  const auto steps = [&] {
    std::vector<std::uint64_t> found;
    for (const auto& folder : step_folders(directory)) found.push_back(folder.step);
    return found;
  };
  using Steps = std::vector<std::uint64_t>;
  for (std::uint64_t step = 1; step <= 5; ++step) save_checkpoint(directory, step, entries, {}, "", {.keep = 3});
  EXPECT_EQ(steps(), (Steps{5, 4, 3}));
  fs::resize_file(directory / "step-000004" / "rank-0000.h5", 10);  // no longer counts, and stays
  save_checkpoint(directory, 6, entries, {}, "", {.keep = 2});
  EXPECT_EQ(steps(), (Steps{6, 5, 4}));
  save_checkpoint(directory, 2, entries, {}, "", {.keep = 2});  // a run that went back
  EXPECT_EQ(steps(), (Steps{6, 5, 4, 2}));
  EXPECT_THAT(error_of([&] { save_checkpoint(directory, 7, entries, {}, "", {.keep = 1}); }), HasSubstr("keep is 1"));
}

}  // namespace
}  // namespace chorus
