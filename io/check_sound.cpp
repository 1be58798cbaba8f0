#include <chorus/core/config/check.h>
#include <chorus/core/error.h>
#include <chorus/io/check_sound.h>
#include <chorus/io/digest.h>
#include <chorus/io/shards.h>

#include <algorithm>
#include <cmath>

namespace chorus {
namespace {

void check_samples(const std::vector<float>& samples, SoundCheck& out) {
  float peak = 0;
  std::size_t clipped = 0, run = 0;
  for (const float x : samples) {
    const float size = std::abs(x);
    peak = std::max(peak, size);
    // One sample at the limit is a loud one; three in a row are a flat top.
    run = size >= 0.999f ? run + 1 : 0;
    clipped += run == 3 ? 3 : run > 3 ? 1 : 0;
  }
  const double share = static_cast<double>(clipped) / static_cast<double>(std::max<std::size_t>(samples.size(), 1));
  if (peak < 1e-3f)
    out.findings.push_back({Severity::warning, "silent", "", config::joined("its largest sample is ", peak, " of 1")});
  if (share > 1e-3)
    out.findings.push_back(
        {Severity::warning, "clipped", "", config::joined(100 * share, " % of its samples lie in flat tops at full scale")});
}

}  // namespace

SoundCheck check_sound(const ManifestEntry& entry, bool deep) {
  SoundCheck out;
  const auto error = [&](const char* kind, std::string text) {
    out.findings.push_back({Severity::error, kind, "", std::move(text)});
  };
  AudioInfo info;
  try {
    info = audio_info(entry);
  } catch (const std::exception& e) {
    error("unreadable sound", e.what());
    if (entry.duration > 0) out.seconds = entry.duration;
    return out;
  }
  out.sample_rate = info.sample_rate;
  const std::string name = audio_name(entry).string();
  const double end = info.seconds();
  out.seconds = entry.duration > 0 ? entry.duration : end - entry.offset;
  if (info.channels > 1)
    out.findings.push_back(
        {Severity::warning, "channels", "", config::joined(name, " has ", info.channels, " channels, which will be averaged")});
  if (info.frames == 0) return error("empty sound", name + " has no samples"), out;
  if (entry.offset >= end || entry.offset + out.seconds > end + 0.01)
    return error("beyond the end", config::joined(name, " has ", end, " s, the entry asks for ", entry.offset, " to ",
                                                  entry.offset + out.seconds, " s")),
           out;
  if (out.seconds < 0.1) out.findings.push_back({Severity::warning, "very short", "", config::joined(out.seconds, " s")});
  if (!deep) return out;
  try {
    const std::vector<float> samples = read_audio(entry, info.sample_rate);
    out.digest = digest(samples.data(), samples.size() * sizeof(float));
    check_samples(samples, out);
  } catch (const std::exception& e) {
    error("unreadable sound", e.what());
  }
  return out;
}

}  // namespace chorus
