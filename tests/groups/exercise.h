// Every collective on one group against the obvious answer: the same for threads and for processes. All ranks call these alike;
// failures are GoogleTest's.
#pragma once
#include <chorus/parallel/group/group.h>

namespace chorus::testing {

/// Every operation x type x size x in place or not, with even and uneven counts.
void exercise_collectives(Group& group, std::span<const std::int64_t> sizes);
/// Messages between all pairs, in order, of every type and size.
void exercise_messages(Group& group, std::span<const std::int64_t> sizes);
/// Many calls of different kinds in flight at once, waited for in another order; bits equal those of blocking calls.
void exercise_in_flight(Group& group, std::int64_t size);
/// Groups split from groups, in use side by side.
void exercise_split(Group& group);
/// Arguments that can't be meant are errors that name the group, the rank and the numbers; the group goes on.
void exercise_bad_arguments(Group& group);

}  // namespace chorus::testing
