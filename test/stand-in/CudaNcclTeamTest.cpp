// Collectives of a team by NCCL, on its stand-in, which waits wherever NCCL is allowed to wait: the bits of those over
// transfers, the bytes, what happens where members do not keep one order, and where one of them is gone.
#include "DeviceBlock.h"
#include "NcclRanks.h"
#include "StandIn.h"
#include "TeamThreads.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace pdcrt {
namespace {

using Kind = Collective::Kind;
using Combine = Collective::Combine;
using Bytes = std::vector<std::byte>;

/// The team's lane, and one for an edge between its first two members.
constexpr int forth = 7;
std::vector<NcclLane> lanesOf(int members) {
  return {{.name = "values of edge 0 > 1", .ranks = {0, 1}, .links = {{0, 1, forth}}, .channel = 101},
          laneOfTeam(members)};
}

TeamThreads::Transports byNccl(int members) {
  TeamThreads::Transports transports;
  for (const Status& status : connectByNccl(lanesOf(members), members, transports))
    EXPECT_TRUE(status) << status.message();
  return transports;
}

/// Memory on the device of a member.
class Memory {
public:
  Memory(int member, std::size_t size) : member_(member), size_(size) {
    device::use(member_);
    memory_ = device::allocate(std::max<std::size_t>(size, 1));
  }
  ~Memory() {
    device::use(member_);
    device::release(memory_, std::max<std::size_t>(size_, 1));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return memory_; }
  void fill(Stream& q, const Bytes& from) const { device::copy(q, memory_, from.data(), size_); }
  Bytes bytes(Stream& q) const {
    Bytes result(size_);
    device::copy(q, result.data(), memory_, size_);
    EXPECT_TRUE(device::wait(q));
    return result;
  }

private:
  int member_;
  std::size_t size_;
  std::byte* memory_;
};

template <class T>
void append(Bytes& bytes, T value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}

/// Numbers whose sums depend on the order of their terms, where the element can show it.
Bytes random(Element element, std::int64_t count, int member) {
  std::mt19937 engine(static_cast<unsigned>(17 + member));
  std::uniform_real_distribution<float> uniform(-1, 1);
  Bytes bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = std::ldexp(uniform(engine), static_cast<int>(engine() % 6));
    switch (element) {
    case Element::f16: append(bytes, float16(value)); break;
    case Element::bf16: append(bytes, bfloat16(value)); break;
    case Element::boolean: append(bytes, static_cast<std::uint8_t>(value > 0)); break;
    default:
      withElement(element, [&]<class T>(T) {
        append(bytes, static_cast<T>(std::is_unsigned_v<T> ? value * value : 3 * value));
      });
    }
  }
  return bytes;
}

std::int64_t dataElements(const Collective& what, int members) {
  const bool ofParts = what.kind == Kind::reduceScatter || what.kind == Kind::allToAll;
  return ofParts ? what.elements * members : what.elements;
}

/// What the collectives give a member: the parts that Team.h promises, of all one after the other.
Bytes promised(const Collective& what, const Bytes& arrived, int member, int members) {
  const std::size_t part = static_cast<std::size_t>(what.elements) * bytesOf(what.element);
  const auto at = [&](int m) { return arrived.begin() + static_cast<std::ptrdiff_t>(part) * m; };
  if (what.kind == Kind::allReduce) return {arrived.begin(), at(1)};
  if (what.kind == Kind::reduceScatter) return {at(member), at(member + 1)};
  Bytes result;
  for (int m = 0; m < members; ++m)
    if (m != member) result.insert(result.end(), at(m), at(m + 1));
  return result;
}

struct Results {
  std::vector<Bytes> bytes; ///< by member
  std::vector<std::uint64_t> sent;
  friend bool operator==(const Results&, const Results&) = default;
};

Results resultsOf(const std::vector<Collective>& collectives, int members, TeamThreads::Transports transports) {
  Results results{std::vector<Bytes>(static_cast<std::size_t>(members)), {}};
  TeamThreads team(members, collectives, std::move(transports));
  team.run([&](Stream& threads, int member) {
    device::use(member);
    Stream q = device::openStream();
    q.join(threads.team());
    for (std::size_t i = 0; i < collectives.size(); ++i) {
      const Collective& what = collectives[i];
      const Bytes values = random(what.element, dataElements(what, members), member);
      const Memory data(member, values.size()),
          arrived(member, static_cast<std::size_t>(what.arrivedElements(members)) * bytesOf(what.element));
      data.fill(q, values);
      q.team()->start(static_cast<int>(i), q, data.data(), arrived.data());
      q.team()->finish(static_cast<int>(i), q);
      const Bytes got = promised(what, arrived.bytes(q), member, members);
      Bytes& all = results.bytes[static_cast<std::size_t>(member)];
      all.insert(all.end(), got.begin(), got.end());
      EXPECT_EQ(data.bytes(q), values);
    }
    device::close(q);
  });
  team.stop();
  for (int member = 0; member < members; ++member) results.sent.push_back(team.bytesSent(member));
  return results;
}

