// LINK: pdcSchedule
// Schedules as text and data, and the generators against a second formulation of their lists.
#include "pdc/Schedule/PipelineShape.h"

#include "RandomShape.h"

#include <gtest/gtest.h>

using namespace pdc;
using pdcrt::Action;
using pdcrt::ActionKind;

namespace {

/// What the semantics say a replica does in a run of `total` minibatches, written as plain loops over a finite run.
class FiniteList {
public:
  FiniteList(const pdcrt::Schedule& schedule, pdcrt::Host host, std::int64_t total)
      : schedule_(schedule), host_(host), stage_(schedule.stages[host.stage]), total_(total) {
    for (std::int64_t b = host.replica; b < total; b += stage_.replicas) mine_.push_back(b);
    updates_ = schedule.updates(host.stage, total);
  }

  std::vector<Action> oneFOneB() {
    receiveFirst();
    auto n = static_cast<std::int64_t>(mine_.size());
    for (std::int64_t k = 0; k < stage_.warmup; ++k) forward(k);
    // Rounds go on for as long as anything can be left to wait for.
    for (std::int64_t j = 0; j < n + stage_.slots + 2 + updates_; ++j) {
      forward(stage_.warmup + j);
      backward(j);
      update(j + 1, j + 1 - stage_.syncDelay);
    }
    return list_;
  }

  std::vector<Action> flush(std::int64_t m) {
    receiveFirst();
    // Rounds beyond the end hold only the last waits.
    std::int64_t ahead = stage_.replicas * (stage_.slots + 2) + 2 * m;
    for (std::int64_t first = 0; first < total_ + ahead; first += m) {
      std::vector<std::int64_t> locals;
      for (std::int64_t b = first; b < first + m; ++b)
        if (b % stage_.replicas == host_.replica) locals.push_back(b / stage_.replicas);
      std::size_t done = 0;
      for (std::size_t i = 0; i < locals.size(); ++i) {
        forward(locals[i]);
        if (i >= static_cast<std::size_t>(stage_.warmup)) backward(locals[done++]);
      }
      while (done < locals.size()) backward(locals[done++]);
      update(first / m + 1, first / m + 1);
    }
    return list_;
  }

private:
  bool exists(std::int64_t local) const { return local >= 0 && local < static_cast<std::int64_t>(mine_.size()); }

  void add(ActionKind kind, bool wait, int peer, std::int64_t local) {
    if (exists(local)) list_.push_back({kind, wait, host_.stage, peer, mine_[local]});
  }

  template <class Visit>
  void outgoing(Visit visit) {
    for (std::size_t e = 0; e < schedule_.edges.size(); ++e)
      if (schedule_.edges[e].from == host_.stage) visit(schedule_.edges[e], schedule_.rings[e]);
  }
  template <class Visit>
  void incoming(Visit visit) {
    for (std::size_t e = schedule_.edges.size(); e-- > 0;)
      if (schedule_.edges[e].to == host_.stage) visit(schedule_.edges[e], schedule_.rings[e]);
  }

  void receiveFirst() {
    incoming([&](const auto& edge, const auto& rings) {
      for (int k = 0; edge.forward && k < rings.forwardReceive; ++k)
        add(ActionKind::receiveForward, false, edge.from, k);
    });
    outgoing([&](const auto& edge, const auto& rings) {
      for (int k = 0; edge.backward && k < rings.backwardReceive; ++k)
        add(ActionKind::receiveBackward, false, edge.to, k);
    });
  }

  void forward(std::int64_t k) {
    outgoing([&](const auto& edge, const auto& rings) {
      if (edge.forward) add(ActionKind::sendForward, true, edge.to, k - rings.forwardSend);
    });
    incoming([&](const auto& edge, const auto&) {
      if (edge.forward) add(ActionKind::receiveForward, true, edge.from, k);
    });
    add(ActionKind::forward, false, -1, k);
    outgoing([&](const auto& edge, const auto&) {
      if (edge.forward) add(ActionKind::sendForward, false, edge.to, k);
    });
  }

  void backward(std::int64_t j) {
    incoming([&](const auto& edge, const auto& rings) {
      if (edge.backward) add(ActionKind::sendBackward, true, edge.from, j - rings.backwardSend);
    });
    outgoing([&](const auto& edge, const auto&) {
      if (edge.backward) add(ActionKind::receiveBackward, true, edge.to, j);
    });
    add(ActionKind::backward, false, -1, j);
    incoming([&](const auto& edge, const auto&) {
      if (edge.backward) add(ActionKind::sendBackward, false, edge.from, j);
    });
    outgoing([&](const auto& edge, const auto& rings) {
      if (edge.backward) add(ActionKind::receiveBackward, false, edge.to, j + rings.backwardReceive);
    });
    incoming([&](const auto& edge, const auto& rings) {
      if (edge.forward) add(ActionKind::receiveForward, false, edge.from, j + rings.forwardReceive);
    });
  }

