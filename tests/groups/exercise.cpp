#include "groups/exercise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "groups/values.h"

namespace chorus::testing {
namespace {

/// Parts of ranks: equal ones, or any from 0 to `size`, of which some are empty.
std::vector<std::int64_t> parts(int ranks, std::int64_t size, bool even) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), size / ranks);
  if (even) return counts;
  for (int r = 0; r < ranks; ++r) {
    const auto bits = bits_of(r, size, 99);
    counts[static_cast<std::size_t>(r)] = bits % 3 == 0 ? 0 : static_cast<std::int64_t>(bits >> 8) & 0x7fffffff;
    counts[static_cast<std::size_t>(r)] %= size + 1;
  }
  return counts;
}
std::int64_t sum(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}
std::int64_t before(const std::vector<std::int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
}

template <class T>
struct Exercise {
  Group& group;
  std::int64_t size;
  std::uint64_t salt = 0;
  int n = group.size(), me = group.rank();

  std::string what(const char* op, const char* how = "") const {
    std::ostringstream text;
    text << op << how << " of " << size << ' ' << dtype_of<T> << ", rank " << me << " of " << n;
    return text.str();
  }
  auto mine() const {
    return [rank = me, salt = salt](std::int64_t i) { return value_of<T>(rank, i, salt); };
  }

  void all_reduce() {
    for (const Reduce how : {Reduce::sum, Reduce::max, Reduce::min}) {
      ++salt;
      Guarded<T> x(size);
      x.fill(mine());
      group.all_reduce(x.elements(), how);
      x.expect([&](std::int64_t i) { return reduced<T>(n, i, salt, how); }, what("all_reduce"));
    }
  }

  void all_gather(const std::vector<std::int64_t>& counts, bool in_place) {
    ++salt;
    const auto own = counts[static_cast<std::size_t>(me)];
    Guarded<T> in(own), out(sum(counts));
    in.fill(mine());
    T* part = out.data() + before(counts, me);
    if (in_place) std::copy_n(in.data(), own, part);
    group.all_gather({in_place ? part : in.data(), own, dtype_of<T>}, out.elements(), counts);
    out.expect(
        [&](std::int64_t i) {
          int r = 0;
          for (; i >= counts[static_cast<std::size_t>(r)]; ++r) i -= counts[static_cast<std::size_t>(r)];
          return value_of<T>(r, i, salt);
        },
        what("all_gather", in_place ? " in place" : ""));
  }

  void reduce_scatter(const std::vector<std::int64_t>& counts, bool in_place) {
    ++salt;
    const auto own = counts[static_cast<std::size_t>(me)], offset = before(counts, me);
    Guarded<T> in(sum(counts)), out(own);
    in.fill(mine());
    T* target = in_place ? in.data() + offset : out.data();
    group.reduce_scatter(in.elements(), {target, own, dtype_of<T>}, counts);
    if (in_place) std::copy_n(target, own, out.data());
    out.expect([&](std::int64_t i) { return reduced<T>(n, offset + i, salt, Reduce::sum); },
               what("reduce_scatter", in_place ? " in place" : ""));
    const auto kept = [&](std::int64_t i) { return in_place && i >= offset && i < offset + own ? in.data()[i] : mine()(i); };
    in.expect(kept, what("the input of reduce_scatter"));
  }

  void all_to_all(bool even) {
    ++salt;
    const auto between = [&](int from, int to) {
      return even ? size / n
                  : static_cast<std::int64_t>(bits_of(from * n + to, size, 7) % static_cast<std::uint64_t>(size + 1));
    };
    std::vector<std::int64_t> send, receive;
    for (int r = 0; r < n; ++r) send.push_back(between(me, r)), receive.push_back(between(r, me));
    Guarded<T> in(sum(send)), out(sum(receive));
    in.fill(mine());
    group.all_to_all(in.elements(), send, out.elements(), receive);
    out.expect(
        [&](std::int64_t i) {
          int from = 0;
          for (; i >= receive[static_cast<std::size_t>(from)]; ++from) i -= receive[static_cast<std::size_t>(from)];
          for (int to = 0; to < me; ++to) i += between(from, to);
          return value_of<T>(from, i, salt);
        },
        what("all_to_all"));
  }

  void broadcast() {
    for (int root = 0; root < n; ++root) {
      ++salt;
      Guarded<T> x(size);
      x.fill(mine());
      group.broadcast(x.elements(), root);
      x.expect([&](std::int64_t i) { return value_of<T>(root, i, salt); }, what("broadcast"));
    }
  }

  void moves() {
    for (const bool even : {true, false}) {
      const auto counts = parts(n, size, even);
      for (const bool in_place : {false, true}) all_gather(counts, in_place);
      all_to_all(even);
    }
    broadcast();
  }
  void reductions() {
    all_reduce();
    for (const bool even : {true, false})
      for (const bool in_place : {false, true}) reduce_scatter(parts(n, size, even), in_place);
  }
};

