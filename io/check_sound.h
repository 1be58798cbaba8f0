// What can be wrong with the sound of one entry.
#pragma once
#include <chorus/io/check.h>

namespace chorus {

struct SoundCheck {
  std::vector<Finding> findings;  ///< without places
  double seconds = -1;            ///< of the entry; < 0: unknown
  int sample_rate = 0;
  std::string digest;  ///< of the samples, where they were read
};

SoundCheck check_sound(const ManifestEntry& entry, bool deep);

}  // namespace chorus
