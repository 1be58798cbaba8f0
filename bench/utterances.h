// How long the recordings of the speech workloads are.
#pragma once

namespace chorus::bench {

/// Seconds of twenty utterances, as read speech mostly has them: many near 15 s, few short ones.
inline constexpr double utterance_seconds[] = {16.7, 3.7,  15.4, 14.1, 12.6, 16.1, 5.6,  14.9, 15.9, 13.3,
                                               2.2,  15.2, 11.5, 14.7, 16.4, 7.9,  13.8, 15.6, 9.8,  14.4};

}  // namespace chorus::bench