template <class F>
void for_each_type(F f) {
  f.template operator()<float>();
  f.template operator()<bf16>();
  f.template operator()<double>();
  f.template operator()<std::int32_t>();
  f.template operator()<std::int64_t>();
}

}  // namespace

void exercise_collectives(Group& group, std::span<const std::int64_t> sizes) {
  for (const auto size : sizes) {
    for_each_type([&]<class T>() {
      Exercise<T> exercise{group, size};
      exercise.reductions();
      exercise.moves();
    });
    Exercise<std::uint8_t>{group, size}.moves();
  }
  group.barrier();
}

void exercise_messages(Group& group, std::span<const std::int64_t> sizes) {
  const int n = group.size(), me = group.rank();
  for (const auto size : sizes)
    for_each_type([&]<class T>() {
      for (int from = 0; from < n; ++from)
        for (int to = 0; to < n; ++to) {
          if (from == to || (me != from && me != to)) continue;
          Guarded<T> first(size), second(size + 1);
          if (me == from) {
            first.fill([&](std::int64_t i) { return value_of<T>(from, i, 1); });
            second.fill([&](std::int64_t i) { return value_of<T>(from, i, 2); });
            group.send(first.elements(), to);
            group.send(second.elements(), to);
          } else {
            auto later = group.start_receive(first.elements(), from);
            group.receive(second.elements(), from);
            later.wait();
            first.expect([&](std::int64_t i) { return value_of<T>(from, i, 1); }, "the first message");
            second.expect([&](std::int64_t i) { return value_of<T>(from, i, 2); }, "the second message");
          }
        }
      if (n == 1) return;
      // Everybody sends to the next rank while receiving from the one before.
      Guarded<T> out(size), in(size);
      out.fill([&](std::int64_t i) { return value_of<T>(me, i, 3); });
      auto sending = group.start_send(out.elements(), (me + 1) % n);
      auto receiving = group.start_receive(in.elements(), (me + n - 1) % n);
      receiving.wait();
      sending.wait();
      in.expect([&](std::int64_t i) { return value_of<T>((me + n - 1) % n, i, 3); }, "a message around the ring");
    });
}

void exercise_in_flight(Group& group, std::int64_t size) {
  const int n = group.size(), me = group.rank();
  constexpr int rounds = 8;
  std::vector<Guarded<float>> reductions, blocking;
  std::vector<Guarded<bf16>> gathered;
  std::vector<Guarded<double>> scattered, scatter_inputs;
  reductions.reserve(rounds), blocking.reserve(rounds), gathered.reserve(rounds), scattered.reserve(rounds);
  scatter_inputs.reserve(rounds);
  std::vector<Guarded<std::int32_t>> exchanged, exchange_inputs;
  exchanged.reserve(rounds), exchange_inputs.reserve(rounds);
  std::vector<Pending> pending;
  const auto value = [&](int round) {
    return [round, me](std::int64_t i) { return value_of<float>(me, i, 50 + static_cast<std::uint64_t>(round)); };
  };
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t count = size + 13 * round;
    auto& x = reductions.emplace_back(count);
    x.fill(value(round));
    pending.push_back(group.start_all_reduce(x.elements()));
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(n), count);  // gone before the calls have ended
    auto& all = gathered.emplace_back(count * n);
    bf16* part = all.data() + me * count;
    for (std::int64_t i = 0; i < count; ++i) part[i] = value_of<bf16>(me, i, 70);
    pending.push_back(group.start_all_gather({part, count, DType::bf16}, all.elements(), counts));
    auto& in = scatter_inputs.emplace_back(count * n);
    in.fill([&](std::int64_t i) { return value_of<double>(me, i, 80); });
    pending.push_back(group.start_reduce_scatter(in.elements(), scattered.emplace_back(count).elements(), counts));
    auto& given = exchange_inputs.emplace_back(count * n);
    given.fill([&](std::int64_t i) { return value_of<std::int32_t>(me, i, 90); });
    const std::vector<std::int64_t> same(counts);
    pending.push_back(group.start_all_to_all(given.elements(), same, exchanged.emplace_back(count * n).elements(), same));
  }
  // 7 and 32 have no common factor.
  for (std::size_t i = 0; i < pending.size(); ++i) pending[(i * 7 + 3) % pending.size()].wait();
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t count = size + 13 * round;
    const auto at = static_cast<std::size_t>(round);
    auto& x = blocking.emplace_back(count);
    x.fill(value(round));
    group.all_reduce(x.elements());
    x.expect([&](std::int64_t i) { return reductions[at].data()[i]; }, "a blocking reduction against one in flight");
    x.expect([&](std::int64_t i) { return reduced<float>(n, i, 50 + at, Reduce::sum); }, "a reduction");
    gathered[at].expect([&](std::int64_t i) { return value_of<bf16>(static_cast<int>(i / count), i % count, 70); }, "a gather");
    exchanged[at].expect(
        [&](std::int64_t i) { return value_of<std::int32_t>(static_cast<int>(i / count), me * count + i % count, 90); },
        "an exchange");
    scattered[at].expect([&](std::int64_t i) { return reduced<double>(n, me * count + i, 80, Reduce::sum); }, "a scatter");
  }
}

