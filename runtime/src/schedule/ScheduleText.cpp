// The text form of schedules: printing, and a line-by-line reader that names the line and what it expected.
//
//   schedule 1f1b
//   weights stash
//   minibatches-per-update 0
//   gradient-norm
//   stage 0 replicas 1 warmup 2 sync-delay 0 slots 3 versions 3
//   stage 1 replicas 1 warmup 0 sync-delay 0 slots 1 versions 1 handovers 3
//   stage 2 replicas 2 warmup 0 sync-delay 0 slots 1 versions 1 route 0 0 1
//   stage 3 replicas 2 shard optimizer warmup 0 sync-delay 0 slots 1 versions 1
//   edge 0>1 forward send 3 receive 2 backward send 2 receive 2
//   shared 0>1 versions send 3 receive 2 parts send 2 receive 2
//   rank 0 hosts 0.0 step 1
//   start
//     0RB0<1 0RB1<1
//     0F0 0SF0>1
//     …
//   repeat
//     …
//
// `route` says which replica computes which minibatch (Routing.h); without it they take turns. `shard` is `optimizer`
// or `weights`. `degree` may follow, and how many neighbouring replicas have everything together, if these are not all
// of them. Behind weights, `sweeps` says how often they are gathered for an update, if that is not once.
// `pool` follows `step` in the line of a rank that has room for another number of gathered stages than two, `sums` for
// the gradients of another number of such stages.
//
// The line `gradient-norm` is there where updates await the norm of all gradients, which needs minibatches-per-update >
// 0; else it is about sharded stages, each for itself. A line of actions holds the waits of one computation, the
// computation, and what it starts. `#` begins a comment.
#include "pdcrt/Schedule.h"

#include <algorithm>
#include <charconv>
#include <iterator>

using namespace pdcrt;

namespace {

constexpr std::string_view weightNames[] = {"stash", "vertical-sync", "latest", "two-versions"};
constexpr std::string_view shardNames[] = {"none", "optimizer", "weights"};

/// Numbers above this are typing errors; it keeps sums of minibatches far from overflow.
constexpr std::int64_t largestNumber = std::int64_t{1} << 40;
constexpr std::int64_t largestCount = 1 << 20;

} // namespace

std::string pdcrt::toString(const Action& action) {
  const ActionKindRow& kind = kindRow(action.kind);
  std::string text = action.wait ? "?" : "";
  text += std::to_string(action.stage);
  text += kind.letters;
  text += std::to_string(action.index);
  if (kind.arrow) text += kind.arrow + std::to_string(action.peer);
  return text;
}

static bool readNumber(std::string_view& text, std::int64_t largest, std::int64_t& number) {
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || number < 0 || number > largest || text.front() == '-') return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool pdcrt::parseAction(std::string_view text, Action& action, std::string& error) {
  const std::string whole(text);
  auto fail = [&](const std::string& expected) {
    error = "expected " + expected + " in '" + whole + "'";
    return false;
  };
  Action result;
  if (text.starts_with('?')) {
    result.wait = true;
    text.remove_prefix(1);
  }
  std::int64_t number = 0;
  if (text.empty() || !readNumber(text, largestCount, number)) return fail("a stage number");
  result.stage = static_cast<int>(number);

  std::size_t letters = 0;
  while (letters < text.size() && text[letters] >= 'A' && text[letters] <= 'Z') ++letters;
  const auto* kind = std::find_if(std::begin(actionKinds), std::end(actionKinds),
                                  [&](const ActionKindRow& row) { return row.letters == text.substr(0, letters); });
  if (kind == std::end(actionKinds)) {
    std::string known;
    for (const ActionKindRow& row : actionKinds) known += (known.empty() ? "" : ", ") + std::string(row.letters);
    return fail("one of " + known);
  }
  result.kind = kind->kind;
  text.remove_prefix(letters);
  if (result.wait && isComputation(result.kind)) return fail("a transfer or an all-reduce to wait for");

  if (text.empty() || !readNumber(text, largestNumber, result.index)) return fail("a minibatch or version number");
  if (kind->arrow) {
    if (!text.starts_with(kind->arrow))
      return fail(isSend(result.kind) ? "'>' and the receiver's stage" : "'<' and the sender's stage");
    text.remove_prefix(1);
    if (text.empty() || !readNumber(text, largestCount, number)) return fail("the other stage's number");
    result.peer = static_cast<int>(number);
  }
  if (!text.empty()) return fail("nothing more");
  action = result;
  return true;
}

