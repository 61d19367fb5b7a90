#include "PipeDream/CodeSearch.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

CodeSearch::CodeSearch(const CodeStates& states, const CodeLevel& level, const CodeLimits& limits,
                       const CodeTimes* inside, int begin, std::size_t end)
    : states_(states), level_(level), limits_(limits), inside_(inside), begin_(begin),
      words_(static_cast<std::size_t>(level.count) / 64 + 1) {
  for (std::size_t s = static_cast<std::size_t>(begin + 1); s <= end; ++s)
    if (states.includes(end, s) && (begin < 0 || states.includes(s, static_cast<std::size_t>(begin))))
      members_.push_back(s);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    first_.push_back(before_.size());
    for (std::size_t k = 0; k < i; ++k)
      if (states.includes(members_[i], members_[k])) before_.push_back(static_cast<std::uint32_t>(k));
  }
  first_.push_back(before_.size());
}

CodeStage CodeSearch::stage(int from, std::size_t to) const {
  CodeStage stage;
  stage.insideMs =
      inside_ ? (*inside_)[static_cast<std::size_t>(from + 1) * states_.size() + to] : computeMs(states_, from, to);
  stage.weights = states_.weights[to];
  if (from >= 0) stage.weights -= states_.weights[static_cast<std::size_t>(from)];
  if (from == begin_) {
    stage.share = level_.inner;
  } else {
    stage.edge = std::max(states_.cut[static_cast<std::size_t>(from)], states_.cut[to]);
  }
  return stage;
}

/// The most times that so many bytes fit.
static double stashesThatFit(double limit, double bytes) {
  if (bytes <= 0 || limit == infinity) return infinity;
  double count = std::floor(limit / bytes);
  while (count * bytes > limit) --count;
  while ((count + 1) * bytes <= limit) ++count;
  return count;
}

/// The least u with ceil((count - u)/replicas) ≤ fitting.
static int leastComponentsUsed(int count, int replicas, double fitting) {
  double least = count - replicas * fitting;
  return least > 0 ? static_cast<int>(std::ceil(least)) : 0;
}

/// The least number of replicas from 2 to `most` that meets `timeMs`; it has to hold for `most`.
static int leastReplicas(const CodeStage& stage, double bytesPerMs, double timeMs, int most) {
  double sync = 4.0 * stage.weights / bytesPerMs / stage.share, sum = stage.insideMs + sync;
  double root = sum * sum - 4 * timeMs * sync; // τ·m² - (C + b)·m + b ≥ 0 from its larger root on
  double guess = root > 0 ? (sum + std::sqrt(root)) / (2 * timeMs) : 2;
  guess = std::max(guess, 2 * stage.edge / (bytesPerMs * timeMs));
  int least = guess < most ? std::max(2, static_cast<int>(std::ceil(guess))) : most;
  while (least < most && stage.timeMs(least, bytesPerMs) > timeMs) ++least;
  while (least > 2 && stage.timeMs(least - 1, bytesPerMs) <= timeMs) --least;
  return least;
}

namespace {

/// Sets of numbers 0 … count.
struct Numbers {
  static int lowest(const std::uint64_t* set, std::size_t words) {
    for (std::size_t i = 0; i < words; ++i)
      if (set[i]) return static_cast<int>(i * 64) + std::countr_zero(set[i]);
    return -1;
  }
  static bool has(const std::uint64_t* set, int number) { return set[number / 64] >> (number % 64) & 1; }
  static void add(std::uint64_t* set, int number) { set[number / 64] |= std::uint64_t{1} << (number % 64); }
  /// All from `number` on.
  static void addFrom(std::uint64_t* set, std::size_t words, int number) {
    auto word = static_cast<std::size_t>(number / 64);
    if (word >= words) return;
    set[word] |= ~std::uint64_t{0} << (number % 64);
    for (++word; word < words; ++word) set[word] = ~std::uint64_t{0};
  }
  /// Those of `from` plus `shift` that are at least `least`.
  static void addShifted(std::uint64_t* set, const std::uint64_t* from, std::size_t words, int shift, int least) {
    auto skip = static_cast<std::size_t>(shift / 64);
    int bits = shift % 64;
    for (std::size_t i = words; i-- > skip;) {
      std::uint64_t word = from[i - skip] << bits;
      if (bits && i > skip) word |= from[i - skip - 1] >> (64 - bits);
      int base = static_cast<int>(i * 64);
      if (least >= base + 64) break;
      if (least > base) word &= ~std::uint64_t{0} << (least - base);
      set[i] |= word;
    }
  }
};

} // namespace

