// Modules are move-only value structs. One member function names everything in them:
//   template <class V> void fields(V&& v) { v("weight", weight); v("bias", bias); v("in", in); v("out", out); }
// It alone drives names, counting, initialisation, checkpoints, sharding and export.
#pragma once
#include <chorus/core/rng.h>
#include <chorus/nn/param.h>
#include <chorus/tensor/rows.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace chorus {

/// Where a plan may change how an activation lies: identity when empty.
struct Port {
  std::function<Tensor(Tensor)> hook;
  Tensor operator()(Tensor x) const { return hook ? hook(std::move(x)) : x; }
};

/// A typed core that a plan may replace (attention, statistics sum, loss); the caller's own function by default.
template <class Signature>
struct Slot;
template <class R, class... A>
struct Slot<R(A...)> {
  std::function<R(A...)> replaced;
  template <class Local>
  R operator()(const Local& local, A... args) const {
    return replaced ? replaced(std::forward<A>(args)...) : local(std::forward<A>(args)...);
  }
};

/// What is gathered, recomputed and cut into stages as one piece. A plan may wrap the run of its body. The body owns what it
/// reads, but for the module: it may run again in backward, when its caller has returned.
struct Unit {
  std::function<Tensor(const std::function<Tensor(Tensor)>& body, Tensor x)> wrap{};
  std::optional<DType> computes{};  ///< the type that x is brought to (precision.h); none: it has that
  std::optional<DType> gives{};     ///< the type that the result is brought to; none: it goes on as it is
  template <class Body>
  Tensor operator()(Tensor x, const Body& body) const {
    if (!wrap) return leave(body(enter(std::move(x))));
    if (!computes) return leave(wrap(body, std::move(x)));
    Unit inside;  // x is kept as it came
    inside.computes = computes;
    return leave(wrap([body, inside](Tensor t) { return body(inside.enter(std::move(t))); }, std::move(x)));
  }
  Tensor enter(Tensor x) const;  ///< x in the type that the unit computes in; what runs no body calls these two
  Tensor leave(Tensor y) const;
};

/// What a forward pass knows about the run: nothing about ranks.
struct Pass {
  bool training = false;
  std::uint64_t seed = 0, step = 0;  ///< with a module's path: the keys of its random numbers
};

/// Zeroes values with probability p in training and scales the rest by 1/(1-p). Keyed by (seed, step, path), counted by
/// (sample, position, feature), so a mask doesn't depend on the batch around it.
struct Dropout {
  double p = 0;
  std::uint64_t path = 0;  ///< hash of its path, set by `materialize`
  bool frozen = false;     ///< of a frozen module: off
  /// Where x lies in the activation that `rows` describes, when it is a part of it: a plan sets it.
  std::function<Window(const Tensor& x, const Rows& rows)> window{};
  bool active(const Pass& pass) const { return pass.training && !frozen && p > 0; }
  RandomKey key(const Pass& pass) const;
  Tensor operator()(const Tensor& x, const Rows& rows, const Pass& pass) const;
  Tensor after_silu(const Tensor& x, const Rows& rows, const Pass& pass) const;  ///< of silu(x)
  std::optional<Window> window_of(const Tensor& x, const Rows& rows) const;      ///< none: x is the whole
};

template <class M>
concept Module = requires(M& m) {
  m.fields([](const char*, auto&) {});
};

inline std::string join(const std::string& path, const std::string& name) { return path.empty() ? name : path + '.' + name; }

// Declared before what calls them, so that lists of modules of any namespace are found.
template <class M, class F>
void visit_fields(std::vector<M>& list, const std::string& path, F&& f);
template <class M, class F>
void visit_fields(std::optional<M>& maybe, const std::string& path, F&& f);

/// Calls f(path, leaf) for every Param, Stacked, Buffer, Port, Slot, Unit and Dropout under m, in order of declaration.
template <class Leaf, class F>
void visit_fields(Leaf& leaf, const std::string& path, F&& f) {
  if constexpr (Module<Leaf>) {
    leaf.fields([&](const char* name, auto& child) { visit_fields(child, join(path, name), f); });
  } else {
    f(path, leaf);
  }
}
template <class M, class F>
void visit_fields(std::vector<M>& list, const std::string& path, F&& f) {
  for (std::size_t i = 0; i < list.size(); ++i) visit_fields(list[i], join(path, std::to_string(i)), f);
}
template <class M, class F>
void visit_fields(std::optional<M>& maybe, const std::string& path, F&& f) {
  if (maybe) visit_fields(*maybe, path, f);
}

/// Calls f(path, param) for every logical parameter, parts of a Stacked one by one.
template <class M, class F>
void for_each_param(M& module, F&& f, const std::string& path = "") {
  visit_fields(module, path, [&]<class Leaf>(const std::string& at, Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, Param>) {
      if (leaf) f(at, leaf);
    } else if constexpr (std::is_same_v<Leaf, Stacked>) {
      for (auto& [name, part] : leaf.parts) f(join(at.substr(0, at.rfind('.') == at.npos ? 0 : at.rfind('.')), name), part);
    }
  });
}
template <class M, class F>
void for_each_buffer(M& module, F&& f, const std::string& path = "") {
  visit_fields(module, path, [&]<class Leaf>(const std::string& at, Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, Buffer>) f(at, leaf);
  });
}

}  // namespace chorus
