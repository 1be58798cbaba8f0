// SpecAugment (Park et al. 2019). Choices depend on (seed, epoch, sample id) only, never on who shares a batch.
#pragma once
#include <chorus/core/config/check.h>

#include <cstdint>
#include <span>
#include <string>

namespace chorus {

struct SpecAugmentConfig {
  int freq_masks = 2;
  int freq_width = 27;
  int time_masks = 10;
  int time_mask_every = 0;
  int time_width = 1000;
  double time_fraction = 0.05;

  template <class V>
  void fields(V&& v) {
    v("freq_masks", freq_masks, "masks of adjacent mels", between(0, 1000));
    v("freq_width", freq_width, "mels of the widest mask", at_least(0));
    v("time_masks", time_masks, "masks of adjacent frames", between(0, 10'000));
    v("time_mask_every", time_mask_every, "one time mask per so many frames, at least one, instead of time_masks; 0: off",
      at_least(0));
    v("time_width", time_width, "frames of the widest time mask", at_least(0));
    v("time_fraction", time_fraction, "and its largest share of the sample", between(0.0, 1.0));
  }
};

/// Sets bands of normalised features [frames, mels] to `value` (0 is the mean). Widths are uniform from 0 to the widest,
/// places uniform where they fit.
void spec_augment(std::span<float> features, int mels, const SpecAugmentConfig& config, std::uint64_t seed, std::uint64_t epoch,
                  std::int64_t sample, float value = 0);

}  // namespace chorus