  void update(std::int64_t reduced, std::int64_t updated) {
    bool replicated = stage_.replicas > 1;
    if (replicated && reduced <= updates_) list_.push_back({ActionKind::allReduce, false, host_.stage, -1, reduced});
    if (updated < 1 || updated > updates_) return;
    if (replicated) list_.push_back({ActionKind::allReduce, true, host_.stage, -1, updated});
    list_.push_back({ActionKind::update, false, host_.stage, -1, updated});
  }

  const pdcrt::Schedule& schedule_;
  pdcrt::Host host_;
  const pdcrt::ScheduleStage& stage_;
  std::int64_t total_;
  std::vector<std::int64_t> mine_;
  std::int64_t updates_ = 0;
  std::vector<Action> list_;
};

std::string textOf(const std::vector<Action>& list) {
  std::string text;
  for (const Action& action : list) text += toString(action) + " ";
  return text;
}

std::string errorOf(const std::string& text) {
  pdcrt::Schedule schedule;
  std::string error;
  return pdcrt::parseSchedule(text, schedule, error) ? "parsed" : error;
}

} // namespace

TEST(Action, PrintsAndParses) {
  for (const char* text :
       {"1F3",  "1B3",     "1I3",     "1W3",        "1U7",     "1E3",   "1SF3>2", "1RF3<0",  "1SB3>0", "1RB3<2",
        "1AR7", "?1SF3>2", "?1RF3<0", "?12SB345>6", "?1RB3<2", "?1AR7", "1SV7>3", "?3RV7<1", "3SG7>1", "?1RG7<3"}) {
    Action action;
    std::string error;
    ASSERT_TRUE(pdcrt::parseAction(text, action, error)) << text << ": " << error;
    EXPECT_EQ(toString(action), text);
  }
}

TEST(Action, SaysWhatItExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected a stage number in ''"},
      {"F3", "expected a stage number in 'F3'"},
      {"-1F3", "expected a stage number in '-1F3'"},
      {"1X3", "expected one of F, B, I, W, U, E, SF, RF, SB, RB, AR, SV, RV, SG, RG, GN, RS, AG, UN, RE in '1X3'"},
      {"1F", "expected a minibatch or version number in '1F'"},
      {"1F99999999999999999999", "expected a minibatch or version number in '1F99999999999999999999'"},
      {"1SF3", "expected '>' and the receiver's stage in '1SF3'"},
      {"1RF3>0", "expected '<' and the sender's stage in '1RF3>0'"},
      {"1SF3>", "expected the other stage's number in '1SF3>'"},
      {"?1F3", "expected a transfer or an all-reduce to wait for in '?1F3'"},
      {"1F3x", "expected nothing more in '1F3x'"}};
  for (const auto& [text, expected] : cases) {
    Action action;
    std::string error;
    EXPECT_FALSE(pdcrt::parseAction(text, action, error));
    EXPECT_EQ(error, expected);
  }
}

TEST(Schedule, TextParsesBackToTheSame) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    pdcrt::Schedule schedule = buildSchedule(randomShape(random));
    schedule.weights = static_cast<pdcrt::WeightPolicy>(round % 3);
    std::string text = toString(schedule), error;
    pdcrt::Schedule back;
    ASSERT_TRUE(pdcrt::parseSchedule(text, back, error)) << error << "\n" << text;
    EXPECT_EQ(back, schedule) << text;
    EXPECT_EQ(toString(back), text);
  }
}

