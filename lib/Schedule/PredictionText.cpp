// Predictions for people and for programs.
#include "pdc/Schedule/Prediction.h"
#include "pdc/Support/JsonText.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <cstdio>
#include <ostream>

using namespace pdc;

template <class... Values>
static std::string text(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

/// Time of all ranks together.
static pdcrt::RankUse sumOf(const Prediction& prediction) {
  pdcrt::RankUse sum;
  for (const RankPrediction& rank : prediction.ranks) {
    sum.computeMs += rank.use.computeMs;
    sum.sharedMs += rank.use.sharedMs;
    sum.transferMs += rank.use.transferMs;
    sum.allReduceMs += rank.use.allReduceMs;
    sum.waitingMs += rank.use.waitingMs;
    sum.endedMs += rank.use.endedMs;
  }
  return sum;
}

void pdc::print(std::ostream& out, const Plan& plan, const Prediction& prediction) {
  out << text("time per minibatch  %.4g ms in the steady state", prediction.timePerMinibatchMs);
  if (plan.timeMs > 0)
    out << text(", %+.2f %% from the plan's %.4g ms", 100 * (prediction.timePerMinibatchMs / plan.timeMs - 1),
                plan.timeMs);
  out << text("\nrun                 %lld minibatches in %.4g ms\n", static_cast<long long>(prediction.minibatches),
              prediction.finishMs);
  out << text("bubble              %.2f %% of all ranks' time; %.2f %% between each rank's first and last action\n\n",
              100 * prediction.bubbleFraction, 100 * prediction.rankIdleFraction);

  constexpr std::size_t mostRows = 64;
  out << "rank  hosts         busy %  transfers %  all-reduce %  waiting %  done %  memory      sent\n";
  for (std::size_t r = 0; r < std::min(prediction.ranks.size(), mostRows); ++r) {
    const RankPrediction& rank = prediction.ranks[r];
    auto part = [&](double ms) { return prediction.finishMs > 0 ? 100 * ms / prediction.finishMs : 0; };
    out << text("%-5zu %-13s %6.2f  %11.2f  %12.2f  %9.2f  %6.2f  ", r, rank.hosts.c_str(),
                part(rank.use.computeMs + rank.use.sharedMs), part(rank.use.transferMs), part(rank.use.allReduceMs),
                part(rank.use.waitingMs), part(rank.use.endedMs));
    out << text("%-10s  %s", sizeText(rank.peakMemoryBytes).c_str(), sizeText(rank.bytesSent).c_str());
    if (rank.memoryLimitBytes > 0 && rank.peakMemoryBytes > rank.memoryLimitBytes)
      out << "  (over the limit of " << sizeText(rank.memoryLimitBytes) << ")";
    out << "\n";
  }
  if (prediction.ranks.size() > mostRows) out << "(" << mostRows << " of " << prediction.ranks.size() << " ranks)\n";

  pdcrt::RankUse sum = sumOf(prediction);
  double all = prediction.finishMs * static_cast<double>(prediction.ranks.size());
  auto share = [&](const char* what, double ms) { out << text("%7.2f %%  %s\n", all > 0 ? 100 * ms / all : 0, what); };
  out << "\nwhere the time of all ranks went\n";
  share("computing", sum.computeMs);
  share("slower, because ranks share cores", sum.sharedMs);
  share("waiting for transfers under way", sum.transferMs);
  share("waiting for all-reduces under way", sum.allReduceMs);
  share("waiting for other ranks to start (fill, bubble, unequal stages)", sum.waitingMs);
  share("after the last action (drain)", sum.endedMs);
  out << " 100.00 %\n";
}

std::string pdc::toJson(const Prediction& prediction) {
  using nlohmann::ordered_json;
  ordered_json memory = ordered_json::array(), bytes = ordered_json::array(), hosts = ordered_json::array();
  for (const RankPrediction& rank : prediction.ranks) {
    memory.push_back(rank.peakMemoryBytes);
    bytes.push_back(rank.bytesSent);
    hosts.push_back(rank.hosts);
  }
  pdcrt::RankUse sum = sumOf(prediction);
  double all = std::max(1e-300, prediction.finishMs * static_cast<double>(prediction.ranks.size()));
  return pretty({{"time_per_minibatch_ms", prediction.timePerMinibatchMs},
                 {"bubble_fraction", prediction.bubbleFraction},
                 {"rank_idle_fraction", prediction.rankIdleFraction},
                 {"minibatches", prediction.minibatches},
                 {"finish_ms", prediction.finishMs},
                 {"peak_memory_bytes", std::move(memory)},
                 {"bytes_sent", std::move(bytes)},
                 {"hosts", std::move(hosts)},
                 {"time_fractions",
                  {{"compute", sum.computeMs / all},
                   {"shared_cores", sum.sharedMs / all},
                   {"exposed_transfers", sum.transferMs / all},
                   {"exposed_all_reduce", sum.allReduceMs / all},
                   {"waiting", sum.waitingMs / all},
                   {"drain", sum.endedMs / all}}},
                 {"deadlock", prediction.deadlock},
                 {"problem", prediction.problem}});
}
