// How fast attention runs, in useful flops: of causal attention the visible half. Prints `figure NAME VALUE UNIT` lines;
// compare with bench_ceilings of the same thread count.
//   bench_attention [filter]
//   bench_attention --length 1k|8k|32k --dtype f32|bf16
// The second form times forward and backward together on one causal sequence (9 heads of 64 over 3 key/value heads), as
// bench/peers/attention.py does, and prints seconds (median), flops (12 x 64 x 9 for each visible pair) and memory (MiB).
#include <chorus/tensor/ops/attention.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "process.h"

namespace chorus {
namespace {

struct AttentionWorkload {
  std::string name;
  std::vector<std::int64_t> lengths;
  int heads, kv_heads, head_dim;
  bool causal = true, relative = false;
  double dropout = 0;
};

Tensor noise(Context& context, const Shape& shape, DType dtype, std::uint64_t stream) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  fill_normal(RandomKey{stream}, 0, values, 0, 1);
  Tensor t = Tensor::empty(context, shape, dtype);
  dispatch_floating(dtype, "noise", [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) t.as<T>()[i] = static_cast<T>(values[i]);
  });
  return t;
}

void measure(const AttentionWorkload& w, DType dtype) {
  Context context;
  context.trace.sum(true);
  std::vector<std::int64_t> ids(w.lengths.size(), 1);
  const Rows rows = make_rows(context, w.lengths, ids);
  const AttentionOptions options{w.heads, w.kv_heads, w.head_dim, w.causal, w.dropout, RandomKey{5}};
  const std::int64_t features = std::int64_t{w.heads} * w.head_dim;
  Tensor qkv = noise(context, {rows.count(), (w.heads + 2 * w.kv_heads) * w.head_dim}, dtype, 1);
  make_leaf(qkv, Tensor::zeros(context, qkv.shape(), wide(dtype)));
  const Tensor u = noise(context, {features}, dtype, 2), p = noise(context, {2 * rows.longest() - 1, features}, dtype, 3);
  const Tensor dy = noise(context, {rows.count(), features}, dtype, 4);
  std::map<std::string, double> best;
  for (double spent = 0; spent < 0.4;) {
    context.trace.reset();
    backward(w.relative ? relative_attention(qkv, u, u, p, rows, options) : attention(qkv, rows, options),
             {.cotangent = dy.clone()});
    for (const auto& [name, total] : context.trace.totals()) {
      best[name] = std::max(best[name], total.flops / total.seconds);
      spent += total.seconds;
    }
  }
  for (const auto& [name, rate] : best) {
    const bool back = name.ends_with(".backward");
    std::printf("figure attention.%s.%s.%s_gflops %.1f GFLOP/s\n", w.name.c_str(), std::string(chorus::name(dtype)).c_str(),
                back ? "backward" : "forward", rate / 1e9);
  }
  std::fflush(stdout);
}

void measure_sequence(std::int64_t length, DType dtype) {
  using Clock = std::chrono::steady_clock;
  const double resident = bench::resident_bytes("VmRSS");
  Context context;
  const Rows rows = make_rows(context, std::vector<std::int64_t>{length}, std::vector<std::int64_t>{1});
  const AttentionOptions options{9, 3, 64, true, 0, RandomKey{5}};
  Tensor leaf = noise(context, {length, 15 * 64}, dtype, 1);
  make_leaf(leaf, Tensor::zeros(context, leaf.shape(), wide(dtype)));
  const Tensor dy = noise(context, {length, 9 * 64}, dtype, 4);
  const auto run = [&] {
    const auto begin = Clock::now();
    backward(attention(leaf, rows, options), {.cotangent = dy.clone()});
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  run();
  std::vector<double> times;
  for (double spent = 0; times.size() < 3 || spent < 1; spent += times.back()) times.push_back(run());
  std::sort(times.begin(), times.end());
  const double pairs = static_cast<double>(length * (length + 1)) / 2;
  std::printf("seconds %.6f\nflops %.6g\nmemory %.1f\n", times[times.size() / 2], 12 * 64 * 9 * pairs,
              (bench::resident_bytes("VmHWM") - resident) / 1048576.0);
}

}  // namespace
}  // namespace chorus

int main(int argc, char** argv) {
  using chorus::DType;
  if (argc == 5 && std::string(argv[1]) == "--length" && std::string(argv[3]) == "--dtype") {
    chorus::measure_sequence(1024 * std::atoll(argv[2]), std::string(argv[4]) == "bf16" ? DType::bf16 : DType::f32);
    return 0;
  }
  const std::string filter = argc > 1 ? argv[1] : "";
  const chorus::AttentionWorkload workloads[] = {
      {"causal.1024", {1024, 1024}, 9, 3, 64},
      {"causal.256", std::vector<std::int64_t>(8, 256), 9, 3, 64},
      {"causal.64", std::vector<std::int64_t>(32, 64), 9, 3, 64},
      {"full.1024", {1024}, 8, 8, 64, false},
      {"full.d128", {1024}, 4, 4, 128, false},
      {"demo.encoder", {250}, 4, 4, 36, false},
      {"demo.decoder", {60, 75, 110, 180}, 4, 4, 48},
      {"demo.dropout", {60, 75, 110, 180}, 4, 4, 48, true, false, 0.1},
      {"relative.250", {250, 130}, 4, 4, 36, false, true},
      {"relative.1000", {1000}, 8, 8, 64, false, true},
  };
  for (const auto& w : workloads)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
      if ((w.name + "." + std::string(name(dtype))).find(filter) != std::string::npos) measure(w, dtype);
}