void CodeSearch::extend(const Bits* before, Bits* after, const CodeStage& stage, double stash, bool last, double timeMs,
                        double& rejected) const {
  int used = Numbers::lowest(before, words_), most = level_.count - used - (last ? 0 : 1);
  if (used < 0 || most < 1) return;
  double fitting = stashesThatFit(limits_.stashBytes, stash);
  auto leastUsed = [&](int replicas) { return leastComponentsUsed(level_.count, replicas, fitting); };
  double single = stage.timeMs(1, level_.bytesPerMs);
  if (single <= timeMs)
    Numbers::addShifted(after, before, words_, 1, leastUsed(1));
  else
    rejected = std::min(rejected, single);
  if (limits_.straight || most < 2) return;
  if (double ms = stage.timeMs(most, level_.bytesPerMs); ms > timeMs) {
    rejected = std::min(rejected, ms);
    return;
  }
  int least = leastReplicas(stage, level_.bytesPerMs, timeMs, most);
  if (least > 2) rejected = std::min(rejected, stage.timeMs(least - 1, level_.bytesPerMs));
  for (; least <= most && leastUsed(least) > used + least; ++least)
    Numbers::addShifted(after, before, words_, least, leastUsed(least));
  if (least <= most) Numbers::addFrom(after, words_, used + least);
}

double CodeSearch::stash(int from, std::size_t to) const {
  return states_.stash[to] - (from < 0 ? 0 : states_.stash[static_cast<std::size_t>(from)]);
}

bool CodeSearch::reaches(double timeMs) {
  rejected_ = infinity;
  reach_.assign(members_.size() * words_, 0);
  std::vector<Bits> nothing(words_, 0);
  nothing[0] = 1;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    std::size_t to = members_[i];
    bool last = i + 1 == members_.size();
    Bits* reach = &reach_[i * words_];
    extend(nothing.data(), reach, stage(begin_, to), stash(begin_, to), last, timeMs, rejected_);
    for (std::size_t k = first_[i]; k < first_[i + 1]; ++k) {
      int from = static_cast<int>(members_[before_[k]]);
      extend(&reach_[before_[k] * words_], reach, stage(from, to), stash(from, to), last, timeMs, rejected_);
    }
  }
  return Numbers::has(&reach_[(members_.size() - 1) * words_], level_.count);
}

double CodeSearch::slowestStage() const {
  double slowest = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    auto consider = [&](int from) {
      CodeStage s = stage(from, members_[i]);
      double ms = std::max(s.insideMs + 4 * s.weights / level_.bytesPerMs, 2 * s.edge / level_.bytesPerMs);
      if (ms < infinity) slowest = std::max(slowest, ms);
    };
    consider(begin_);
    for (std::size_t k = first_[i]; k < first_[i + 1]; ++k) consider(static_cast<int>(members_[before_[k]]));
  }
  return slowest;
}

CodeSearch::Answer CodeSearch::best(double lower, double upper, const std::function<bool()>& stop) {
  Answer answer{.lowerBoundMs = lower};
  double feasible = std::min(std::nextafter(upper, 0), slowestStage()); // or no split is below `upper`
  if (!(lower <= feasible)) return answer;
  if (!reaches(feasible)) {
    answer.lowerBoundMs = std::min(upper, rejected_); // infinite if there is no split at all
    return answer;
  }
  answer.timeMs = feasible;
  for (int round = 0; answer.lowerBoundMs < answer.timeMs; ++round) {
    if (stop && stop()) return answer;
    bool close = answer.timeMs - answer.lowerBoundMs <= 1e-9 * answer.timeMs;
    double middle = answer.lowerBoundMs + (answer.timeMs - answer.lowerBoundMs) / 2;
    double timeMs = close || round % 4 == 3 || middle >= answer.timeMs ? answer.lowerBoundMs : middle;
    if (reaches(timeMs))
      answer.timeMs = timeMs;
    else
      answer.lowerBoundMs = std::min(rejected_, answer.timeMs);
  }
  return answer;
}

std::vector<CodeCut> CodeSearch::trace(double timeMs) const {
  // Labels by number of stages, until the last state is reached with all components.
  std::size_t n = members_.size();
  std::vector<Bits> nothing(words_, 0);
  nothing[0] = 1;
  double rejected = 0;
  std::vector<std::vector<Bits>> layers;
  while (layers.empty() || !Numbers::has(&layers.back()[(n - 1) * words_], level_.count)) {
    std::vector<Bits> layer(n * words_, 0);
    for (std::size_t i = 0; i < n; ++i) {
      bool last = i + 1 == n;
      if (layers.empty())
        extend(nothing.data(), &layer[i * words_], stage(begin_, members_[i]), stash(begin_, members_[i]), last, timeMs,
               rejected);
      else
        for (std::size_t k = first_[i]; k < first_[i + 1]; ++k) {
          int from = static_cast<int>(members_[before_[k]]);
          extend(&layers.back()[before_[k] * words_], &layer[i * words_], stage(from, members_[i]),
                 stash(from, members_[i]), last, timeMs, rejected);
        }
    }
    layers.push_back(std::move(layer));
  }
  std::vector<CodeCut> cuts;
  int used = level_.count;
  for (std::size_t at = n - 1, stages = layers.size(); stages-- > 0;) {
    std::size_t to = members_[at];
    // The replicas with which a stage from there can end in `to` with `used` components, if any.
    auto replicasFrom = [&](int from, const Bits* before) {
      CodeStage s = stage(from, to);
      double fitting = stashesThatFit(limits_.stashBytes, stash(from, to));
      int most = limits_.straight ? 1 : used;
      for (int m = 1; m <= most; ++m)
        if (Numbers::has(before, used - m) && s.timeMs(m, level_.bytesPerMs) <= timeMs &&
            used >= leastComponentsUsed(level_.count, m, fitting))
          return m;
      return 0;
    };
    int replicas = 0;
    if (stages == 0) {
      replicas = replicasFrom(begin_, nothing.data());
    } else {
      std::size_t k = first_[at];
      while (
          !(replicas = replicasFrom(static_cast<int>(members_[before_[k]]), &layers[stages - 1][before_[k] * words_])))
        ++k;
      at = before_[k];
    }
    cuts.insert(cuts.begin(), {to, replicas});
    used -= replicas;
  }
  return cuts;
}

