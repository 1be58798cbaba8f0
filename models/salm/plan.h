#pragma once
#include <chorus/models/salm/model.h>
#include <chorus/parallel/plan.h>

namespace chorus {

/// Encoder and decoder by their own plans; what is between them and the CTC head lies whole on every tensor-parallel rank.
Plan salm_plan(const SalmConfig& config, const Mesh& mesh, bool sequence_parallel);

/// The loss of a batch without rows, in which all parts of the model that have a weight take part: what ranks must agree on
/// before there are samples.
Tensor loss_without_rows(Salm& model, Context& context, DType dtype, double llm_weight = 1, double ctc_weight = 1);

/// Checks, without memory for parameters, that nothing meets in the model that must not (`check_layouts`). After `apply`.
void check_salm_layouts(Salm& model, Context& context, DType dtype, const Precision& precision = {});

}  // namespace chorus
