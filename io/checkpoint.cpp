#include <chorus/core/posix_file.h>
#include <chorus/core/text.h>
#include <chorus/io/checkpoint.h>
#include <chorus/io/checkpoint/copy_box.h>
#include <chorus/io/checkpoint/folder.h>
#include <chorus/io/digest.h>

#include <algorithm>
#include <memory>
#include <system_error>

namespace chorus {
namespace {

namespace fs = std::filesystem;

std::size_t chunk_bytes(const SavedTensor& tensor, const SavedChunk& chunk) {
  return static_cast<std::size_t>(chunk.shape.numel()) * size_of(tensor.dtype);
}

/// "; the nearest is 'x'", or why there is none.
std::string nearest(const Manifest& manifest, std::string_view path) {
  const auto best = std::min_element(manifest.tensors.begin(), manifest.tensors.end(), [&](const auto& a, const auto& b) {
    return edit_distance(a.path, path) < edit_distance(b.path, path);
  });
  return best == manifest.tensors.end() ? "; it holds no tensors" : "; the nearest is '" + best->path + "'";
}

/// Runs a step of tidying up, whose failure must not undo a checkpoint.
template <class F>
void tidy(std::vector<std::string>& warnings, F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    warnings.emplace_back(e.what());
  }
}

bool opens(const fs::path& folder) {
  try {
    Checkpoint{folder};
    return true;
  } catch (const NewerSchema&) {
    return true;  // intact, for somebody
  } catch (const Error&) {
    return false;
  }
}

/// Reads a file once, front to back, and names what differs from the manifest.
void verify_file(const fs::path& folder, const Manifest& manifest, const SavedFile& saved, std::vector<std::string>& problems) {
  struct Region {
    std::uint64_t position, bytes;
    const SavedTensor* tensor;
    const SavedChunk* chunk;
  };
  std::vector<Region> regions;
  for (const SavedTensor& tensor : manifest.tensors) {
    for (const SavedChunk& chunk : tensor.chunks) {
      if (chunk.file == saved.name && chunk.shape.numel()) {
        regions.push_back({chunk.position, chunk_bytes(tensor, chunk), &tensor, &chunk});
      }
    }
  }
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.position < b.position; });
  regions.push_back({saved.bytes, 0, nullptr, nullptr});

  const PosixFile file = PosixFile::open(folder / saved.name);
  constexpr std::size_t block_bytes = 4 << 20;
  const auto block = std::make_unique_for_overwrite<char[]>(block_bytes);
  Hasher all;
  std::uint64_t at = 0;
  const auto scan = [&](std::uint64_t end) {
    Hasher own;
    while (at < end) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(block_bytes, end - at));
      file.read(block.get(), n, at);
      all.update(block.get(), n);
      own.update(block.get(), n);
      at += n;
    }
    return own.hex();
  };
  std::string damaged;
  for (const Region& region : regions) {
    scan(region.position);
    const std::string found = scan(region.position + region.bytes);
    if (region.chunk && found != region.chunk->digest) damaged += (damaged.empty() ? "" : ", ") + region.tensor->path;
  }
  if (all.hex() == saved.digest && damaged.empty()) return;
  problems.push_back(saved.name + ": its bytes differ from what was saved: " +
                     (damaged.empty() ? "the file's structure, outside all tensors" : damaged));
}

}  // namespace

std::string checkpoint_path(std::string_view group, std::string_view parameter) {
  std::string path(parameter);
  std::replace(path.begin(), path.end(), '.', '/');
  return std::string(group) + '/' + path;
}

SavedCheckpoint save_checkpoint(const fs::path& directory, std::uint64_t step, std::span<const CheckpointEntry> entries,
                                const nlohmann::json& state, const std::string& config, const SaveOptions& options) {
  require(options.keep == 0 || options.keep >= 2, "save_checkpoint", "keep is ", options.keep,
          "; at least 2, as the newest may be damaged, or 0 to keep all");
  SavedCheckpoint saved;
  make_folders(directory);
  tidy(saved.warnings, [&] { clean_up(directory, true); });

  const fs::path temporary = temporary_folder(directory, step);
  make_new_folder(temporary);
  try {
    const RankFile file = write_rank_file(temporary, 0, entries);
    Manifest about;
    about.step = step;
    about.config = config;
    about.state = state;
    saved.folder = commit_checkpoint(temporary, directory, std::move(about), {&file, 1});
  } catch (...) {
    std::error_code ignored;  // a failure here is no news beside the first one, and the next save tries again
    fs::remove_all(temporary, ignored);
    throw;
  }
  tidy(saved.warnings, [&] { clean_up(directory, true); });  // the one that was replaced
  if (options.keep) tidy(saved.warnings, [&] { retain(directory, options.keep, saved.folder, opens); });
  return saved;
}