TEST(Schedule, ErrorsNameTheLineAndTheExpectation) {
  const std::string head = "schedule 1f1b\nweights stash\nminibatches-per-update 0\n"
                           "stage 0 replicas 1 warmup 0 sync-delay 0 slots 1 versions 1\n";
  EXPECT_EQ(errorOf(""), "line 1: expected 'schedule KIND'");
  EXPECT_EQ(errorOf("schedule\n"), "line 1: expected the kind of the schedule");
  EXPECT_EQ(errorOf("weights heavy\n"),
            "line 1: expected 'stash', 'vertical-sync', 'latest' or 'two-versions', got 'heavy'");
  EXPECT_EQ(errorOf("# a comment\nfoo\n").substr(0, 28), "line 2: expected schedule, w");
  EXPECT_EQ(errorOf("schedule 1f1b\nstage 1 replicas 1\n"), "line 2: expected stage 0, got 1");
  EXPECT_EQ(errorOf("schedule 1f1b\nstage 0 replicas x\n"), "line 2: expected a number from 0 to 1048576, got 'x'");
  EXPECT_EQ(errorOf(head + "edge 0-1 forward\n"), "line 5: expected two numbers with '>' between, got '0-1'");
  EXPECT_EQ(errorOf(head + "rank 0 hosts 0.0\n"), "line 5: expected 'step'");
  EXPECT_EQ(errorOf(head + "start\n"), "line 5: expected a line 'rank …' before 'start'");
  EXPECT_EQ(errorOf(head + "rank 0 hosts 0.0 step 1 more\n"),
            "line 5: expected 'pool', 'sums' or the end of the line, got 'more'");
  EXPECT_EQ(
      errorOf(head + "rank 0 hosts 0.0 step 1\nrepeat\n  0F0 0Q0\n"),
      "line 7: expected one of F, B, I, W, U, E, SF, RF, SB, RB, AR, SV, RV, SG, RG, GN, RS, AG, UN, RE in '0Q0'");
  EXPECT_EQ(errorOf(head + "rank 0 hosts 0.0 step 1\nrepeat\n  0F0 0B0 0U1\n"), "parsed");
  const std::string split = "schedule x\nstage 0 replicas 1 warmup 0 sync-delay 0 slots 1 versions 1 ";
  EXPECT_EQ(errorOf(split + "hand 1\n"), "line 2: expected 'handovers', 'route' or the end of the line, got 'hand'");
  EXPECT_EQ(errorOf(split + "handovers\n"), "line 2: expected a number from 0 to 1048576, got ''");
  EXPECT_EQ(errorOf(split + "handovers 0\n"), "stage 0 needs at least one replica, slot, version and handover");
  EXPECT_EQ(errorOf("schedule x\nstage 0 replicas 1 tea 2\n"),
            "line 2: expected 'team', 'shard' or 'warmup', got 'tea'");
  EXPECT_EQ(errorOf("schedule x\nstage 0 replicas 1 team\n"), "line 2: expected a number from 0 to 1048576, got ''");
}

TEST(Schedule, SaysTheTeamsOfStages) {
  const std::string rest = " warmup 0 sync-delay 0 slots 1 versions 1\n";
  const auto of = [&](const std::string& first, const std::string& second) {
    return "schedule x\nweights stash\nminibatches-per-update 2\nstage 0 replicas 1" + first + rest +
           "stage 1 replicas 1" + second + rest + "edge 0>1 forward send 1 receive 1\nrank 0 hosts 0.0";
  };
  const std::string apart = " step 2\nstart\nrepeat\nrank 1 hosts 1.0 step 2\nstart\nrepeat\n";
  pdcrt::Schedule schedule;
  std::string error;
  ASSERT_TRUE(pdcrt::parseSchedule(of(" team 4", "") + apart, schedule, error)) << error;
  EXPECT_EQ(schedule.stages[0].team, 4);
  EXPECT_EQ(schedule.stages[1].team, 1);
  // One member is not printed.
  EXPECT_EQ(pdcrt::toString(schedule), of(" team 4", "") + apart);
  ASSERT_TRUE(pdcrt::parseSchedule(of(" team 1", "") + apart, schedule, error)) << error;
  EXPECT_EQ(pdcrt::toString(schedule), of("", "") + apart);

  // Members with terms of the gradients are reduced as replicas are.
  ASSERT_TRUE(pdcrt::parseSchedule(of(" team 4 sums", "") + apart, schedule, error)) << error;
  EXPECT_EQ(pdcrt::toString(schedule), of(" team 4 sums", "") + apart);
  EXPECT_EQ(schedule.stages[0].terms(), 4);
  EXPECT_TRUE(schedule.stages[0].sums());
  EXPECT_FALSE(schedule.stages[1].sums());
  EXPECT_EQ(errorOf(of(" sums", "") + apart), "line 4: expected 'team', 'shard' or 'warmup', got 'sums'");

  EXPECT_EQ(errorOf(of(" team 0", "") + apart), "stage 0 needs a team of at least one member");
  EXPECT_EQ(errorOf(of(" team 1048576", "") + apart), "the ranks have more than 1048576 members together");
  const std::string together = " 1.0 step 2\nstart\nrepeat\n";
  EXPECT_EQ(errorOf(of(" team 2", " team 2") + together), "parsed");
  EXPECT_EQ(errorOf(of(" team 2", " team 4") + together),
            "rank 0 hosts stage 0 of a team of 2 and stage 1 of a team of 4: all stages of a rank need teams of one "
            "size");
}

