// Collectives of a team whose members are threads on one device, or on a device each over NCCL: between streams of the
// stand-in, which go on in an order that a seed draws. What is not ordered by an event happens in any order, and is
// seen.
#include "DeviceBlock.h"
#include "NcclRanks.h"
#include "Rounds.h"
#include "StandIn.h"
#include "TeamThreads.h"

#include <gtest/gtest.h>

#include <vector>

namespace pdcrt {
namespace {

constexpr std::int64_t elements = 60; // of 2, 3 and 4 members equal parts
constexpr int rounds = 3;
using Kind = Collective::Kind;

/// Where members are, and what moves between them.
enum class Way { threads, nccl };

void add(Stream& q, const Block& sum, const Block& a, const Block& b) {
  const float* const terms[] = {a.values(), b.values()};
  device::addUp(q, sum.values(), terms, floats);
}

std::vector<float> valuesOf(const Block& block) {
  std::vector<float> values(elements);
  Stream now = device::openStream();
  device::copy(now, values.data(), block.memory(), elements * sizeof(float));
  EXPECT_TRUE(device::wait(now));
  device::close(now);
  return values;
}

/// The transports of the members.
TeamThreads::Transports transportsOf(Way way, int members) {
  stand_in::setDevices(way == Way::nccl ? members : 1);
  if (way == Way::threads) return {};
  TeamThreads::Transports transports;
  for (const Status& status : connectByNccl({laneOfTeam(members)}, members, transports))
    EXPECT_TRUE(status) << status.message();
  return transports;
}

/// A member's device, and its stream there.
Stream openStreamOf(Stream& threads, int member) {
  device::use(member);
  Stream q = device::openStream();
  q.join(threads.team());
  return q;
}

/// Each member adds m + 1 to its data, has them summed up while it computes something else, and adds what has arrived
/// to its result: after three rounds six times the sum of 1 … members. `readsEarly`: it takes what has arrived before
/// the collective has finished. Returns the results of all members.
std::vector<std::vector<float>> sums(Way way, int members, std::uint64_t seed, bool readsEarly = false) {
  stand_in::interleave(seed);
  std::vector<std::vector<float>> results(static_cast<std::size_t>(members));
  TeamThreads team(members, {{.kind = Kind::allReduce, .elements = elements}}, transportsOf(way, members));
  team.run([&](Stream& threads, int member) {
    Stream q = openStreamOf(threads, member);
    const Block step(member, static_cast<float>(member + 1)), data(member), arrived(member), result(member),
        beside(member);
    for (int round = 0; round < rounds; ++round) {
      add(q, data, data, step);
      q.team()->start(0, q, data.memory(), arrived.memory());
      add(q, beside, beside, step);
      if (readsEarly) add(q, result, result, arrived);
      q.team()->finish(0, q);
      if (!readsEarly) add(q, result, result, arrived);
    }
    EXPECT_TRUE(device::wait(q));
    device::close(q);
    results[static_cast<std::size_t>(member)] = valuesOf(result);
  });
  return results;
}

/// Each member has its own number in its part of the data and gathers those of all; and scatters what it has for each.
std::vector<std::vector<float>> exchanged(Way way, Kind kind, int members, std::uint64_t seed) {
  stand_in::interleave(seed);
  const std::int64_t part = elements / members;
  std::vector<std::vector<float>> results(static_cast<std::size_t>(members));
  TeamThreads team(members, {{.kind = kind, .elements = part}}, transportsOf(way, members));
  team.run([&](Stream& threads, int member) {
    Stream q = openStreamOf(threads, member);
    const Block step(member, static_cast<float>(member + 1)), data(member), arrived(member);
    for (int round = 0; round < rounds; ++round) {
      add(q, data, data, step);
      q.team()->start(0, q, data.memory(), arrived.memory());
      q.team()->finish(0, q);
    }
    if (kind != Kind::reduceScatter) // a member's own part does not arrive
      device::copy(q, arrived.values() + member * part, data.values(), static_cast<std::size_t>(part) * sizeof(float));
    EXPECT_TRUE(device::wait(q));
    device::close(q);
    results[static_cast<std::size_t>(member)] = valuesOf(arrived);
  });
  return results;
}

class CudaTeam : public testing::TestWithParam<std::tuple<Way, int>> {
protected:
  const Way way = std::get<0>(GetParam());
  const int members = std::get<1>(GetParam());
  /// Connecting by NCCL takes longer than what is done then.
  const std::uint64_t orders = way == Way::nccl ? static_cast<std::uint64_t>(pdc::rounds(60)) : seeds;
};
INSTANTIATE_TEST_SUITE_P(Members, CudaTeam,
                         testing::Combine(testing::Values(Way::threads, Way::nccl), testing::Values(2, 3, 4)));

TEST_P(CudaTeam, EveryOrderOfStreamsGivesTheSum) {
  const std::vector<float> expected(elements, static_cast<float>(6 * members * (members + 1) / 2));
  for (std::uint64_t seed = 0; seed < orders; ++seed)
    for (const std::vector<float>& result : sums(way, members, seed)) ASSERT_EQ(result, expected) << "seed " << seed;
}

TEST_P(CudaTeam, EveryOrderOfStreamsExchangesParts) {
  const std::int64_t part = elements / members;
  for (std::uint64_t seed = 0; seed < orders; ++seed) {
    for (const Kind kind : {Kind::allGather, Kind::allToAll})
      for (const std::vector<float>& result : exchanged(way, kind, members, seed))
        for (std::int64_t i = 0; i < elements; ++i)
          ASSERT_EQ(result[static_cast<std::size_t>(i)], static_cast<float>(rounds * (i / part + 1)))
              << "seed " << seed;
    const auto scattered = exchanged(way, Kind::reduceScatter, members, seed);
    for (std::int64_t member = 0; member < members; ++member)
      for (std::int64_t i = member * part; i < (member + 1) * part; ++i)
        ASSERT_EQ(scattered[static_cast<std::size_t>(member)][static_cast<std::size_t>(i)],
                  static_cast<float>(rounds * members * (members + 1) / 2))
            << "seed " << seed;
  }
}

TEST_P(CudaTeam, AResultThatIsReadBeforeTheFinishIsFound) {
  const std::vector<float> right(elements, static_cast<float>(6 * members * (members + 1) / 2));
  bool found = false;
  for (std::uint64_t seed = 0; seed < orders && !found; ++seed)
    for (const std::vector<float>& result : sums(way, members, seed, /*readsEarly=*/true))
      found = found || result != right;
  EXPECT_TRUE(found);
}

} // namespace
} // namespace pdcrt
