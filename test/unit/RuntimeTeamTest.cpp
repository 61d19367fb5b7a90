// LINK: pdcrt
// Collectives of a team against their definitions, on members that are threads: results, bits, bytes, order, and ends.
#include "OneLaneTransport.h"
#include "TeamThreads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <random>

using namespace pdcrt;
using Kind = Collective::Kind;
using Combine = Collective::Combine;

namespace {

using Floats = std::vector<float>;

/// Numbers whose sum depends on the order of its terms.
Floats random(std::size_t count, int member) {
  std::mt19937 engine(static_cast<unsigned>(17 + member));
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats values(count);
  for (float& value : values) value = std::ldexp(uniform(engine), static_cast<int>(engine() % 20));
  return values;
}

float combined(Combine how, const std::vector<Floats>& of, std::size_t i) {
  float result = of[0][i];
  for (std::size_t m = 1; m < of.size(); ++m)
    result = how == Combine::sum   ? result + of[m][i]
             : how == Combine::max ? std::max(result, of[m][i])
                                   : std::min(result, of[m][i]);
  return result;
}

/// What a member has after a collective; the definitions of Team.h, for the members' data.
Floats expected(const Collective& what, const std::vector<Floats>& data, std::size_t member) {
  const std::size_t members = data.size(), part = static_cast<std::size_t>(what.elements);
  Floats result;
  switch (what.kind) {
  case Kind::allReduce:
    for (std::size_t i = 0; i < part; ++i) result.push_back(combined(what.combine, data, i));
    break;
  case Kind::reduceScatter:
    for (std::size_t i = 0; i < part; ++i) result.push_back(combined(what.combine, data, member * part + i));
    break;
  case Kind::allGather:
    for (std::size_t m = 0; m < members; ++m) result.insert(result.end(), data[m].begin(), data[m].end());
    break;
  case Kind::allToAll:
    for (std::size_t m = 0; m < members; ++m)
      for (std::size_t i = 0; i < part; ++i) result.push_back(data[m][member * part + i]);
    break;
  }
  return result;
}

std::size_t dataElements(const Collective& what, std::size_t members) {
  const auto elements = static_cast<std::size_t>(what.elements);
  return what.kind == Kind::reduceScatter || what.kind == Kind::allToAll ? elements * members : elements;
}

/// The same of what has arrived; a member's own part is taken from its data, where it does not arrive.
Floats taken(const Collective& what, const Floats& data, const Floats& arrived, std::size_t member) {
  const auto part = static_cast<std::ptrdiff_t>(what.elements), own = static_cast<std::ptrdiff_t>(member) * part;
  Floats result = arrived;
  if (what.kind == Kind::allReduce) result.resize(static_cast<std::size_t>(part));
  if (what.kind == Kind::reduceScatter) return {arrived.begin() + own, arrived.begin() + own + part};
  if (what.kind == Kind::allGather) std::copy(data.begin(), data.end(), result.begin() + own);
  if (what.kind == Kind::allToAll) std::copy_n(data.begin() + own, part, result.begin() + own);
  return result;
}

std::byte* bytes(Floats& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

class TeamOf : public testing::TestWithParam<int> {};

TEST_P(TeamOf, MakesWhatTheDefinitionsSay) {
  const int members = GetParam();
  std::vector<Collective> collectives;
  for (const Kind kind : {Kind::allReduce, Kind::reduceScatter, Kind::allGather, Kind::allToAll})
    for (const std::int64_t elements : {1, 2, 3, 7, 64, 1000, 300'000})
      for (const Combine combine : {Combine::sum, Combine::max, Combine::min}) {
        if (combine != Combine::sum && (kind == Kind::allGather || kind == Kind::allToAll)) continue;
        collectives.push_back({.kind = kind, .combine = combine, .element = Element::f32, .elements = elements});
      }
  const auto count = static_cast<std::size_t>(members);
  std::vector<std::vector<Floats>> results(collectives.size(), std::vector<Floats>(count));
  TeamThreads team(members, collectives);
  for (int round = 0; round < 2; ++round)
    team.run([&](Stream& q, int member) {
      const auto m = static_cast<std::size_t>(member);
      for (std::size_t i = 0; i < collectives.size(); ++i) {
        Floats data = random(dataElements(collectives[i], count), member);
        const Floats before = data;
        Floats arrived(static_cast<std::size_t>(collectives[i].arrivedElements(members)), -1);
        q.team()->start(static_cast<int>(i), q, bytes(data), bytes(arrived));
        q.team()->finish(static_cast<int>(i), q);
        EXPECT_EQ(data, before);
        results[i][m] = taken(collectives[i], data, arrived, m);
      }
    });
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    std::vector<Floats> data;
    for (int member = 0; member < members; ++member)
      data.push_back(random(dataElements(collectives[i], count), member));
    for (std::size_t m = 0; m < count; ++m)
      EXPECT_EQ(results[i][m], expected(collectives[i], data, m))
          << nameOf(collectives[i].kind) << " of " << collectives[i].elements << " on member " << m;
  }
}

/// Bytes that one member sends.
std::uint64_t sentBy(int members, const Collective& what, int member) {
  TeamThreads team(members, {what});
  team.run([&](Stream& q, int) {
    Floats data(dataElements(what, static_cast<std::size_t>(members))),
        arrived(static_cast<std::size_t>(what.arrivedElements(members)));
    q.team()->start(0, q, bytes(data), bytes(arrived));
    q.team()->finish(0, q);
  });
  team.stop();
  return team.bytesSent(member);
}

TEST_P(TeamOf, SendsTheBytesOfTheFormulas) {
  const auto t = static_cast<std::uint64_t>(GetParam());
  const std::uint64_t n = 60 * t * t * sizeof(float); // of the whole value
  const auto elementsOf = [](std::uint64_t size) { return static_cast<std::int64_t>(size / sizeof(float)); };
  for (int member = 0; member < GetParam(); ++member) {
    const auto sent = [&](Kind kind, std::uint64_t size) {
      return sentBy(GetParam(),
                    {.kind = kind, .combine = Combine::sum, .element = Element::f32, .elements = elementsOf(size)},
                    member);
    };
    EXPECT_EQ(sent(Kind::allReduce, n), 2 * (t - 1) * n / t);
    EXPECT_EQ(sent(Kind::reduceScatter, n / t), (t - 1) * n / t);
    EXPECT_EQ(sent(Kind::allGather, n / t), (t - 1) * n / t);
    EXPECT_EQ(sent(Kind::allToAll, n / t / t), (t - 1) * n / t / t);
  }
}

/// Transfers complete in any order, as in MPI, also those of one channel, which begin in order.
class LateTransport : public Transport {
public:
  explicit LateTransport(std::unique_ptr<Transport> threads)
      : threads_(std::move(threads)), random_(static_cast<std::uint32_t>(threads_->rank())) {}

  int rank() const override { return threads_->rank(); }
  int ranks() const override { return threads_->ranks(); }
  void poll() override { threads_->poll(); }
  void start(Transfer& transfer) override {
    late_[&transfer] = random_() % 8;
    threads_->start(transfer);
  }
  bool test(Transfer& transfer) override {
    if (!threads_->test(transfer)) return false;
    int& late = late_[&transfer];
    return late == 0 || --late == 0;
  }
  void cancel(Transfer& transfer) override { threads_->cancel(transfer); }
  std::chrono::nanoseconds patience(int, bool) override { return std::chrono::microseconds(1); }
  void sleep(std::chrono::nanoseconds limit) override { threads_->sleep(limit); }
  void wake() override { threads_->wake(); }
  bool aborted() const override { return threads_->aborted(); }
  void abort(int exitCode) override { threads_->abort(exitCode); }

private:
  std::unique_ptr<Transport> threads_;
  std::minstd_rand random_;
  std::map<const Transfer*, int> late_; ///< how often it is not complete yet
};

/// Where parts have different sizes, or none.
TEST_P(TeamOf, SendsTheElementsThatACollectiveSays) {
  for (const Kind kind : {Kind::allReduce, Kind::reduceScatter, Kind::allGather, Kind::allToAll})
    for (const std::int64_t elements : {1, 2, 7, 1001})
      for (int member = 0; member < GetParam(); ++member) {
        const Collective what = {.kind = kind, .combine = Combine::sum, .element = Element::f32, .elements = elements};
        EXPECT_EQ(sentBy(GetParam(), what, member),
                  static_cast<std::uint64_t>(what.sentElements(member, GetParam())) * sizeof(float))
            << nameOf(kind) << " of " << elements << ", member " << member;
      }
}

/// Many collectives under way at once, on shared channels, finished in another order.
void startAllAndFinishBackwards(int members, TeamThreads::Transports transports = {}) {
  constexpr int count = 3 * TeamWork::channels;
  std::vector<Collective> collectives;
  for (int i = 0; i < count; ++i)
    collectives.push_back({.kind = i % 5 == 4 ? Kind::allGather : Kind::allReduce,
                           .combine = Combine::sum,
                           .element = Element::f32,
                           .elements = i % 3 == 0 ? 20'000 : 5});
  TeamThreads team(members, collectives, std::move(transports));
  team.run([&](Stream& q, int member) {
    std::vector<Floats> data, arrived;
    for (int i = 0; i < count; ++i) {
      const Collective& what = collectives[static_cast<std::size_t>(i)];
      data.emplace_back(static_cast<std::size_t>(what.elements), static_cast<float>(100 * i + member));
      arrived.emplace_back(static_cast<std::size_t>(what.arrivedElements(members)));
    }
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < count; ++i)
        q.team()->start(static_cast<int>(i), q, bytes(data[i]), bytes(arrived[i]));
      for (std::size_t i = count; i-- > 0;) q.team()->finish(static_cast<int>(i), q);
      for (std::size_t i = 0; i < count; ++i) {
        const float own = 100 * static_cast<float>(i),
                    sum = own * static_cast<float>(members) + static_cast<float>(members * (members - 1) / 2);
        const int other = (member + 1) % members;
        if (collectives[i].kind == Kind::allReduce)
          ASSERT_EQ(arrived[i][2], sum) << i;
        else
          ASSERT_EQ(arrived[i][static_cast<std::size_t>(other * collectives[i].elements)],
                    own + static_cast<float>(other));
      }
    }
  });
}

TEST_P(TeamOf, TellsApartWhatIsUnderWayAtOnce) {
  startAllAndFinishBackwards(GetParam());
}

/// What shares a channel is spread in one order by all members, whatever arrives first.
TEST_P(TeamOf, TellsApartWhatArrivesInAnyOrder) {
  TeamThreads::Transports transports;
  for (std::unique_ptr<Transport>& threads : makeThreadTransports(GetParam()))
    transports.push_back(std::make_unique<LateTransport>(std::move(threads)));
  startAllAndFinishBackwards(GetParam(), std::move(transports));
}

/// A member has one lane, in which it does one step after the other, and nothing is buffered.
TEST_P(TeamOf, EndsOverOneLaneWithoutBuffers) {
  const int members = GetParam();
  std::vector<Collective> collectives;
  for (int i = 0; i < 20; ++i)
    collectives.push_back(
        {.kind = static_cast<Kind>(i % 4), .combine = Combine::sum, .element = Element::f32, .elements = 1 + 7 * i});
  const auto lanes = std::make_shared<one_lane::Lanes>();
  TeamThreads team(members, collectives, one_lane::makeTransports(members, /*ordered=*/false, lanes));
  team.run([&](Stream& q, int member) {
    for (int round = 0; round < 10; ++round)
      for (int i = 0; i < 20; ++i) {
        const Collective& what = collectives[static_cast<std::size_t>(i)];
        Floats data = random(dataElements(what, static_cast<std::size_t>(members)), member),
               arrived(static_cast<std::size_t>(what.arrivedElements(members)));
        q.team()->start(i, q, bytes(data), bytes(arrived));
        ASSERT_NO_THROW(q.team()->finish(i, q));
      }
  });
  EXPECT_FALSE(lanes->deadlock);
}

INSTANTIATE_TEST_SUITE_P(Members, TeamOf, testing::Values(2, 3, 4, 5));

TEST(Team, AddsElementsOf16BitsAsFloatsAndRoundsOnce) {
  constexpr int members = 3;
  TeamThreads team(members,
                   {{.kind = Kind::allReduce, .combine = Combine::sum, .element = Element::bf16, .elements = 1}});
  team.run([&](Stream& q, int member) {
    // 256 + 1 + 1: in bf16, each single sum would be rounded to 256.
    const bfloat16 data(member == 0 ? 256.0f : 1.0f);
    bfloat16 arrived[members];
    q.team()->start(0, q, reinterpret_cast<const std::byte*>(&data), reinterpret_cast<std::byte*>(arrived));
    q.team()->finish(0, q);
    EXPECT_EQ(static_cast<float>(arrived[0]), 258.0f);
  });
}

/// Remembers what a member waits for.
class Waits : public TeamObserver {
public:
  void awaits(const Collective& what, int number) override {
    kind = static_cast<int>(what.kind);
    open = number;
  }
  void met(const Collective&, int, double, double) override { open = -1; }
  std::atomic<int> open{-1}, kind{-1};
};

/// Member 0 does all collectives in order, the others those of `list`; the number that member 0 ends in.
int endsIn(const std::vector<int>& list) {
  constexpr int members = 2, count = 6;
  Waits waits;
  std::vector<Collective> collectives(
      count, {.kind = Kind::allReduce, .combine = Combine::sum, .element = Element::f32, .elements = 4});
  TeamThreads team(members, collectives, {}, &waits);
  std::atomic<int> over{0};
  std::thread watchdog([&] {
    for (int last = -2, quiet = 0; over < members && quiet < 40;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      quiet = waits.open == last ? quiet + 1 : 0;
      last = waits.open;
    }
    if (over < members) team.transports[0]->abort(75);
  });
  team.run([&](Stream& q, int member) {
    Floats data(4, 1), arrived(4);
    try {
      for (int i = 0; i < count; ++i) {
        const int number = member == 0 ? i : list[static_cast<std::size_t>(i)];
        if (number < 0) continue;
        q.team()->start(number, q, bytes(data), bytes(arrived));
        q.team()->finish(number, q);
      }
    } catch (const PeerGone&) {
    }
    ++over;
  });
  watchdog.join();
  return waits.open;
}

TEST(Team, MembersThatKeepTheOrderEnd) {
  EXPECT_EQ(endsIn({0, 1, 2, 3, 4, 5}), -1);
}

TEST(Team, TwoExchangedCollectivesAreFoundAndNamed) {
  EXPECT_EQ(endsIn({0, 1, 3, 2, 4, 5}), 2);
}

TEST(Team, AMissingCollectiveIsFoundAndNamed) {
  EXPECT_EQ(endsIn({0, 1, 2, 3, -1, 5}), 4);
  EXPECT_EQ(endsIn({0, 1, 2, 3, 4, -1}), 5);
}

TEST(Team, ASecondStartBeforeTheFinishIsRefused) {
  TeamThreads team(2, {{.kind = Kind::allReduce, .combine = Combine::sum, .element = Element::f32, .elements = 1}});
  Floats data(1), arrived(2);
  Stream q;
  team.teams[0]->start(0, q, bytes(data), bytes(arrived));
  try {
    team.teams[0]->start(0, q, bytes(data), bytes(arrived));
    ADD_FAILURE() << "it was started";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "all-reduce 0 of the team is started again before it has finished");
  }
}

/// Counts what is posted.
struct Posts : Communicator {
  using Communicator::Communicator;
  void post(Work& work) override {
    ++count;
    Communicator::post(work);
  }
  int count = 0;
};

TEST(Team, PartsOfALargeSumAreSentWhileOthersAreMade) {
  constexpr std::size_t all = 300'000;
  const std::vector<Collective> collectives(
      2, {.kind = Kind::allReduce, .combine = Combine::sum, .element = Element::f32, .elements = all});
  const auto transports = makeThreadTransports(2);
  std::vector<Floats> results(2);
  const auto runMember = [&](int member) {
    Posts communicator(*transports[static_cast<std::size_t>(member)]);
    TeamWork team({.processes = {0, 1}, .self = member, .channel = 5}, collectives, communicator, nullptr);
    const Floats made = random(all, member);
    for (int round = 0; round < 2; ++round) {
      Floats data(all, -1), arrived(all, -1);
      Stream q;
      communicator.count = 0;
      team.follow(0, q, bytes(data), bytes(arrived));
      EXPECT_EQ(communicator.count, 0) << "nothing is made";
      std::copy_n(made.begin(), all / 2, data.begin());
      q.made(data.data() + all / 2);
      EXPECT_EQ(communicator.count, 2) << "of four pieces";
      std::copy(made.begin() + all / 2, made.end(), data.begin() + all / 2);
      team.start(0, q, bytes(data), bytes(arrived));
      EXPECT_EQ(communicator.count, 4);
      q.made(data.data() + all);
      EXPECT_EQ(communicator.count, 4) << "the stream is told of other results";
      EXPECT_THROW(team.start(0, q, bytes(data), bytes(arrived)), std::runtime_error);
      EXPECT_THROW(team.follow(0, q, bytes(data), bytes(arrived)), std::runtime_error);
      team.finish(0, q);
      results[static_cast<std::size_t>(member)] = arrived;
    }
    communicator.stop();
  };
  std::thread other([&] { runMember(1); });
  runMember(0);
  other.join();
  const Floats sums = expected(collectives[0], {random(all, 0), random(all, 1)}, 0);
  EXPECT_EQ(results[0], sums);
  EXPECT_EQ(results[1], sums);
}

TEST(Team, FinishThrowsWhereAMemberIsGone) {
  TeamThreads team(3, {{.kind = Kind::allReduce, .combine = Combine::sum, .element = Element::f32, .elements = 9}});
  team.run([&](Stream& q, int member) {
    if (member == 2) return team.transports[2]->abort(75);
    Floats data(9), arrived(9);
    q.team()->start(0, q, bytes(data), bytes(arrived));
    EXPECT_THROW(q.team()->finish(0, q), PeerGone);
  });
}

TEST(Team, ALoneMemberKeepsItsOwnShare) {
  constexpr int members = 3;
  LoneTeam team(1, members,
                std::vector<Collective>{
                    {.kind = Kind::allReduce, .combine = Combine::sum, .element = Element::f32, .elements = 2},
                    {.kind = Kind::reduceScatter, .combine = Combine::sum, .element = Element::f32, .elements = 1}});
  Stream q;
  Floats data = {1, 2, 3}, arrived(3, -1);
  team.start(0, q, bytes(data), bytes(arrived));
  team.finish(0, q);
  EXPECT_EQ(arrived, (Floats{1, 2, -1}));
  arrived.assign(3, -1);
  team.start(1, q, bytes(data), bytes(arrived));
  team.finish(1, q);
  EXPECT_EQ(arrived, (Floats{-1, 2, -1}));
}

} // namespace