TEST(Schedule, PartsMustFit) {
  const std::string head = "schedule 1f1b\nweights stash\nminibatches-per-update 0\n"
                           "stage 0 replicas 2 warmup 0 sync-delay 0 slots 1 versions 1\n"
                           "stage 1 replicas 1 warmup 0 sync-delay 0 slots 1 versions 1\n";
  const std::string edge = "edge 0>1 forward send 1 receive 2\n";
  auto rank = [](const char* text) { return std::string(text) + "\nrepeat\n"; };
  EXPECT_EQ(errorOf("schedule x\n"), "expected at least one stage");
  EXPECT_EQ(errorOf(head), "no rank hosts 0.0");
  EXPECT_EQ(errorOf(head + "edge 1>0 forward send 1 receive 2\n"), "edge 1>0 does not lead to a later stage");
  EXPECT_EQ(errorOf(head + "edge 0>2 forward send 1 receive 2\n"), "edge 0>2 does not lead to a later stage");
  EXPECT_EQ(errorOf(head + "edge 0>1\n"), "edge 0>1 has no direction");
  EXPECT_EQ(errorOf(head + "edge 0>1 forward send 0 receive 2\n"), "edge 0>1 has a forward ring of size 0");
  EXPECT_EQ(errorOf(head + edge + edge), "edges are not sorted by (from, to)");
  EXPECT_EQ(errorOf(head + rank("rank 0 hosts 0.2 step 2")), "rank 0 hosts 0.2, which does not exist");
  EXPECT_EQ(errorOf(head + rank("rank 0 hosts 0.0 0.1 step 2")), "rank 0 hosts stage 0 more than once");
  EXPECT_EQ(errorOf(head + rank("rank 0 hosts 0.0 step 2") + rank("rank 1 hosts 0.0 step 2")),
            "0.0 is hosted by more than one rank");
  EXPECT_EQ(errorOf(head + rank("rank 0 hosts 0.0 step 1")),
            "the step 1 of rank 0 is not a multiple of the 2 minibatches of an update and the 2 replicas");
  EXPECT_EQ(errorOf(head + rank("rank 0 hosts 0.0 step 2") + "1F0\n"),
            "rank 0: '1F0' is an action of stage 1, which is not hosted here");
  EXPECT_EQ(errorOf(head + rank("rank 0 hosts 0.0 step 2") + "0F1\n"),
            "rank 0: '0F1': minibatch 1 belongs to replica 1, this is replica 0");
  EXPECT_EQ(errorOf(head + rank("rank 0 hosts 0.0 step 2") + "0SF0>1\n"),
            "rank 0: '0SF0>1': there is no edge for it between stages 0 and 1");
  EXPECT_EQ(errorOf(head + edge + rank("rank 0 hosts 0.0 step 2") + "0RF0<1\n"),
            "rank 0: '0RF0<1': there is no edge for it between stages 0 and 1");
  EXPECT_EQ(errorOf(head + rank("rank 0 hosts 0.0 step 2") + "0U0\n"),
            "rank 0: '0U0': versions that an update makes count from 1");
}

TEST(Schedule, ListsAreThoseOfTheSemantics) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    PipelineShape shape = randomShape(random);
    pdcrt::Schedule schedule = buildSchedule(shape);
    for (std::int64_t total : {0, 1, 2, 5, 12, 23})
      for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
        FiniteList finite(schedule, schedule.ranks[r].hosts[0], total);
        EXPECT_EQ(textOf(pdcrt::expand(schedule, static_cast<int>(r), total)),
                  textOf(shape.microbatches > 0 ? finite.flush(shape.microbatches) : finite.oneFOneB()))
            << toString(schedule) << total << " minibatches, rank " << r;
      }
  }
}

TEST(Schedule, VersionsFollowTheFormulas) {
  pdcrt::Schedule schedule = buildSchedule(straightShape({{2, 3, 1}, {1, 2, 0}}));
  EXPECT_EQ(schedule.versionUsed(0, 7), 0);  // 7/2 - 3 - 1 < 0
  EXPECT_EQ(schedule.versionUsed(0, 13), 2); // 6 - 4
  EXPECT_EQ(schedule.versionUsed(1, 13), 11);
  schedule.weights = pdcrt::WeightPolicy::verticalSync;
  EXPECT_EQ(schedule.versionUsed(1, 13), 4); // 2 · 2 / 1
  EXPECT_EQ(schedule.updates(0, 13), 7);
  EXPECT_EQ(schedule.updateFirst(0, 3), 4);
  EXPECT_EQ(schedule.updateLast(0, 3), 6);
  schedule = buildSchedule({.microbatches = 4, .stages = {{2, 1, 0}}});
  EXPECT_EQ(schedule.versionUsed(0, 13), 3);
  EXPECT_EQ(schedule.updates(0, 13), 4);
}