class CudaNcclTeam : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Members, CudaNcclTeam, testing::Values(2, 3, 4));

/// The stand-in adds in member order.
TEST_P(CudaNcclTeam, MakesAndCountsWhatTransfersMake) {
  std::vector<Collective> collectives;
  for (const Kind kind : {Kind::allReduce, Kind::reduceScatter, Kind::allGather, Kind::allToAll})
    for (const Element element :
         {Element::f64, Element::f32, Element::f16, Element::bf16, Element::i64, Element::i32, Element::i16,
          Element::i8, Element::u64, Element::u32, Element::u16, Element::u8, Element::boolean})
      for (const Combine combine : {Combine::sum, Combine::max, Combine::min}) {
        const bool adds = kind == Kind::allReduce || kind == Kind::reduceScatter;
        const bool isKnown = element != Element::i16 && element != Element::u16 && element != Element::boolean;
        if (adds ? !isKnown : combine != Combine::sum) continue;
        collectives.push_back({.kind = kind, .combine = combine, .element = element, .elements = 37});
      }
  const int members = GetParam();
  stand_in::setDevices(1);
  const Results expected = resultsOf(collectives, members, {});
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    stand_in::interleave(seed);
    const Results results = resultsOf(collectives, members, byNccl(members));
    for (std::size_t m = 0; m < results.bytes.size(); ++m) ASSERT_EQ(results.bytes[m], expected.bytes[m]) << seed;
    ASSERT_EQ(results.sent, expected.sent) << seed;
  }
}

TEST(CudaNcclTeam, RefusesNumbersThatNcclDoesNotAdd) {
  TeamThreads team(2,
                   {{.kind = Kind::allGather, .element = Element::i16, .elements = 4},
                    {.kind = Kind::allReduce, .element = Element::i16, .elements = 4}},
                   byNccl(2));
  for (const Status& status : team.made) {
    EXPECT_EQ(status.code(), Exit::usage);
    EXPECT_EQ(status.message(),
              "NCCL does not combine integers of 16 bits or booleans, as all-reduce 1 of the team does");
    EXPECT_EQ(status.help(), "start the programs with --transport=host");
  }
}

TEST(CudaNcclTeam, ASecondStartBeforeTheFinishIsRefused) {
  TeamThreads team(2, {{.kind = Kind::allReduce, .elements = floats}}, byNccl(2));
  team.run([&](Stream& threads, int member) {
    const Block data(member, 1), arrived(member);
    device::use(member);
    Stream q = device::openStream();
    threads.team()->start(0, q, data.memory(), arrived.memory());
    EXPECT_THROW(threads.team()->start(0, q, data.memory(), arrived.memory()), std::runtime_error);
    threads.team()->finish(0, q);
    EXPECT_TRUE(device::wait(q));
    device::close(q);
  });
}

/// What a member does, one after the other: a collective by its number, or the transfer from member 0 to member 1.
constexpr int transfer = -1;

