#include <chorus/core/posix_file.h>
#include <chorus/io/digest.h>
#include <chorus/io/hdf5.h>
#include <gmock/gmock.h>
#include <hdf5.h>
#include <unit/io/files_fixture.h>

namespace chorus {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Hdf5 : public ::testing::Test {
 protected:
  /// Of files as they lie there.
  std::vector<Hdf5Seal> seals(std::initializer_list<fs::path> paths) {
    std::vector<Hdf5Seal> all;
    for (const fs::path& path : paths) {
      const std::string bytes = read_file(path);
      all.push_back({path.filename(), bytes.size(), digest(bytes.data(), bytes.size())});
    }
    return all;
  }

  const TemporaryFolder temporary;
  const fs::path& folder = temporary.path;
  Context context;
};

TEST_F(Hdf5, EveryTypeAndShapeComesBack) {
  const std::vector<Shape> shapes = {{}, {1}, {0}, {7}, {0, 3}, {5, 3}, {2, 3, 4}, {2, 1, 3, 2}, {300, 200}};
  const fs::path path = folder / "all.h5";
  std::vector<std::pair<std::string, Tensor>> tensors;
  Hdf5FileRecord record;
  {
    Hdf5Writer writer(path);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8}) {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        tensors.emplace_back("group/" + std::string(name(dtype)) + "/t" + std::to_string(i), ramp(context, shapes[i], dtype));
        writer.add(tensors.back().first, tensors.back().second);
      }
    }
    record = writer.finish();
  }
  const Hdf5File file(path, std::vector<Hdf5Seal>{{"all.h5", record.bytes, record.digest}});
  EXPECT_EQ(file.datasets().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) expect_same_bytes(file.read(context, name), tensor, name);

  const std::string bytes = read_file(path);
  EXPECT_EQ(bytes.size(), record.bytes);
  EXPECT_EQ(digest(bytes.data(), bytes.size()), record.digest);
  ASSERT_EQ(record.extents.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Hdf5Extent& extent = record.extents[i];
    EXPECT_EQ(extent.path, tensors[i].first);
    ASSERT_EQ(extent.bytes, tensors[i].second.bytes());
    ASSERT_LE(extent.position + extent.bytes, bytes.size());
    const std::string_view values(static_cast<const char*>(tensors[i].second.data()), extent.bytes);
    EXPECT_TRUE(std::string_view(bytes).substr(extent.position, extent.bytes) == values) << extent.path;
    EXPECT_EQ(extent.digest, digest(tensors[i].second.data(), extent.bytes));
  }
}