TEST(Schedule, FlushWarmsUpOnlyWhatABatchHolds) {
  pdcrt::Schedule schedule = buildSchedule({.microbatches = 2, .stages = {{1, 5, 0}}});
  EXPECT_EQ(textOf(pdcrt::expand(schedule, 0, 3)), "0F0 0F1 0B0 0B1 0U1 0F2 0B2 0U2 ");
}

TEST(Schedule, SharedParametersAreSentAheadOfTheirUse) {
  PipelineShape shape = straightShape({{1, 1, 0}, {1, 0, 0}});
  shape.shared = {{0, 1}};
  pdcrt::Schedule schedule = buildSchedule(shape);
  EXPECT_EQ(schedule.shared, (std::vector<pdcrt::SharedEdge>{{0, 1, 2, 2, 2, 2}}));
  EXPECT_EQ(textOf(pdcrt::expand(schedule, 0, 3)),
            "0RB0<1 0RB1<1 0RG1<1 0RG2<1 0F0 0SF0>1 0F1 0SF1>1 ?0RB0<1 0B0 0RB2<1 ?0RG1<1 0U1 0SV1>1 0RG3<1 "
            "?0SF0>1 0F2 0SF2>1 ?0RB1<1 0B1 ?0RG2<1 0U2 0SV2>1 ?0SF1>1 ?0RB2<1 0B2 ?0RG3<1 ?0SV1>1 0U3 0SV3>1 "
            "?0SF2>1 ?0SV2>1 ?0SV3>1 ");
  EXPECT_EQ(textOf(pdcrt::expand(schedule, 1, 3)),
            "1RF0<0 1RF1<0 1RV1<0 ?1RF0<0 1F0 1B0 1SB0>0 1RF2<0 1SG1>0 1U1 ?1RF1<0 1F1 1B1 1SB1>0 1SG2>0 1RV2<0 1U2 "
            "?1RF2<0 ?1RV1<0 1F2 ?1SB0>0 ?1SG1>0 1B2 1SB2>0 1SG3>0 1RV3<0 1U3 ?1RV2<0 ?1SB1>0 ?1SG2>0 ?1RV3<0 ?1SB2>0 "
            "?1SG3>0 ");
  std::string text = toString(schedule), error;
  EXPECT_NE(text.find("shared 0>1 versions send 2 receive 2 parts send 2 receive 2\n"), std::string::npos);
  pdcrt::Schedule back;
  ASSERT_TRUE(pdcrt::parseSchedule(text, back, error)) << error;
  EXPECT_EQ(back, schedule);
}

TEST(Schedule, SharedPartsMustFit) {
  const std::string head = "schedule 1f1b\nweights stash\nminibatches-per-update 0\n"
                           "stage 0 replicas 2 warmup 0 sync-delay 0 slots 1 versions 1\n"
                           "stage 1 replicas 1 warmup 0 sync-delay 0 slots 1 versions 1\n";
  const std::string rest = " versions send 1 receive 2 parts send 2 receive 2\n";
  EXPECT_EQ(errorOf(head + "shared 1>0" + rest), "shared 1>0 does not lead to a later stage");
  EXPECT_EQ(errorOf(head + "shared 0>1 versions send 0 receive 2 parts send 2 receive 2\n"),
            "shared 0>1 has a ring of size 0");
  EXPECT_EQ(errorOf(head + "shared 0>1" + rest + "shared 0>1" + rest), "shared edges are not sorted by (owner, user)");
  EXPECT_EQ(
      errorOf(head + "shared 0>1" + rest + "rank 0 hosts 1.0 step 1\nrepeat\n"),
      "the step 1 of rank 0 is not a multiple of the 2 minibatches of an update of stage 0, which owns parameters "
      "of stage 1");
  EXPECT_EQ(errorOf(head + "shared 0>1" + rest + "rank 0 hosts 1.0 step 2\nrepeat\n 1SV1>0\n"),
            "rank 0: '1SV1>0': stages 1 and 0 share no parameters in that direction");
}