namespace {

/// One row of timesOfIntervals: all intervals that begin with one state.
class Row {
public:
  Row(std::size_t states, int count) : n_(states), best_(static_cast<std::size_t>(count) * states) {}
  double* operator[](int components) { return &best_[static_cast<std::size_t>(components - 1) * n_]; }

private:
  std::size_t n_;
  std::vector<double> best_;
};

} // namespace

/// Times of later stages on m components, entry ((m - 1)·states + begin)·states + end.
static std::vector<double> laterStages(const CodeStates& states, const CodeLevel& level, const CodeLimits& limits,
                                       const CodeTimes& inside) {
  std::size_t n = states.size();
  int most = limits.straight ? 1 : level.count - 1;
  std::vector<double> times(static_cast<std::size_t>(most) * n * n, infinity);
  for (std::size_t from = 0; from < n; ++from)
    for (std::size_t to = from + 1; to < n; ++to) {
      if (!states.includes(to, from)) continue;
      CodeStage stage{.insideMs = inside[(from + 1) * n + to], .weights = states.weights[to] - states.weights[from]};
      stage.edge = std::max(states.cut[from], states.cut[to]);
      for (int m = 1; m <= most; ++m)
        times[((static_cast<std::size_t>(m) - 1) * n + from) * n + to] = stage.timeMs(m, level.bytesPerMs);
    }
  return times;
}

CodeTimes pdc::timesOfIntervals(const CodeStates& states, const CodeLevel& level, const CodeLimits& limits,
                                const CodeTimes* inside) {
  std::size_t n = states.size();
  CodeTimes sums;
  if (!inside) {
    sums.assign((n + 1) * n, infinity);
    for (int from = -1; from < static_cast<int>(n); ++from)
      for (auto to = static_cast<std::size_t>(from + 1); to < n; ++to)
        if (from < 0 || states.includes(to, static_cast<std::size_t>(from)))
          sums[static_cast<std::size_t>(from + 1) * n + to] = computeMs(states, from, to);
    inside = &sums;
  }
  std::vector<double> later = laterStages(states, level, limits, *inside);
  CodeTimes times((n + 1) * n, infinity);
  Row best(n, level.count);
  for (int begin = -1; begin < static_cast<int>(n); ++begin) {
    auto start = static_cast<std::size_t>(begin + 1);
    auto stashOf = [&](int from, std::size_t to) {
      return states.stash[to] - (from < 0 ? 0 : states.stash[static_cast<std::size_t>(from)]);
    };
    auto fits = [&](int from, std::size_t to, int used, int m) {
      return limits.stashBytes == infinity ||
             used >= leastComponentsUsed(level.count, m, stashesThatFit(limits.stashBytes, stashOf(from, to)));
    };
    for (int used = 1; used <= level.count; ++used)
      for (std::size_t to = start; to < n; ++to) {
        CodeStage first{.insideMs = (*inside)[start * n + to], .weights = states.weights[to]};
        if (begin >= 0) first.weights -= states.weights[static_cast<std::size_t>(begin)];
        first.share = level.inner;
        bool allowed = (used == 1 || !limits.straight) && fits(begin, to, used, used);
        best[used][to] = allowed ? first.timeMs(used, level.bytesPerMs) : infinity;
      }
    for (int used = 2; used <= level.count; ++used)
      for (int m = 1; m <= (limits.straight ? 1 : used - 1); ++m)
        for (std::size_t middle = start; middle + 1 < n; ++middle) {
          double before = best[used - m][middle];
          if (before == infinity) continue;
          const double* stage = &later[((static_cast<std::size_t>(m) - 1) * n + middle) * n];
          double* after = best[used];
          if (limits.stashBytes == infinity)
            for (std::size_t to = middle + 1; to < n; ++to)
              after[to] = std::min(after[to], std::max(before, stage[to]));
          else
            for (std::size_t to = middle + 1; to < n; ++to)
              if (fits(static_cast<int>(middle), to, used, m))
                after[to] = std::min(after[to], std::max(before, stage[to]));
        }
    for (std::size_t to = start; to < n; ++to) times[start * n + to] = best[level.count][to];
  }
  return times;
}
