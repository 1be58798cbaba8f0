// Gives a declared module its memory and first values.
#pragma once
#include <chorus/nn/precision.h>

#include <filesystem>

namespace chorus {

/// One unit's parameters as one flat array, of which each rank that shards the store owns a slice, cut at any element: no dim
/// must divide.
struct FlatBuffer {
  std::string unit;  ///< path; "": of the parameters in no unit
  bool trainable = true;
  UnitTypes types;
  std::int64_t elements = 0;
  Range owned;                            ///< this rank's slice
  Tensor values;                          ///< [elements] in the unit's type; under ZeRO-3 its storage may be released
  Tensor part;                            ///< [owned], in `values` or in the store's flat arrays
  std::int64_t first = 0;                 ///< element at which the slice begins in the store's flat arrays
  std::vector<std::size_t> leaves;        ///< indices into ParamStore::leaves; none of a frozen buffer
  std::vector<std::int64_t> leaf_firsts;  ///< element of the buffer at which each begins
};

/// Parameters of one model. Gradients live from the first that arrives in a step to the next step's start, each leaf's in
/// memory of its own: while activations take most, they take none (but for the head's, which the fused loss sums in the forward
/// pass). Frozen parameters have values only. Values of the trainable ones lie in one flat array for each type. In a sharded
/// store those that this rank owns do, and what ops read lies in one array per unit.
struct ParamStore {
  struct Entry {
    Param* param;  ///< valid as long as the module is not moved
    std::string path;
    std::int64_t first = 0;   ///< element offset of what this rank owns in flat arrays of `state_size`
    std::int64_t count = 0;   ///< elements that it owns: all that it holds, unless the store is sharded
    std::int64_t offset = 0;  ///< of these in the parameter (Param::box)
    Tensor value;             ///< [count] in the type that is computed with
    Tensor master;            ///< [count] in the wide type; `value` itself if that is wide, frozen, or has no master
    int buffer = -1;          ///< index into flat_buffers, and the element of it at which the parameter begins
    std::int64_t at = 0;
  };
  Context* context = nullptr;
  DType wide{};          ///< of gradients, masters and optimizer state
  Tensor values;         ///< flat, of the trainable parameters in the model's type; empty under ZeRO-1 and ZeRO-2
  Tensor masters;        ///< flat, of those that have masters apart from their values; if none has, `values`
  Tensor frozen_values;  ///< flat, of the frozen parameters in the model's type
  std::vector<Entry> trainable, frozen;  ///< in order of declaration
  std::vector<std::pair<std::string, Buffer*>> buffers;
  std::vector<std::shared_ptr<Node>> leaves;
  std::vector<DType> leaf_reduces;       ///< in which the gradient of each is summed over data-parallel ranks
  std::vector<FlatBuffer> flat_buffers;  ///< of a sharded store
  std::int64_t state_size = 0;           ///< elements of flat arrays of optimizer state
  Tensor grads;                          ///< [state_size] of wide type in a sharded store: gradients of what this rank owns
  std::filesystem::path offload_folder;  ///< where masters of another type than values, and optimizer state, lie in files

  /// Zeros of the wide type for what only an optimizer reads, [count]: in memory, or in a file.
  Tensor new_state(std::int64_t count, const std::string& name) const;
  std::int64_t trainable_count() const;  ///< logical elements, whatever part this rank holds
  std::int64_t frozen_count() const;
  /// Before the first forward of a step: earlier gradients are freed. The first that arrives is written, later ones are added.
  void start_step() const;
  /// After the last backward of a step: a trainable parameter that nobody used has gradient zero.
  void finish_step() const;
  /// [count] of a trainable entry, after a step; empty before.
  Tensor gradient(const Entry& entry) const;
  /// Copies masters to values where they differ in type: after loading, after an optimizer that wrote masters only.
  void masters_to_values() const;
};

/// Parameters whose path matches one of `freeze` and none of `prevent` (see `PathPatterns`) are not trained. A pattern that
/// matches no parameter is an error.
struct FreezeRules {
  std::vector<std::string> freeze, prevent;
};

/// Which of the ranks that shard a store this one is.
struct StoreShard {
  int rank = 0, size = 1;
  bool values = false;  ///< also what is computed with; false: masters and optimizer state only
};

struct MaterializeOptions {
  DType dtype = DType::f32;  ///< of values
  std::uint64_t seed = 0;
  FreezeRules freeze = {};
  std::optional<StoreShard> shard = {};
  Precision precision = {};
  /// Puts optimizer state, masters of bf16 values among it, into files without a name in this folder, which must be there.
  /// Empty: all is in memory.
  std::filesystem::path offload_folder = {};
};

/// Elements of a store's flat arrays, gaps included, and of its buffers (statistics). Of a sharded store the arrays are the
/// flat buffers of its units.
struct StoreSize {
  struct Elements {
    std::int64_t all = 0;
    std::int64_t narrow = 0;  ///< among them, of values that are bf16
    void add(std::int64_t count, DType values) {
      all += count;
      if (values != wide(values)) narrow += count;
    }
    double value_bytes(DType wide_type) const {
      return static_cast<double>(narrow) * static_cast<double>(size_of(DType::bf16)) +
             static_cast<double>(all - narrow) * static_cast<double>(size_of(wide_type));
    }
  };
  Elements trainable, frozen;
  std::int64_t buffers = 0;
  std::int64_t trained = 0;  ///< trainable without gaps: what gradients in memory of their own take
  struct Flat {
    std::string unit;
    bool trainable = true;
    DType values{};
    std::int64_t elements = 0;
  };
  std::vector<Flat> flats;  ///< of a sharded store, as ParamStore::flat_buffers