Checkpoint::Checkpoint(fs::path folder) : folder_(std::move(folder)) {
  const fs::path path = folder_ / "manifest.json";
  manifest_ = parse_manifest(read_file(path), path.string());
  check_coverage(manifest_);
  for (const SavedFile& saved : manifest_.files) {
    const std::uint64_t bytes = PosixFile::open(folder_ / saved.name).bytes();
    require(bytes == saved.bytes, "checkpoint", (folder_ / saved.name).string(), " has ", bytes, " bytes; ", saved.bytes,
            " were saved");
  }
}

void Checkpoint::read(std::string_view path, const Tensor& into, const ReadOptions& options) const {
  const SavedTensor* tensor = manifest_.find(path);
  require(tensor != nullptr, "checkpoint", folder_.string(), " has no tensor '", path, "'",
          tensor ? std::string() : nearest(manifest_, path));
  const auto refuse = [&](std::string_view what) {
    fail("checkpoint", folder_.string(), ": ", path, " is ", tensor->dtype, ' ', tensor->shape, ", wanted as ", into,
         options.offset ? " at an offset" : "", ": ", what);
  };
  if (!into) refuse("there is no tensor to fill");
  Shape offset;
  for (int d = 0; d < tensor->shape.rank(); ++d) offset.push_back(0);
  if (options.offset) {
    offset = *options.offset;
    bool inside = offset.rank() == tensor->shape.rank() && into.rank() == tensor->shape.rank();
    for (int d = 0; inside && d < into.rank(); ++d) inside = offset[d] + into.size(d) <= tensor->shape[d];
    if (!inside) refuse("the box lies outside");
  } else if (!(into.shape() == tensor->shape)) {
    refuse("the shapes differ");
  }
  if (into.dtype() != tensor->dtype && !options.convert) refuse("the dtypes differ, and no conversion was asked for");
  if (into.dtype() != tensor->dtype && !(is_floating(into.dtype()) && is_floating(tensor->dtype))) {
    refuse("only floating types are converted");
  }

  // Everything is staged, so that a damaged chunk leaves `into` as it was.
  const auto staged = std::make_unique_for_overwrite<char[]>(into.bytes());
  std::int64_t found = 0;
  for (const SavedChunk& chunk : tensor->chunks) {
    const std::int64_t common = common_elements(chunk.offset, chunk.shape, offset, into.shape());
    if (common == 0) continue;
    // A chunk that is just what is wanted needs no second buffer.
    const bool exact = common == into.numel() && common == chunk.shape.numel() && into.dtype() == tensor->dtype;
    const std::size_t bytes = chunk_bytes(*tensor, chunk);
    const auto buffer = std::make_unique_for_overwrite<char[]>(exact ? 0 : bytes);
    char* const data = exact ? staged.get() : buffer.get();
    PosixFile::open(folder_ / chunk.file).read(data, bytes, chunk.position);
    require(digest(data, bytes) == chunk.digest, "checkpoint", (folder_ / chunk.file).string(), ": ", path,
            " is damaged: the digest of its bytes differs from the saved one");
    if (!exact) copy_box({chunk.offset, chunk.shape, tensor->dtype, data}, {offset, into.shape(), into.dtype(), staged.get()});
    found += common;
  }
  require(found == into.numel(), "checkpoint", folder_.string(), ": ", path, ": the chunks hold ", found, " of ", into.numel(),
          " elements");
  into.copy_from_host(staged.get());
}

Tensor Checkpoint::read(Context& context, std::string_view path, Category category) const {
  const SavedTensor* tensor = manifest_.find(path);
  require(tensor != nullptr, "checkpoint", folder_.string(), " has no tensor '", path, "'",
          tensor ? std::string() : nearest(manifest_, path));
  const Tensor into = Tensor::empty(context, tensor->shape, tensor->dtype, category);
  read(path, into);
  return into;
}

std::vector<Hdf5Seal> Checkpoint::seals() const {
  std::vector<Hdf5Seal> seals;
  for (const SavedFile& file : manifest_.files) seals.push_back({file.name, file.bytes, file.digest});
  return seals;
}

std::vector<std::string> Checkpoint::verify() const {
  std::vector<std::string> problems;
  for (const SavedFile& saved : manifest_.files) {
    try {
      verify_file(folder_, manifest_, saved, problems);
    } catch (const Error& e) {
      problems.emplace_back(e.what());
    }
  }
  return problems;
}

std::optional<Checkpoint> find_checkpoint(const fs::path& directory, const std::function<void(const std::string&)>& report) {
  for (const StepFolder& folder : step_folders(directory)) {
    std::vector<std::string> problems;
    try {
      Checkpoint checkpoint(folder.path);
      problems = checkpoint.verify();
      if (checkpoint.manifest().step != folder.step) {
        problems.push_back("its manifest says step " + std::to_string(checkpoint.manifest().step));
      }
      if (problems.empty()) return checkpoint;
    } catch (const NewerSchema&) {
      throw;
    } catch (const Error& e) {
      problems.emplace_back(e.what());
    }
    if (report) {
      for (const std::string& problem : problems) report("skipped " + folder.path.string() + ": " + problem);
    }
  }
  return std::nullopt;
}

}  // namespace chorus