static void print(std::string& text, const char* title, const std::vector<Action>& actions) {
  constexpr std::size_t width = 110;
  text += title;
  std::size_t column = width;
  const Action* previous = nullptr;
  for (const Action& action : actions) {
    std::string word = toString(action);
    bool starts = !action.wait && !isComputation(action.kind);
    bool newLine = !previous || (!previous->wait && !starts) || column + 1 + word.size() > width;
    text += newLine ? "\n  " : " ";
    column = (newLine ? 2 : column + 1) + word.size();
    text += word;
    previous = &action;
  }
  text += "\n";
}

std::string pdcrt::toString(const Schedule& schedule) {
  auto number = [](std::int64_t value) { return " " + std::to_string(value); };
  std::string text = "schedule " + schedule.kind + "\n";
  text += "weights " + std::string(weightNames[static_cast<int>(schedule.weights)]) + "\n";
  text += "minibatches-per-update" + number(schedule.minibatchesPerUpdate) + "\n";
  if (schedule.gradientNorm) text += "gradient-norm\n";
  for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
    const ScheduleStage& stage = schedule.stages[s];
    text += "stage" + number(static_cast<std::int64_t>(s)) + " replicas" + number(stage.replicas);
    if (stage.team != 1) text += " team" + number(stage.team);
    if (stage.teamSums) text += " sums";
    if (stage.isSharded()) text += " shard " + std::string(shardNames[static_cast<int>(stage.sharding)]);
    if (stage.shardDegree != 0) text += " degree" + number(stage.shardDegree);
    if (stage.sweeps != 1) text += " sweeps" + number(stage.sweeps);
    text += " warmup" + number(stage.warmup) + " sync-delay" + number(stage.syncDelay) + " slots" +
            number(stage.slots) + " versions" + number(stage.versions);
    if (stage.handovers != 1) text += " handovers" + number(stage.handovers);
    if (!stage.route.isRoundRobin()) text += " route";
    for (int replica : stage.route.word()) text += number(replica);
    text += "\n";
  }
  for (std::size_t i = 0; i < schedule.edges.size(); ++i) {
    const ScheduleEdge& edge = schedule.edges[i];
    const EdgeRings& rings = schedule.rings[i];
    text += "edge " + std::to_string(edge.from) + ">" + std::to_string(edge.to);
    if (edge.forward) text += " forward send" + number(rings.forwardSend) + " receive" + number(rings.forwardReceive);
    if (edge.backward)
      text += " backward send" + number(rings.backwardSend) + " receive" + number(rings.backwardReceive);
    text += "\n";
  }
  for (const SharedEdge& edge : schedule.shared)
    text += "shared " + std::to_string(edge.owner) + ">" + std::to_string(edge.user) + " versions send" +
            number(edge.versionSend) + " receive" + number(edge.versionReceive) + " parts send" +
            number(edge.partSend) + " receive" + number(edge.partReceive) + "\n";
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const RankList& rank = schedule.ranks[r];
    text += "rank" + number(static_cast<std::int64_t>(r)) + " hosts";
    for (const Host& host : rank.hosts) text += number(host.stage) + "." + std::to_string(host.replica);
    text += " step" + number(rank.step);
    if (rank.pool != RankList().pool) text += " pool" + number(rank.pool);
    if (rank.sums != RankList().sums) text += " sums" + number(rank.sums);
    text += "\n";
    print(text, "start", rank.start);
    print(text, "repeat", rank.repeat);
  }
  return text;
}

namespace {

/// Reads the lines one by one; the first failure is remembered.
class ScheduleReader {
public:
  ScheduleReader(std::string_view text, Schedule& schedule) : rest_(text), schedule_(schedule) {}

  bool read(std::string& error) {
    while (error_.empty() && nextLine()) readLine();
    if (error_.empty() && !sawSchedule_) fail("expected 'schedule KIND'");
    error = error_;
    return error_.empty();
  }

private:
  bool fail(const std::string& text) {
    if (error_.empty()) error_ = "line " + std::to_string(std::max(1, line_)) + ": " + text;
    return false;
  }

  bool nextLine() {
    if (rest_.empty()) return false;
    ++line_;
    std::size_t end = rest_.find('\n');
    words_ = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    words_ = words_.substr(0, words_.find('#'));
    return true;
  }

