#include <chorus/tensor/kernels/onednn.h>

#include <dnnl.hpp>
#include <map>

namespace chorus::kernel {

/// What a context keeps of oneDNN. Lives in Context::primitives.
struct Primitives {
  struct Entry {
    dnnl::matmul primitive;
    std::unordered_map<int, dnnl::memory> arguments;  // memory objects without data; a call sets the pointers
    std::int64_t scratch_bytes;
  };
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<onednn::Product, Entry> known;
  std::int64_t created = 0;
};

namespace onednn {
namespace {

using dnnl::memory;

memory::data_type type(DType t) {
  require(t == DType::f32 || t == DType::bf16, "matmul", "oneDNN products take f32 and bf16, not ", t);
  return t == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc matrix(std::int64_t rows, std::int64_t cols, DType t, bool transposed) {
  // A transposed operand lies in memory as [cols, rows].
  return {memory::dims{rows, cols}, type(t), transposed ? memory::dims{1, rows} : memory::dims{cols, 1}};
}

// oneDNN 2.x describes an operation first, 3.x doesn't: whichever the header has is compiled.
template <class Matmul>
auto describe(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b, const memory::desc* bias,
              const memory::desc& y, const dnnl::primitive_attr& attributes) {
  using Description = typename Matmul::primitive_desc;
  if constexpr (requires { typename Matmul::desc; }) {
    using Operation = typename Matmul::desc;
    return Description(bias ? Operation(a, b, *bias, y) : Operation(a, b, y), attributes, engine);
  } else {
    return bias ? Description(engine, a, b, *bias, y, attributes) : Description(engine, a, b, y, attributes);
  }
}

Primitives::Entry create(const dnnl::engine& engine, const Product& p) {
  const auto a = matrix(p.m, p.k, p.in, p.form == Form::tn), b = matrix(p.k, p.n, p.in, p.form == Form::nt);
  const auto y = matrix(p.m, p.n, p.out, false), bias = matrix(1, p.n, p.bias.value_or(DType::f32), false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops after;
    after.append_sum(1.0f);
    attributes.set_post_ops(after);
  }
  const auto description = describe<dnnl::matmul>(engine, a, b, p.bias ? &bias : nullptr, y, attributes);
  const auto unset = [&](const memory::desc& d) { return memory(d, engine, DNNL_MEMORY_NONE); };
  Primitives::Entry entry{dnnl::matmul(description),
                          {{DNNL_ARG_SRC, unset(a)},
                           {DNNL_ARG_WEIGHTS, unset(b)},
                           {DNNL_ARG_DST, unset(y)},
                           {DNNL_ARG_SCRATCHPAD, unset(description.scratchpad_desc())}},
                          static_cast<std::int64_t>(description.scratchpad_desc().get_size())};
  if (p.bias) entry.arguments.emplace(DNNL_ARG_BIAS, unset(bias));
  return entry;
}

Primitives& primitives(Context& context) {
  if (!context.primitives) context.primitives = std::make_shared<Primitives>();
  return *context.primitives;
}

}  // namespace

void product(Context& context, const Product& what, const void* a, const void* b, const void* bias, void* y) {
  auto& all = primitives(context);
  try {
    auto found = all.known.find(what);
    if (found == all.known.end()) {
      found = all.known.emplace(what, create(all.engine, what)).first;
      ++all.created;
    }
    auto& [primitive, arguments, scratch_bytes] = found->second;
    const auto point = [&](int argument, const void* data) {
      arguments.at(argument).set_data_handle(const_cast<void*>(data));  // oneDNN has no const handles; inputs are only read
    };
    Tensor scratch;
    if (scratch_bytes) scratch = Tensor::empty(context, {scratch_bytes}, DType::u8, Category::workspace);
    point(DNNL_ARG_SRC, a);
    point(DNNL_ARG_WEIGHTS, b);
    point(DNNL_ARG_DST, y);
    point(DNNL_ARG_SCRATCHPAD, scratch.data());
    if (what.bias) point(DNNL_ARG_BIAS, bias);
    primitive.execute(all.stream, arguments);
    all.stream.wait();
  } catch (const dnnl::error& error) {
    fail("matmul", "oneDNN failed on ", what.in, " -> ", what.out, ", m ", what.m, ", n ", what.n, ", k ", what.k, ": ",
         error.what());
  }
}

std::int64_t primitives_created(const Context& context) { return context.primitives ? context.primitives->created : 0; }

namespace {

bool has(dnnl::cpu_isa isa) {
  // The values are sets of bits; 0 stands for an instruction set that is newer than this header.
  const auto here = static_cast<unsigned>(dnnl::get_effective_cpu_isa()), asked = static_cast<unsigned>(isa);
  return here == 0 || (here & asked) == asked;
}

bool made_by_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

}  // namespace

bool has_bf16() { return has(dnnl::cpu_isa::avx512_core_bf16); }

bool native_bf16() { return has(dnnl::cpu_isa::avx512_core_amx) || (has_bf16() && !made_by_intel()); }

bool has_avx512() {
#if defined(__x86_64__)
  // oneDNN alone won't do: it has no name for processors with a part of these.
  const bool here = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  constexpr bool here = false;
#endif
  return here && has(dnnl::cpu_isa::avx512_core);
}

bool bits_depend_on_threads() { return !has_avx512(); }

std::string description() {
  const auto* version = dnnl::version();
  std::ostringstream text;
  text << "oneDNN " << version->major << '.' << version->minor << '.' << version->patch << ", "
       << (has(dnnl::cpu_isa::avx512_core_amx)    ? "AVX-512 AMX"
           : has(dnnl::cpu_isa::avx512_core_bf16) ? "AVX-512 bf16"
           : has(dnnl::cpu_isa::avx512_core)      ? "AVX-512"
           : has(dnnl::cpu_isa::avx2)             ? "AVX2"
                                                  : "no AVX2");
  return text.str();
}

}  // namespace onednn
}  // namespace chorus::kernel