TEST_F(Hdf5, EqualTensorsGiveEqualFiles) {
  std::string digests[2];
  for (int i = 0; i < 2; ++i) {
    Hdf5Writer writer(folder / ("file" + std::to_string(i)));
    writer.add("a/b/x", ramp(context, {100, 100}, DType::bf16));
    writer.add("a/y", ramp(context, {3}, DType::i64));
    digests[i] = writer.finish().digest;
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST_F(Hdf5, VirtualDatasetsJoinPartsAndMoveWithTheFolder) {
  const fs::path before = folder / "before", after = folder / "after";
  fs::create_directories(before);
  const Tensor whole = ramp(context, {6, 5}, DType::bf16), scalar = ramp(context, {}, DType::f64);
  std::vector<Hdf5Source> sources;
  for (std::int64_t part = 0; part < 3; ++part) {
    const std::string file = "part" + std::to_string(part) + ".h5";
    Hdf5Writer writer(before / file);
    writer.add("w/rows", whole.rows_view(2 * part, 2 * part + 2));
    if (part == 1) writer.add("s", scalar);
    writer.finish();
    sources.push_back({file, "w/rows", {2 * part, 0}, {2, 5}});
  }
  {
    Hdf5Writer writer(before / "all.h5");
    writer.add_virtual({"model/w", {6, 5}, DType::bf16}, sources);
    writer.add_virtual({"model/s", {}, DType::f64}, std::vector<Hdf5Source>{{"part1.h5", "s", {}, {}}});
    writer.add_virtual({"model/empty", {0, 4}, DType::i32}, {});
    writer.finish();
  }
  fs::rename(before, after);
  const Hdf5File file(after / "all.h5", seals({after / "all.h5", after / "part0.h5", after / "part1.h5", after / "part2.h5"}));
  expect_same_bytes(file.read(context, "model/w"), whole, "model/w");
  expect_same_bytes(file.read(context, "model/s"), scalar, "model/s");
  EXPECT_EQ(file.read(context, "model/empty").numel(), 0);
}

TEST_F(Hdf5, ErrorsNameFileAndDatasetAndReason) {
  const fs::path path = folder / "x.h5";
  EXPECT_THAT(error_of([&] {
                Hdf5File file(path, std::vector<Hdf5Seal>{{"x.h5", 0, ""}});
              }),
              ::testing::AllOf(HasSubstr(path.string()), HasSubstr("No such file")));
  {
    Hdf5Writer writer(path);
    writer.add("a/b", ramp(context, {2}, DType::f32));
    const std::string twice = error_of([&] { writer.add("a/b", ramp(context, {2}, DType::f32)); });
    EXPECT_THAT(twice, ::testing::AllOf(HasSubstr("a/b"), HasSubstr(path.string()), HasSubstr("exists")));
    const std::string below = error_of([&] { writer.add("a/b/c", ramp(context, {2}, DType::f32)); });
    EXPECT_THAT(below, ::testing::AllOf(HasSubstr("a/b/c"), HasSubstr(path.string())));
    writer.finish();
  }
  const Hdf5File file(path, seals({path}));
  EXPECT_THAT(error_of([&] { file.dataset("a/q"); }), ::testing::AllOf(HasSubstr("a/q"), HasSubstr(path.string())));
  Hdf5Writer again(path);
  EXPECT_THAT(error_of([&] { again.finish(); }), ::testing::AllOf(HasSubstr(path.string()), HasSubstr("errno 17")));
  write_file(folder / "no.h5", "not an HDF5 file");
  EXPECT_THAT(error_of([&] { Hdf5File other(folder / "no.h5", seals({folder / "no.h5"})); }), HasSubstr("no.h5"));
}

// HDF5 never gets to see a file whose bytes are not those that were written, nor one that nobody vouches for.
TEST_F(Hdf5, NothingIsOpenedWithoutItsDigest) {
  const Tensor whole = ramp(context, {4, 2}, DType::f32);
  Hdf5FileRecord part, all;
  {
    Hdf5Writer writer(folder / "part.h5");
    writer.add("w", whole);
    part = writer.finish();
  }
  {
    Hdf5Writer writer(folder / "all.h5");
    writer.add_virtual({"w", {4, 2}, DType::f32}, std::vector<Hdf5Source>{{"part.h5", "w", {0, 0}, {4, 2}}});
    all = writer.finish();
  }
  const Hdf5Seal own{"all.h5", all.bytes, all.digest}, other{"part.h5", part.bytes, part.digest};
  const auto read = [&](std::vector<Hdf5Seal> seals) {
    return error_of([&] { expect_same_bytes(Hdf5File(folder / "all.h5", seals).read(context, "w"), whole, "w"); });
  };
  EXPECT_EQ(read({own, other}), "no error");
  EXPECT_THAT(read({}), ::testing::AllOf(HasSubstr("all.h5"), HasSubstr("without its digest")));
  EXPECT_THAT(read({other}), ::testing::AllOf(HasSubstr("all.h5"), HasSubstr("without its digest")));
  EXPECT_THAT(read({own}), ::testing::AllOf(HasSubstr("part.h5"), HasSubstr("without its digest")));
  for (const char* name : {"part.h5", "all.h5"}) {
    std::string bytes = read_file(folder / name);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
    fs::remove(folder / name);
    write_file(folder / name, bytes);
    EXPECT_THAT(read({own, other}), ::testing::AllOf(HasSubstr(name), HasSubstr("HDF5 doesn't get to see it")));
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
    fs::resize_file(folder / name, bytes.size() - 1);
    EXPECT_THAT(read({own, other}), ::testing::AllOf(HasSubstr(name), HasSubstr("bytes; ")));
    fs::remove(folder / name);
    write_file(folder / name, bytes);
  }
  EXPECT_EQ(read({own, other}), "no error");
}

TEST_F(Hdf5, LinksIntoOtherFilesAreNotFollowed) {
  {
    Hdf5Writer writer(folder / "other.h5");
    writer.add("w", ramp(context, {4}, DType::f32));
    writer.finish();
  }
  const hid_t file = H5Fcreate((folder / "links.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  ASSERT_GE(H5Lcreate_external("other.h5", "/w", file, "away", H5P_DEFAULT, H5P_DEFAULT), 0);
  ASSERT_GE(H5Fclose(file), 0);
  const Hdf5File links(folder / "links.h5", seals({folder / "links.h5"}));
  EXPECT_THAT(error_of([&] { links.read(context, "away"); }), ::testing::AllOf(HasSubstr("away"), HasSubstr("links.h5")));
  EXPECT_THAT(error_of([&] { links.datasets(); }), HasSubstr("away"));
}

TEST_F(Hdf5, AnAbandonedWriterLeavesNoFile) {
  {
    Hdf5Writer writer(folder / "x.h5");
    writer.add("a", ramp(context, {2}, DType::f32));
  }
  EXPECT_FALSE(fs::exists(folder / "x.h5"));
}

TEST(Digest, StreamsEqualOneShotAndTheReferenceVector) {
  EXPECT_EQ(digest(nullptr, 0), "99aa06d3014798d86001c324468d497f");  // the XXH3-128 of nothing, seed 0
  const std::string text(100'000, 'x');
  Hasher hasher;
  for (std::size_t i = 0; i < text.size(); i += 777)
    hasher.update(text.data() + i, std::min<std::size_t>(777, text.size() - i));
  EXPECT_EQ(hasher.hex(), digest(text.data(), text.size()));
}

}  // namespace
}  // namespace chorus