  /// The next word of the line; empty at its end.
  std::string_view word() {
    std::size_t begin = words_.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words_ = {};
    words_.remove_prefix(begin);
    std::size_t size = std::min(words_.find_first_of(" \t\r"), words_.size());
    std::string_view result = words_.substr(0, size);
    words_.remove_prefix(size);
    return result;
  }

  bool expect(std::string_view keyword) {
    std::string_view found = word();
    return found == keyword || fail("expected '" + std::string(keyword) + "', got '" + std::string(found) + "'");
  }

  bool number(std::string_view text, const std::string& what, std::int64_t largest, std::int64_t& value) {
    std::string whole(text);
    if (!text.empty() && readNumber(text, largest, value) && text.empty()) return true;
    return fail("expected " + what + " from 0 to " + std::to_string(largest) + ", got '" + whole + "'");
  }

  bool count(int& value) {
    std::int64_t wide = 0;
    if (!number(word(), "a number", largestCount, wide)) return false;
    value = static_cast<int>(wide);
    return true;
  }
  bool field(std::string_view keyword, int& value) { return expect(keyword) && count(value); }

  /// "A>B" or "A.B".
  bool pair(std::string_view text, char separator, int& first, int& second) {
    std::size_t middle = text.find(separator);
    std::int64_t a = 0, b = 0;
    if (middle == std::string_view::npos)
      return fail("expected two numbers with '" + std::string(1, separator) + "' between, got '" + std::string(text) +
                  "'");
    if (!number(text.substr(0, middle), "a number", largestCount, a) ||
        !number(text.substr(middle + 1), "a number", largestCount, b))
      return false;
    first = static_cast<int>(a);
    second = static_cast<int>(b);
    return true;
  }

  bool ordinal(std::string_view what, std::size_t expected) {
    std::int64_t value = 0;
    if (!number(word(), "a number", largestCount, value)) return false;
    return value == static_cast<std::int64_t>(expected) ||
           fail("expected " + std::string(what) + " " + std::to_string(expected) + ", got " + std::to_string(value));
  }

  bool readStage() {
    ScheduleStage stage;
    if (!ordinal("stage", schedule_.stages.size()) || !field("replicas", stage.replicas)) return false;
    std::string_view next = word();
    if (next == "team") {
      if (!count(stage.team)) return false;
      next = word();
      stage.teamSums = next == "sums" && stage.team > 1;
      if (stage.teamSums) next = word();
    }
    if (next == "shard") {
      if (!readSharding(stage)) return false;
      next = word();
      if (next == "degree") {
        if (!count(stage.shardDegree)) return false;
        next = word();
      }
      if (next == "sweeps") {
        if (!count(stage.sweeps)) return false;
        next = word();
      }
    }
    if (next != "warmup") return fail("expected 'team', 'shard' or 'warmup', got '" + std::string(next) + "'");
    if (!count(stage.warmup) || !field("sync-delay", stage.syncDelay) || !field("slots", stage.slots) ||
        !field("versions", stage.versions))
      return false;
    std::string_view more = word();
    if (more == "handovers") { // 1 where the backward is not split
      if (!count(stage.handovers)) return false;
      more = word();
    }
    if (more == "route") {
      if (!readRoute(stage.route)) return false;
    } else if (!more.empty()) {
      return fail("expected 'handovers', 'route' or the end of the line, got '" + std::string(more) + "'");
    }
    schedule_.stages.push_back(std::move(stage));
    return true;
  }

  bool readSharding(ScheduleStage& stage) {
    const std::string_view name = word();
    for (const Sharding known : {Sharding::optimizer, Sharding::weights})
      if (name == shardNames[static_cast<int>(known)]) {
        stage.sharding = known;
        return true;
      }
    return fail("expected 'optimizer' or 'weights', got '" + std::string(name) + "'");
  }

  bool readRoute(Route& route) {
    std::vector<int> word;
    for (std::string_view next = this->word(); !next.empty() || word.empty(); next = this->word()) {
      std::int64_t replica = 0;
      if (!number(next, "a replica", largestCount, replica)) return false;
      word.push_back(static_cast<int>(replica));
    }
    route = Route(std::move(word));
    return true;
  }

