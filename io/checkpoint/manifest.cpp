#include <chorus/io/checkpoint/copy_box.h>
#include <chorus/io/checkpoint/manifest.h>
#include <chorus/io/digest.h>

#include <algorithm>
#include <map>

namespace chorus {
namespace {

using nlohmann::json;

// The frame stays the same in every schema, so that any version can tell damage from novelty.
std::string frame_head(std::string_view rest) { return "{\"digest\": \"" + digest(rest.data(), rest.size()) + "\",\n"; }
constexpr std::size_t head_bytes = 12 + 32 + 3;

json to_json(const Shape& shape) {
  json list = json::array();
  for (int d = 0; d < shape.rank(); ++d) list.push_back(shape[d]);
  return list;
}
Shape to_shape(const json& list) {
  Shape shape;
  for (const auto& size : list) shape.push_back(size.get<std::int64_t>());
  // Beyond any file, and products of sizes stay exact.
  constexpr std::int64_t most = std::int64_t{1} << 48;
  std::int64_t product = 1;
  for (int d = 0; d < shape.rank(); ++d) {
    require(shape[d] <= most / std::max<std::int64_t>(product, 1), "manifest", "a tensor of ", shape, " elements can't exist");
    product *= std::max<std::int64_t>(shape[d], 1);
  }
  return shape;
}
DType to_dtype(const std::string& text) {
  for (const DType t : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    if (name(t) == text) return t;
  }
  fail("manifest", "unknown dtype '", text, "'");
}

}  // namespace

const SavedTensor* Manifest::find(std::string_view path) const {
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), path,
                                   [](const SavedTensor& t, std::string_view wanted) { return t.path < wanted; });
  return at != tensors.end() && at->path == path ? &*at : nullptr;
}

void check_coverage(const Manifest& manifest) {
  std::map<std::string_view, std::uint64_t> files;
  for (const SavedFile& file : manifest.files) {
    require(!file.name.empty() && file.name.find('/') == file.name.npos && file.name != "." && file.name != "..", "checkpoint",
            "'", file.name, "' is no name of a file in the checkpoint's folder");
    require(files.try_emplace(file.name, file.bytes).second, "checkpoint", file.name, " is listed twice");
  }
  for (const SavedTensor& tensor : manifest.tensors) {
    std::int64_t covered = 0;
    for (std::size_t i = 0; i < tensor.chunks.size(); ++i) {
      const SavedChunk& chunk = tensor.chunks[i];
      bool inside = chunk.offset.rank() == tensor.shape.rank() && chunk.shape.rank() == tensor.shape.rank();
      for (int d = 0; inside && d < tensor.shape.rank(); ++d) inside = chunk.offset[d] + chunk.shape[d] <= tensor.shape[d];
      require(inside, "checkpoint", tensor.path, ": a chunk of ", chunk.shape, " at ", chunk.offset, " doesn't fit into ",
              tensor.shape);
      for (std::size_t j = 0; j < i; ++j) {
        require(common_elements(chunk.offset, chunk.shape, tensor.chunks[j].offset, tensor.chunks[j].shape) == 0, "checkpoint",
                tensor.path, ": chunks of ", chunk.shape, " at ", chunk.offset, " and of ", tensor.chunks[j].shape, " at ",
                tensor.chunks[j].offset, " overlap; each element is stored once");
      }
      covered += chunk.shape.numel();
      if (chunk.shape.numel() == 0) continue;
      const auto file = files.find(chunk.file);
      const std::uint64_t bytes = static_cast<std::uint64_t>(chunk.shape.numel()) * size_of(tensor.dtype);
      require(file != files.end() && chunk.position <= file->second && bytes <= file->second - chunk.position, "checkpoint",
              tensor.path, ": ", bytes, " bytes at ", chunk.position, " of ", chunk.file, " lie outside it");
    }
    require(covered == tensor.shape.numel() && !tensor.chunks.empty(), "checkpoint", tensor.path, ": ", tensor.chunks.size(),
            " chunks hold ", covered, " of the ", tensor.shape.numel(), " elements of ", tensor.shape);
  }
}

std::string to_text(const Manifest& manifest) {
  json files = json::array(), tensors = json::array();
  for (const auto& f : manifest.files) files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"digest", f.digest}});
  for (const auto& t : manifest.tensors) {
    json chunks = json::array();
    for (const auto& c : t.chunks) {
      chunks.push_back({{"offset", to_json(c.offset)},
                        {"shape", to_json(c.shape)},
                        {"file", c.file},
                        {"dataset", c.dataset},
                        {"position", c.position},
                        {"digest", c.digest}});
    }
    tensors.push_back({{"path", t.path}, {"shape", to_json(t.shape)}, {"dtype", name(t.dtype)}, {"chunks", chunks}});
  }
  const json content = {{"schema", manifest.schema}, {"step", manifest.step},   {"topology", {{"world", manifest.world}}},
                        {"config", manifest.config}, {"state", manifest.state}, {"files", files},
                        {"tensors", tensors}};
  std::string text;
  try {
    text = content.dump(1, ' ');
  } catch (const json::exception& e) {
    fail("manifest", "state or config can't be written as JSON: ", e.what());
  }
  require(json::parse(text) == content, "manifest",
          "state doesn't survive JSON: NaN and infinities need a spelling of their own");
  const std::string rest = "\"manifest\": " + text + "}\n";
  return frame_head(rest) + rest;
}

Manifest parse_manifest(std::string_view text, const std::string& name) {
  require(text.size() > head_bytes && text.substr(0, head_bytes) == frame_head(text.substr(head_bytes)), "manifest", name,
          " is damaged: its bytes differ from its digest");
  try {
    const json content = json::parse(text).at("manifest");
    Manifest manifest;
    manifest.schema = content.at("schema").get<int>();
    if (manifest.schema > Manifest::current_schema) {
      throw NewerSchema("manifest: " + name + " has schema " + std::to_string(manifest.schema) + ", this version reads up to " +
                        std::to_string(Manifest::current_schema) + "; read it with the version that wrote it, or a later one");
    }
    manifest.step = content.at("step").get<std::uint64_t>();
    manifest.world = content.at("topology").at("world").get<int>();
    manifest.config = content.at("config").get<std::string>();
    manifest.state = content.at("state");
    for (const auto& f : content.at("files")) {
      manifest.files.push_back(
          {f.at("name").get<std::string>(), f.at("bytes").get<std::uint64_t>(), f.at("digest").get<std::string>()});
    }
    for (const auto& t : content.at("tensors")) {
      SavedTensor tensor{
          t.at("path").get<std::string>(), to_shape(t.at("shape")), to_dtype(t.at("dtype").get<std::string>()), {}};
      for (const auto& c : t.at("chunks")) {
        tensor.chunks.push_back({to_shape(c.at("offset")), to_shape(c.at("shape")), c.at("file").get<std::string>(),
                                 c.at("dataset").get<std::string>(), c.at("position").get<std::uint64_t>(),
                                 c.at("digest").get<std::string>()});
      }
      manifest.tensors.push_back(std::move(tensor));
    }
    return manifest;
  } catch (const json::exception& e) {
    fail("manifest", name, " lacks something: ", e.what());
  }
}

}  // namespace chorus
