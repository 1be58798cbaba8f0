#include <chorus/core/posix_file.h>
#include <chorus/io/checkpoint/folder.h>
#include <chorus/io/checkpoint/write.h>
#include <chorus/io/hdf5.h>

#include <cstdio>
#include <map>

namespace chorus {
namespace {

/// Names of groups and datasets: not empty, no relative ones, and '@' is ours (see `dataset_name`).
void check_path(const std::string& path) {
  const std::string framed = '/' + path + '/';
  for (const std::string_view bad : {"//", "/./", "/../", "@"}) {
    require(framed.find(bad) == framed.npos, "checkpoint", "'", path,
            "' can't be a path: it needs names between single slashes, ", "other than . and .., without @");
  }
  require(path.find('\0') == path.npos, "checkpoint", "a path holds a zero byte: ", path.c_str());
}

/// The path itself for a whole tensor, "<path>@0,64" for the part at (0, 64): unique within a file.
std::string dataset_name(const std::string& path, const Shape& offset, bool whole) {
  if (whole) return path;
  std::string text = path + '@';
  for (int d = 0; d < offset.rank(); ++d) {
    if (d) text += ',';
    text += std::to_string(offset[d]);
  }
  return text;
}

}  // namespace

RankFile write_rank_file(const std::filesystem::path& folder, int rank, std::span<const CheckpointEntry> entries) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%04d.h5", rank);
  RankFile out{{name, 0, ""}, {}};
  Hdf5Writer writer(folder / name);
  for (const CheckpointEntry& entry : entries) {
    check_path(entry.path);
    require(entry.tensor || entry.later, "checkpoint", "no tensor for ", entry.path);
    const Shape shape = entry.later ? entry.later->shape : entry.tensor.shape();
    const DType dtype = entry.later ? entry.later->dtype : entry.tensor.dtype();
    const Shape whole = entry.part ? entry.part->whole : shape;
    Shape offset;
    for (int d = 0; d < shape.rank(); ++d) offset.push_back(0);
    if (entry.part) offset = entry.part->offset;
    const std::string dataset = dataset_name(entry.path, offset, shape == whole);
    if (entry.later)
      writer.add({dataset, shape, dtype}, entry.later->fetch);
    else
      writer.add(dataset, entry.tensor);
    out.tensors.push_back({entry.path, whole, dtype, {{offset, shape, name, dataset, 0, ""}}});
  }
  const Hdf5FileRecord record = writer.finish();
  out.file.bytes = record.bytes;
  out.file.digest = record.digest;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    out.tensors[i].chunks[0].position = record.extents[i].position;
    out.tensors[i].chunks[0].digest = record.extents[i].digest;
  }
  return out;
}

std::filesystem::path commit_checkpoint(const std::filesystem::path& temporary, const std::filesystem::path& directory,
                                        Manifest about, std::span<const RankFile> ranks) {
  std::map<std::string, SavedTensor> tensors;
  for (const RankFile& rank : ranks) {
    about.files.push_back(rank.file);
    for (const SavedTensor& part : rank.tensors) {
      auto& whole = tensors.try_emplace(part.path, SavedTensor{part.path, part.shape, part.dtype, {}}).first->second;
      require(whole.shape == part.shape && whole.dtype == part.dtype, "checkpoint", part.path, " is ", whole.dtype, ' ',
              whole.shape, " in one chunk and ", part.dtype, ' ', part.shape, " in another, of ", rank.file.name);
      whole.chunks.insert(whole.chunks.end(), part.chunks.begin(), part.chunks.end());
    }
  }
  for (auto& [path, tensor] : tensors) about.tensors.push_back(std::move(tensor));
  check_coverage(about);

  Hdf5Writer all(temporary / "checkpoint.h5");
  for (const SavedTensor& tensor : about.tensors) {
    std::vector<Hdf5Source> sources;
    for (const SavedChunk& chunk : tensor.chunks) {
      if (chunk.shape.numel()) sources.push_back({chunk.file, chunk.dataset, chunk.offset, chunk.shape});
    }
    all.add_virtual({tensor.path, tensor.shape, tensor.dtype}, sources);
  }
  const Hdf5FileRecord record = all.finish();
  about.files.push_back({"checkpoint.h5", record.bytes, record.digest});

  write_file(temporary / "manifest.json.tmp", to_text(about));
  rename_path(temporary / "manifest.json.tmp", temporary / "manifest.json");
  return commit_folder(temporary, directory, about.step);
}

}  // namespace chorus
