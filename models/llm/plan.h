#pragma once
#include <chorus/models/llm/config.h>
#include <chorus/parallel/plan.h>

namespace chorus {

/// What of the configuration doesn't divide over so many tensor-parallel ranks; empty: nothing.
std::vector<WrongSize> wrong_heads(const LlmConfig& config, int tp);

/// How the decoder lies on an axis of tensor-parallel ranks (Shoeybi et al. 2019): columns of q, k, v, gate and up, rows of
/// what follows them, the vocabulary of embedding and head. With `sequence_parallel` (Korthikanti et al. 2022) rows are sharded
/// between those, so that norms, dropouts and residuals are shared out too. Fewer key/value heads than ranks are repeated.
/// Paths are those of `Llm`. An error when heads don't divide.
Plan llm_plan(const LlmConfig& config, const Mesh& mesh, bool sequence_parallel);

}  // namespace chorus