/// Both members do their lists on a device that runs one kernel of NCCL at a time; what they say then, and whether
/// what arrived is right.
struct Ended {
  std::vector<std::string> said;
  bool right = true;
};
Ended endOf(const std::array<std::vector<int>, 2>& lists) {
  stand_in::setPatience(500);
  stand_in::interleave(3); // its remainder by 3 is 0
  Ended ended;
  TransferGroup groups[2];
  {
    TeamThreads team(2,
                     {{.kind = Kind::allReduce, .elements = floats},
                      {.kind = Kind::allReduce, .elements = floats},
                      {.kind = Kind::allGather, .elements = floats / 2}},
                     byNccl(2));
    std::array<bool, 2> right = {true, true};
    team.run([&](Stream& threads, int member) {
      const auto m = static_cast<std::size_t>(member);
      const Block data[3] = {Block(member, 1), Block(member, 5), Block(member, 7)};
      const Block arrived[3] = {Block(member), Block(member), Block(member)}, moved(member, member == 0 ? 9 : 0);
      device::use(member);
      Stream q = device::openStream();
      q.join(threads.team());
      try {
        for (int what : lists[m]) {
          if (what != transfer) {
            q.team()->start(what, q, data[what].memory(), arrived[what].memory());
            q.team()->finish(what, q);
            continue;
          }
          set(groups[m], /*outgoing=*/member == 0, 1 - member, forth, moved);
          groups[m].after = nullptr;
          team.communicators[m]->post(groups[m]);
          if (team.communicators[m]->wait(groups[m])) groups[m].precede(q);
        }
      } catch (const PeerGone&) {
      }
      EXPECT_TRUE(device::wait(q));
      device::close(q);
      for (int what : lists[m])
        right[m] = right[m] && (what == transfer ? moved.value() == 9
                                : what == 2      ? true
                                                 : arrived[what].value() == (what == 0 ? 2 : 10));
    });
    for (const auto& transport : team.transports)
      if (transport->aborted()) ended.said.push_back(transport->failure().message());
    ended.right = right[0] && right[1];
  }
  stand_in::setPatience(30'000);
  return ended;
}

bool findsACircle(const Ended& ended) {
  for (const std::string& said : ended.said)
    if (said.find("a circle of waits, nothing moves any more") != std::string::npos) return true;
  return false;
}

TEST(CudaNcclTeam, OneOrderOfCollectivesAndTransfersEnds) {
  for (const std::vector<int>& list : {std::vector<int>{0, 2, 1, transfer}, {transfer, 1, 0, 2}, {1, transfer, 2, 0}}) {
    const Ended ended = endOf({list, list});
    EXPECT_TRUE(ended.said.empty() && ended.right) << ended.said[0];
  }
}

TEST(CudaNcclTeam, ACollectiveAndATransferThatOneMemberSwapsAreFound) {
  EXPECT_TRUE(findsACircle(endOf({{{0, transfer}, {transfer, 0}}})));
}

TEST(CudaNcclTeam, TwoKindsOfCollectivesThatOneMemberSwapsAreFound) {
  EXPECT_TRUE(findsACircle(endOf({{{0, 2}, {2, 0}}})));
}

/// NCCL cannot tell two sums of one size apart.
TEST(CudaNcclTeam, TwoLikeCollectivesThatOneMemberSwapsAreWrong) {
  const Ended ended = endOf({{{0, 1}, {1, 0}}});
  EXPECT_FALSE(ended.right);
}

TEST(CudaNcclTeam, ACollectiveThatOneMemberLeavesOutIsFound) {
  EXPECT_TRUE(findsACircle(endOf({{{0, 1}, {0}}})));
}

/// What the first member says, when the second one is gone.
TEST(CudaNcclTeam, AMemberThatIsGoneEndsTheRun) {
  TeamThreads team(2, {{.kind = Kind::allReduce, .elements = floats}}, byNccl(2));
  stand_in::killDevice(1);
  team.run([&](Stream& threads, int member) {
    if (member == 1) return;
    const Block data(0, 1), arrived(0);
    device::use(0);
    Stream q = device::openStream();
    EXPECT_THROW(
        {
          threads.team()->start(0, q, data.memory(), arrived.memory());
          threads.team()->finish(0, q);
        },
        PeerGone);
    EXPECT_TRUE(device::wait(q)); // nothing is left to wait for
    device::close(q);
    EXPECT_TRUE(team.transports[0]->aborted());
    const Status failure = team.transports[0]->failure();
    EXPECT_EQ(failure.code(), Exit::again);
    EXPECT_EQ(failure.message().find("NCCL has failed on rank 0, "), 0u) << failure.message();
    EXPECT_NE(failure.message().find("with rank 1: remote process exited"), std::string::npos) << failure.message();
  });
}

/// The collective is on the device when the other member gives up: it is ended, and the next one is not started.
TEST(CudaNcclTeam, AMemberThatStopsLeavesNothingOnTheDevicesOfOthers) {
  TeamThreads team(3, {{.kind = Kind::allReduce, .elements = floats}}, byNccl(3));
  team.run([&](Stream& threads, int member) {
    if (member == 2) return team.transports[2]->abort(75);
    const Block data(member, 1), arrived(member);
    device::use(member);
    Stream q = device::openStream();
    const auto doIt = [&] {
      threads.team()->start(0, q, data.memory(), arrived.memory());
      threads.team()->finish(0, q);
    };
    try {
      doIt();
    } catch (const PeerGone&) { // it may have been seen already
    }
    EXPECT_TRUE(device::wait(q));
    device::close(q);
    while (!team.transports[static_cast<std::size_t>(member)]->aborted()) std::this_thread::yield();
  });
  team.stop();
  team.run([&](Stream& threads, int member) {
    if (member == 2) return;
    const Block data(member, 1), arrived(member);
    Stream q = device::openStream();
    EXPECT_THROW(threads.team()->start(0, q, data.memory(), arrived.memory()), PeerGone);
    device::close(q);
  });
  EXPECT_EQ(stand_in::pending(), 0u);
}

} // namespace
} // namespace pdcrt
