// Small models for parity tests: at least two layers of each kind, and sizes that are no powers of two.
#pragma once
#include <chorus/models/salm/plan.h>
#include <chorus/parallel/parity.h>

#include <compare>

namespace chorus::testing {

inline constexpr int samples = 5;  ///< of a step

/// What is varied beside the mesh.
struct ParityVariant {
  std::string model = "decoder";  ///< or perception (an encoder before a frozen decoder), salm, ctc
  int kv_heads = 4;
  bool tied = false, dropout = true, rotary = false, batch_norm = false;
  bool sequence_parallel = false;
  std::vector<std::string> freeze;
  /// Samples without labels and without audio.
  std::vector<int> without_labels, without_audio;
  int heads = 12;           ///< of the decoder's queries
  bool empty_loss = false;  ///< of no samples there is no loss at all, not one of no rows
  friend auto operator<=>(const ParityVariant&, const ParityVariant&) = default;
};

ParityModel<Salm> parity_model(const ParityVariant& variant);

}  // namespace chorus::testing