void exercise_split(Group& group) {
  const int n = group.size(), me = group.rank();
  const auto expect_sum = [](Group& g, std::int64_t mine, std::int64_t want) {
    std::int64_t x = mine;
    g.all_reduce(std::span<std::int64_t>(&x, 1));
    EXPECT_EQ(x, want) << g.name() << ", rank " << g.rank();
  };
  const auto rows = group.split(me / 2, me, "rows");
  const auto columns = group.split(me % 2, -me, "columns");  // backwards
  const int row_size = std::min(2, n - me / 2 * 2);
  ASSERT_EQ(rows->size(), row_size);
  EXPECT_EQ(rows->rank(), me % 2);
  const int column_size = (n + (me % 2 == 0 ? 1 : 0)) / 2;
  ASSERT_EQ(columns->size(), column_size);
  EXPECT_EQ(columns->rank(), column_size - 1 - me / 2);
  EXPECT_EQ(columns->name(), "columns");
  std::int64_t row_sum = 0, column_sum = 0, all = 0;
  for (int r = 0; r < n; ++r) {
    if (r / 2 == me / 2) row_sum += 1 << r;
    if (r % 2 == me % 2) column_sum += 1 << r;
    all += 1 << r;
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    expect_sum(*columns, 1 << me, column_sum);
    expect_sum(*rows, 1 << me, row_sum);
    expect_sum(group, 1 << me, all);
  }
  // Some stay outside; the others' group is split again.
  const bool inside = me > 0;
  const auto some = group.split(inside ? 5 : -1, 0, "some");
  EXPECT_EQ(some != nullptr, inside);
  if (inside) {
    EXPECT_EQ(some->size(), n - 1);
    const auto alone = some->split(me, 0, "alone");
    EXPECT_EQ(alone->size(), 1);
    EXPECT_EQ(alone->members(), std::vector<int>{group.members()[static_cast<std::size_t>(me)]});
    expect_sum(*alone, 41 + me, 41 + me);
    const auto again = some->split(0, me, "again");
    expect_sum(*again, 1 << me, all - 1);
  }
  const auto last = group.split(0, 0, "last");
  expect_sum(*last, 1 << me, all);
}

void exercise_bad_arguments(Group& group) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  const std::size_t n = static_cast<std::size_t>(group.size());
  std::vector<float> x(4 * n), y(8 * n);
  const Elements all{x.data(), static_cast<std::int64_t>(x.size()), DType::f32};
  const std::vector<std::int64_t> counts(n, 4), wrong(n, 3), many(n + 1, 4);
  const auto expect = [&](auto call, const std::string& text) {
    EXPECT_THAT(call, ThrowsMessage<Error>(AllOf(
                          HasSubstr("group '" + group.name() + "', rank " + std::to_string(group.rank())), HasSubstr(text))));
  };
  expect([&] { group.all_reduce({x.data(), -1, DType::f32}); }, "-1 elements");
  expect([&] { group.all_reduce({nullptr, 3, DType::f32}); }, "no memory");
  expect([&] { group.all_reduce({x.data(), 1, DType::u8}); }, "can't reduce u8; it takes f32, bf16, f64, i32 and i64");
  expect([&] { group.all_gather({y.data(), 4, DType::f32}, all, many); }, "counts for");
  expect([&] { group.all_gather({y.data(), 3, DType::f32}, all, wrong); }, "together");
  expect([&] { group.all_gather({y.data(), 5, DType::f32}, all, counts); }, "in has 5 elements, its part is 4");
  expect([&] { group.all_gather({y.data(), 4, DType::bf16}, all, counts); }, "reads bf16 and writes f32");
  expect([&] { group.all_gather({x.data() + 4 * group.rank() + 1, 4, DType::f32}, all, counts); }, "overlaps");
  expect([&] { group.reduce_scatter(all, {y.data(), 5, DType::f32}, counts); }, "out has 5 elements, its part is 4");
  expect([&] { group.all_to_all(all, counts, all, counts); }, "overlaps");
  expect([&] { group.broadcast(all, group.size()); }, "there is no rank " + std::to_string(n));
  expect([&] { group.send(all, group.rank()); }, "doesn't send to itself");
  expect([&] { group.receive(all, -1); }, "there is no rank -1");
  group.barrier();
}

}  // namespace chorus::testing
