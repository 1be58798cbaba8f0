#include <chorus/apps/replicas.h>
#include <chorus/io/digest.h>

#include <algorithm>
#include <map>

namespace chorus {
namespace {

constexpr std::size_t digits = 32;  // of a digest

/// What a rank holds of one tensor of the model.
struct Held {
  std::string path, part;  ///< part: a digest of which elements these are
  std::string bits;        ///< a digest of their values
};

/// Which elements an entry owns.
std::string part_of_entry(const ParamStore::Entry& entry) {
  std::string text = std::to_string(entry.offset) + ' ' + std::to_string(entry.count);
  for (const Shape* shape : {&entry.param->box.begin, &entry.param->box.size})
    for (int d = 0; d < shape->rank(); ++d) text += ' ' + std::to_string((*shape)[d]);
  return digest(text.data(), text.size());
}

std::vector<Held> held(const ParamStore& store) {
  std::vector<Held> out;
  for (const auto* entries : {&store.trainable, &store.frozen}) {
    for (const auto& entry : *entries) {
      Hasher hasher;
      hasher.update(entry.value.data(), entry.value.bytes());
      if (entry.master.data() != entry.value.data()) hasher.update(entry.master.data(), entry.master.bytes());
      entry.master.let_go();
      out.push_back({entry.path, part_of_entry(entry), hasher.hex()});
    }
  }
  for (const auto& [path, buffer] : store.buffers)
    out.push_back({path, std::string(digits, '0'), digest(buffer->value.data(), buffer->value.bytes())});
  return out;
}

/// "{0 2} {1}": ranks that hold equal bits stand together; empty where all do.
std::string apart(const std::map<std::string, std::vector<int>>& by_bits) {
  if (by_bits.size() < 2) return "";
  std::vector<std::vector<int>> sets;
  for (const auto& [bits, ranks] : by_bits) sets.push_back(ranks);
  std::ranges::sort(sets);
  std::string out;
  for (const auto& ranks : sets) {
    out += out.empty() ? "{" : " {";
    for (std::size_t i = 0; i < ranks.size(); ++i) out += (i ? " " : "") + std::to_string(ranks[i]);
    out += '}';
  }
  return out;
}

}  // namespace

void check_replicas(const ParamStore& store, Group& group, std::int64_t step) {
  if (group.size() == 1) return;
  const std::vector<Held> mine = held(store);
  std::string own;
  for (const Held& one : mine) own += one.part + one.bits;
  const auto ranks = static_cast<std::size_t>(group.size());
  std::string all(own.size() * ranks, ' ');
  const std::vector<std::int64_t> counts(ranks, static_cast<std::int64_t>(own.size()));
  group.all_gather({own.data(), static_cast<std::int64_t>(own.size()), DType::u8},
                   {all.data(), static_cast<std::int64_t>(all.size()), DType::u8}, counts);

  std::string first, sets;
  int differ = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    std::map<std::string, std::map<std::string, std::vector<int>>> parts;  // which elements -> their bits -> who has them
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::string_view at = std::string_view(all).substr(r * own.size() + i * 2 * digits, 2 * digits);
      parts[std::string(at.substr(0, digits))][std::string(at.substr(digits))].push_back(group.members()[r]);
    }
    std::string here;
    for (const auto& [part, by_bits] : parts)
      if (const std::string text = apart(by_bits); !text.empty() && (here.empty() || text < here)) here = text;
    if (here.empty()) continue;
    if (differ++ == 0) first = mine[i].path, sets = here;
  }
  require(differ == 0, "replicas", "after step ", step, " ranks that hold the same part of ", first,
          " hold other values of it: ", sets,
          differ > 1 ? "; it is the first of " + std::to_string(differ) + " tensors that differ" : "",
          ". A rank computes wrongly, or its memory is damaged: go on from a checkpoint that was saved before");
}

}  // namespace chorus