  bool readEdge() {
    ScheduleEdge edge{0, 0, false, false};
    EdgeRings rings{0, 0, 0, 0};
    if (!pair(word(), '>', edge.from, edge.to)) return false;
    std::string_view direction = word();
    if (direction == "forward") {
      edge.forward = true;
      if (!field("send", rings.forwardSend) || !field("receive", rings.forwardReceive)) return false;
      direction = word();
    }
    if (direction == "backward") {
      edge.backward = true;
      if (!field("send", rings.backwardSend) || !field("receive", rings.backwardReceive)) return false;
      direction = word();
    }
    if (!direction.empty()) return fail("expected 'forward' or 'backward', got '" + std::string(direction) + "'");
    schedule_.edges.push_back(edge);
    schedule_.rings.push_back(rings);
    return true;
  }

  bool readShared() {
    SharedEdge edge;
    if (!pair(word(), '>', edge.owner, edge.user) || !expect("versions") || !field("send", edge.versionSend) ||
        !field("receive", edge.versionReceive) || !expect("parts") || !field("send", edge.partSend) ||
        !field("receive", edge.partReceive))
      return false;
    schedule_.shared.push_back(edge);
    return true;
  }

  bool readRank() {
    RankList rank;
    if (!ordinal("rank", schedule_.ranks.size()) || !expect("hosts")) return false;
    std::string_view next = word();
    for (; !next.empty() && next != "step"; next = word()) {
      Host host;
      if (!pair(next, '.', host.stage, host.replica)) return false;
      rank.hosts.push_back(host);
    }
    if (next != "step") return fail("expected 'step'");
    if (!number(word(), "a number of minibatches", largestNumber, rank.step)) return false;
    std::string_view more = word();
    for (const auto& [name, places] : {std::pair("pool", &rank.pool), std::pair("sums", &rank.sums)})
      if (more == name) {
        if (!count(*places)) return false;
        more = word();
      }
    if (!more.empty()) return fail("expected 'pool', 'sums' or the end of the line, got '" + std::string(more) + "'");
    schedule_.ranks.push_back(std::move(rank));
    list_ = nullptr;
    return true;
  }

  bool readActions(std::string_view first) {
    for (std::string_view next = first; !next.empty(); next = word()) {
      Action action;
      std::string error;
      if (!parseAction(next, action, error)) return fail(error);
      list_->push_back(action);
    }
    return true;
  }

  bool readWeights() {
    std::string_view name = word();
    for (std::size_t i = 0; i < std::size(weightNames); ++i)
      if (name == weightNames[i]) {
        schedule_.weights = static_cast<WeightPolicy>(i);
        return true;
      }
    return fail("expected 'stash', 'vertical-sync', 'latest' or 'two-versions', got '" + std::string(name) + "'");
  }

  void readLine() {
    std::string_view keyword = word();
    if (keyword.empty()) return;
    if (keyword == "schedule") {
      sawSchedule_ = true;
      schedule_.kind = word();
      if (schedule_.kind.empty()) fail("expected the kind of the schedule");
    } else if (keyword == "weights") {
      readWeights();
    } else if (keyword == "minibatches-per-update") {
      number(word(), "a number", largestNumber, schedule_.minibatchesPerUpdate);
    } else if (keyword == "gradient-norm") {
      schedule_.gradientNorm = true;
    } else if (keyword == "stage") {
      readStage();
    } else if (keyword == "edge") {
      readEdge();
    } else if (keyword == "shared") {
      readShared();
    } else if (keyword == "rank") {
      readRank();
    } else if (keyword == "start" || keyword == "repeat") {
      if (schedule_.ranks.empty())
        fail("expected a line 'rank …' before '" + std::string(keyword) + "'");
      else
        list_ = keyword == "start" ? &schedule_.ranks.back().start : &schedule_.ranks.back().repeat;
    } else if (list_) {
      readActions(keyword);
    } else {
      fail("expected schedule, weights, minibatches-per-update, gradient-norm, stage, edge, shared, rank, start or "
           "repeat, got '" +
           std::string(keyword) + "'");
    }
    if (std::string_view more = word(); error_.empty() && !more.empty())
      fail("expected the end of the line, got '" + std::string(more) + "'");
  }

  std::string_view rest_, words_;
  int line_ = 0;
  Schedule& schedule_;
  std::vector<Action>* list_ = nullptr;
  bool sawSchedule_ = false;
  std::string error_;
};

} // namespace

bool pdcrt::parseSchedule(std::string_view text, Schedule& schedule, std::string& error) {
  Schedule result;
  if (!ScheduleReader(text, result).read(error) || !isWellFormed(result, error)) return false;
  schedule = std::move(result);
  return true;
}