  struct Owned {
    Elements trainable, frozen;  ///< trainable: ParamStore::state_size
  };
  /// Elements of the arrays that hold one rank's slices, gaps included; without `flats` all of them.
  Owned owned(int rank, int size) const;
};

namespace detail {
struct Declared {
  struct Item {
    std::string path;  ///< of the Param, or of the Stacked
    Param* param = nullptr;
    Stacked* stacked = nullptr;
    std::vector<std::string> part_paths;
  };
  std::vector<Item> items;
  std::vector<std::pair<std::string, Buffer*>> buffers;
  std::vector<std::pair<std::string, Dropout*>> dropouts;
  std::vector<std::pair<std::string, Unit*>> units;  ///< and the path of what lies in it
};
ParamStore materialize(Context& context, const Declared& declared, const MaterializeOptions& options);
void declare_unbacked(Context& context, const Declared& declared, DType dtype, const Precision& precision);
StoreSize store_size(const Declared& declared, const FreezeRules& rules, DType dtype, const Precision& precision, bool sharded);
/// "layers.0.unit" -> "layers.0", "head_unit" -> "head": what a unit is around.
std::string unit_path(const std::string& path);
inline std::string parent(const std::string& path) {
  return path.substr(0, path.rfind('.') == path.npos ? 0 : path.rfind('.'));
}
}  // namespace detail

namespace detail {
template <class M>
Declared declare(M& module) {
  Declared declared;
  visit_fields(module, "", [&]<class Leaf>(const std::string& path, Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, Param>) {
      if (leaf) declared.items.push_back({path, &leaf, nullptr, {}});
    } else if constexpr (std::is_same_v<Leaf, Stacked>) {
      Declared::Item item{path, nullptr, &leaf, {}};
      for (auto& [name, part] : leaf.parts) item.part_paths.push_back(join(detail::parent(path), name));
      declared.items.push_back(std::move(item));
    } else if constexpr (std::is_same_v<Leaf, Buffer>) {
      declared.buffers.push_back({path, &leaf});
    } else if constexpr (std::is_same_v<Leaf, Dropout>) {
      declared.dropouts.push_back({path, &leaf});
    } else if constexpr (std::is_same_v<Leaf, Unit>) {
      declared.units.push_back({unit_path(path), &leaf});
    }
  });
  return declared;
}
}  // namespace detail

/// Allocates and initialises every parameter and buffer of `module` and names its dropouts. The module must stay where it
/// is from now on. A module whose parameters are all frozen runs in evaluation mode: its dropouts are switched off.
template <class M>
ParamStore materialize(M& module, Context& context, const MaterializeOptions& options) {
  return detail::materialize(context, detail::declare(module), options);
}

/// Gives parameters their shapes and layouts, but no memory (and buffers zeros): a batch without rows can run, to see what
/// meets what.
template <class M>
void declare_unbacked(M& module, Context& context, DType dtype, const Precision& precision = {}) {
  detail::declare_unbacked(context, detail::declare(module), dtype, precision);
}

/// The types of the module's units, by path, as `materialize` would choose them; its errors.
template <class M>
std::map<std::string, UnitTypes> unit_types(M& module, DType dtype, const Precision& precision) {
  return detail::types_of_units(detail::declare(module).units, dtype, precision);
}

/// What `materialize` would take, with a shard or without. Nothing is allocated; parameters are told whether they train.
template <class M>
StoreSize store_size(M& module, const FreezeRules& rules, DType dtype, const Precision& precision = {}, bool sharded = false) {
  return detail::store_size(detail::declare(module), rules, dtype, precision, sharded);
}

}  // namespace chorus
