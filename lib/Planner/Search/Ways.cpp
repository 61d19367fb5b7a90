#include "Search/Ways.h"

#include <algorithm>
#include <limits>

using namespace pdc;

static constexpr double unknown = -std::numeric_limits<double>::infinity();

SolverWays::SolverWays(const SolverProblem& problem, const States& states, int mostStages) : states_(states) {
  constexpr int mostStates = 2'000, mostRounds = 4;
  if (states.size() > mostStates || mostStages < 2) return;
  findUsers(problem);
  // With more stages they hardly differ: any number, each state following from those before it.
  if (mostStages - 1 > mostRounds) {
    extend(last_, last_, false);
    return;
  }
  for (int stages = 1; stages < mostStages; ++stages, last_ = 1 - last_) extend(last_, 1 - last_, stages == 1);
}

void SolverWays::findUsers(const SolverProblem& problem) {
  std::vector<std::vector<int>> needed(problem.blocks.size());
  for (const BlockTensor& tensor : problem.tensors)
    for (int to : tensor.gradientFrom) needed[static_cast<std::size_t>(to)].push_back(tensor.from);
  users_.resize(static_cast<std::size_t>(states_.size()));
  for (int i = 0; i < states_.size(); ++i)
    for (std::size_t w = 0; w < needed.size(); ++w) {
      if (states_.set(i).contains(w)) continue;
      auto needs = std::count_if(needed[w].begin(), needed[w].end(),
                                 [&](int v) { return states_.set(i).contains(static_cast<std::size_t>(v)); });
      if (needs > 0) users_[i].push_back({static_cast<int>(w), static_cast<int>(needs), {unknown, unknown}});
    }
}

/// To the stage between states i and j.
double SolverWays::into(int i, int j, int which) const {
  if (i == 0) return 0;
  double most = unknown;
  for (const User& user : users_[i])
    if (user.ways[which] > most && states_.set(j).contains(static_cast<std::size_t>(user.block)))
      most = user.ways[which];
  return most;
}

/// One more stage than in `from`, into `to`.
void SolverWays::extend(int from, int to, bool isFirst) {
  for (int i = 1; i < states_.size(); ++i) {
    for (User& user : users_[i]) user.ways[to] = std::numeric_limits<double>::infinity();
    for (int h = 0; h < (isFirst ? 1 : i); ++h) {
      if (!states_.precedes(h, i)) continue;
      const double through = into(h, i, from) + states_.leastMs(i) - states_.leastMs(h);
      auto earlier = users_[h].begin();
      for (User& user : users_[i]) {
        while (earlier != users_[h].end() && earlier->block < user.block) ++earlier;
        const bool needsEarlier = earlier != users_[h].end() && earlier->block == user.block;
        double way = needsEarlier ? earlier->ways[from] : unknown;
        if (!needsEarlier || user.needs > earlier->needs) way = std::max(way, through);
        user.ways[to] = std::min(user.ways[to], way);
      }
    }
  }
}

double SolverWays::before(int i, int j) const {
  return users_.empty() ? 0 : std::max(0.0, into(i, j, last_));
}
