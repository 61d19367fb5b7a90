// PyTorch's CSV: the reader of cells, what a batch must be, and the writer. The lists are made in TorchSchedule.cpp.
#include "pdc/Schedule/TorchCsv.h"

#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdcrt/Simulate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>

using namespace pdc;
using pdcrt::Action;
using pdcrt::ActionKind;

namespace {

constexpr std::int64_t largestNumber = 1 << 20;

constexpr std::pair<ActionKind, const char*> shardCells[] = {
    {ActionKind::unshard, "UNSHARD"}, {ActionKind::reshard, "RESHARD"}, {ActionKind::reduceScatter, "REDUCE_GRAD"}};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\"";
  std::size_t begin = text.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

/// Takes a number from the front of `text`; -1 if there is none, or one that is too large.
std::int64_t takeNumber(std::string_view& text) {
  std::int64_t value = -1;
  auto [next, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || text.front() == '-' || value > largestNumber) return -1;
  text.remove_prefix(static_cast<std::size_t>(next - text.data()));
  return value;
}

/// Reads the cells row by row and keeps, per stage and microbatch, what has been computed.
class Reader {
public:
  Reader(const std::string& file, Diagnostics& diags) : file_(file), diags_(diags) {}

  Expected<TorchBatch> read(std::string_view text) {
    // Blank lines at the end are no ranks.
    while (!text.empty() && std::string_view("\r\n\t ,").find(text.back()) != std::string_view::npos)
      text.remove_suffix(1);
    if (text.empty()) return diags_.error({file_}) << "expected a row of computations for each rank, got an empty file";
    while (true) {
      std::size_t end = std::min(text.find('\n'), text.size());
      if (!readRow(text.substr(0, end))) return failure;
      if (end == text.size()) break;
      text.remove_prefix(end + 1);
    }
    if (!conclude()) return failure;
    remark();
    return std::move(batch_);
  }

private:
  /// What is known of one stage on one rank.
  struct Hosted {
    std::vector<std::int64_t> forwards;
    std::int64_t inputs = 0, weights = 0; ///< backwards so far, in the order of `forwards`
    TorchBatch::Stage sizes;
    int line = 0;
  };

  Diagnostics::Builder error() { return diags_.error({file_, "", line_, column_}); }

  Status readRow(std::string_view row) {
    ++line_;
    hosted_.emplace_back();
    batch_.ranks.emplace_back();
    const char* begin = row.data();
    while (true) {
      std::size_t end = std::min(row.find(','), row.size());
      std::string_view cell = trimmed(row.substr(0, end));
      column_ = cell.empty() ? 0 : static_cast<int>(cell.data() - begin) + 1;
      if (!cell.empty() && !readCell(cell)) return failure;
      if (end == row.size()) break;
      row.remove_prefix(end + 1);
    }
    column_ = 0;
    if (hosted_.back().empty()) return error() << "rank " << line_ - 1 << " computes nothing";
    return success;
  }

  Status readCell(std::string_view cell) {
    if (cell.front() != '(') return readAction(cell);
    std::size_t close = cell.find(')');
    if (close == std::string_view::npos || cell.substr(close + 1) != "OVERLAP_F_B") return unknown(cell);
    leftOut_.insert("OVERLAP_F_B");
    for (std::string_view parts = cell.substr(1, close - 1); !parts.empty();) {
      std::size_t end = std::min(parts.find(';'), parts.size());
      if (!readAction(trimmed(parts.substr(0, end)))) return failure;
      parts.remove_prefix(std::min(end + 1, parts.size()));
    }
    return success;
  }

  Status unknown(std::string_view cell) {
    return error().help("a cell is a stage, F, B, I or W, and a microbatch, like 2F0, or empty")
           << "'" << cell << "' is no computation of a pipeline schedule";
  }

  Status readAction(std::string_view cell) {
    std::string_view rest = cell;
    std::int64_t stage = rest.empty() ? -1 : takeNumber(rest);
    if (stage < 0) return unknown(cell);
    std::size_t letters = std::min(rest.find_first_of("0123456789"), rest.size());
    std::string_view kind = rest.substr(0, letters);
    rest.remove_prefix(letters);
    for (const char* known : {"SEND_F", "RECV_F", "SEND_B", "RECV_B"})
      if (kind == known) {
        leftOut_.insert(known);
        return success;
      }
    for (const auto& [action, name] : shardCells)
      if (kind == name) {
        batch_.ranks.back().push_back({action, false, static_cast<int>(stage), -1, 1});
        return success;
      }
    if (kind == "BW")
      return error().help(
                 "write B for the full backward, and I where the file has B; older versions of PyTorch did not")
             << "'" << cell << "': BW is no letter of a computation";
    std::int64_t microbatch = rest.empty() ? -1 : takeNumber(rest);
    if (kind.size() != 1 || std::string_view("FBIW").find(kind) == std::string_view::npos || microbatch < 0 ||
        !rest.empty())
      return unknown(cell);
    return add(static_cast<int>(stage), kind.front(), microbatch, cell);
  }

  Status add(int stage, char letter, std::int64_t microbatch, std::string_view cell) {
    Hosted& hosted = hosted_.back()[stage];
    hosted.line = line_;
    TorchBatch::Stage& sizes = hosted.sizes;
    if (letter == 'F') {
      if (!hosted.forwards.empty() && microbatch <= hosted.forwards.back())
        return error() << "'" << cell << "' comes after the forward of microbatch " << hosted.forwards.back()
                       << "; a stage computes its microbatches in order";
      hosted.forwards.push_back(microbatch);
      auto inFlight = static_cast<std::int64_t>(hosted.forwards.size()) - hosted.weights;
      sizes.slots = std::max(sizes.slots, static_cast<int>(inFlight));
      if (hosted.inputs == 0) sizes.warmup = static_cast<int>(hosted.forwards.size()) - 1;
      batch_.ranks.back().push_back({ActionKind::forward, false, stage, -1, microbatch});
      return success;
    }
    const bool input = letter != 'W', weight = letter != 'I';
    for (bool first : {true, false}) {
      if (!(first ? input : weight)) continue;
      std::int64_t& done = first ? hosted.inputs : hosted.weights;
      std::int64_t most = first ? static_cast<std::int64_t>(hosted.forwards.size()) : hosted.inputs;
      auto place =
          std::lower_bound(hosted.forwards.begin(), hosted.forwards.end(), microbatch) - hosted.forwards.begin();
      if (place < done && place < static_cast<std::ptrdiff_t>(hosted.forwards.size()) &&
          hosted.forwards[static_cast<std::size_t>(place)] == microbatch)
        return twice(cell, letter);
      if (done >= most || hosted.forwards[static_cast<std::size_t>(done)] != microbatch) {
        if (done < most)
          return error() << "'" << cell << "' comes before the backward of microbatch "
                         << hosted.forwards[static_cast<std::size_t>(done)]
                         << "; a stage computes its microbatches in order";
        return error() << "'" << cell << "' comes before its " << (first ? "forward" : "input gradient");
      }
      ++done;
      sizes.handovers = std::max(sizes.handovers, static_cast<int>(hosted.inputs - hosted.weights));
    }
    ActionKind kind = letter == 'B'   ? ActionKind::backward
                      : letter == 'I' ? ActionKind::backwardInput
                                      : ActionKind::backwardWeight;
    batch_.ranks.back().push_back({kind, false, stage, -1, microbatch});
    return success;
  }

  Status twice(std::string_view cell, char letter) {
    if (letter != 'W') return error() << "'" << cell << "' comes after the backward of the same microbatch";
    return error().help(
               "where W follows, the input gradient is I, and B is the full backward; older versions of PyTorch "
               "wrote B and BW")
           << "'" << cell << "' comes after the weight gradient of the same microbatch";
  }

  /// Stages, replicas and microbatches of the whole, and what is missing.
  Status conclude() {
    std::map<int, std::vector<std::pair<const Hosted*, int>>> rows; // by stage: with the rank
    for (std::size_t rank = 0; rank < hosted_.size(); ++rank)
      for (const auto& [stage, hosted] : hosted_[rank]) {
        line_ = hosted.line;
        if (hosted.weights != static_cast<std::int64_t>(hosted.forwards.size()))
          return error() << "stage " << stage << " lacks the "
                         << (hosted.inputs == hosted.weights ? "" : "weight gradient of the ")
                         << "backward of microbatch " << hosted.forwards[static_cast<std::size_t>(hosted.weights)];
        rows[stage].push_back({&hosted, static_cast<int>(rank)});
        batch_.microbatches = std::max(batch_.microbatches, hosted.forwards.back() + 1);
      }
    batch_.hosts.resize(hosted_.size());
    for (auto& [stage, list] : rows)
      if (!addStage(stage, list)) return failure;
    if (!readShards()) return failure;
    for (std::size_t rank = 0; rank < hosted_.size(); ++rank)
      for (const pdcrt::Host& host : batch_.hosts[rank]) {
        const pdcrt::Host& first = batch_.hosts[rank][0];
        line_ = static_cast<int>(rank) + 1;
        if (host.replica != first.replica || batch_.stages[host.stage].replicas != batch_.stages[first.stage].replicas)
          return error() << "rank " << rank << " hosts stages with different replicas, " << first.stage << " and "
                         << host.stage;
      }
    return success;
  }

  Status addStage(int stage, std::vector<std::pair<const Hosted*, int>>& rows) {
    line_ = rows[0].first->line;
    if (stage != static_cast<int>(batch_.stages.size()))
      return error() << "stage " << batch_.stages.size() << " is missing, there is a stage " << stage;
    std::sort(rows.begin(), rows.end(),
              [](const auto& a, const auto& b) { return a.first->forwards.front() < b.first->forwards.front(); });
    TorchBatch::Stage sizes;
    sizes.replicas = static_cast<int>(rows.size());
    for (std::size_t q = 0; q < rows.size(); ++q) {
      const Hosted& hosted = *rows[q].first;
      line_ = hosted.line;
      auto expected = static_cast<std::int64_t>(q);
      for (std::int64_t microbatch : hosted.forwards) {
        if (microbatch != expected)
          return error().help(rows.size() > 1 ? "microbatch b is of replica b mod " + std::to_string(rows.size())
                                              : "number them from 0")
                 << "stage " << stage << " lacks the forward of microbatch " << expected;
        expected += sizes.replicas;
      }
      if (expected != batch_.microbatches + static_cast<std::int64_t>(q))
        return error() << "stage " << stage << " has " << hosted.forwards.size() * rows.size()
                       << " microbatches, others " << batch_.microbatches;
      sizes.warmup = std::max(sizes.warmup, hosted.sizes.warmup);
      sizes.slots = std::max(sizes.slots, hosted.sizes.slots);
      sizes.handovers = std::max(sizes.handovers, hosted.sizes.handovers);
      batch_.hosts[static_cast<std::size_t>(rows[q].second)].push_back({stage, static_cast<int>(q)});
    }
    batch_.stages.push_back(sizes);
    return success;
  }

  /// How often the weights of each stage are gathered. What says nothing is left out.
  Status readShards() {
    const auto count = [&](std::size_t rank, int stage, ActionKind kind) {
      return std::count_if(batch_.ranks[rank].begin(), batch_.ranks[rank].end(),
                           [&](const Action& action) { return action.stage == stage && action.kind == kind; });
    };
    for (std::size_t rank = 0; rank < batch_.ranks.size(); ++rank)
      for (const pdcrt::Host& host : batch_.hosts[rank]) {
        TorchBatch::Stage& stage = batch_.stages[static_cast<std::size_t>(host.stage)];
        const auto gathered = static_cast<int>(count(rank, host.stage, ActionKind::unshard));
        line_ = static_cast<int>(rank) + 1;
        if (stage.replicas == 1 || gathered == stage.sweeps) continue;
        if (host.replica > 0)
          return error() << "replica " << host.replica << " of stage " << host.stage << " gathers its weights "
                         << gathered << " times, replicas before it " << stage.sweeps << " times";
        stage.sweeps = gathered;
      }
    for (std::size_t rank = 0; rank < batch_.ranks.size(); ++rank) {
      for (const pdcrt::Host& host : batch_.hosts[rank])
        if (const auto given = count(rank, host.stage, ActionKind::reshard);
            given > count(rank, host.stage, ActionKind::unshard)) {
          line_ = static_cast<int>(rank) + 1;
          return error() << "stage " << host.stage << " has " << given << " RESHARD, and "
                         << count(rank, host.stage, ActionKind::unshard) << " UNSHARD";
        }
      std::erase_if(batch_.ranks[rank], [&](const Action& action) {
        if (batch_.stages[static_cast<std::size_t>(action.stage)].sweeps > 0) return false;
        for (const auto& [kind, name] : shardCells)
          if (action.kind == kind) leftOut_.insert(name);
        return std::any_of(std::begin(shardCells), std::end(shardCells),
                           [&](const auto& cell) { return cell.first == action.kind; });
      });
    }
    return success;
  }

  void remark() {
    std::string names;
    for (const std::string& name : leftOut_)
      if (name != "OVERLAP_F_B") names += (names.empty() ? "" : ", ") + name;
    if (!names.empty()) diags_.remark({file_}) << names << " left out: transfers and sums follow from the plan";
    if (leftOut_.contains("OVERLAP_F_B")) diags_.remark({file_}) << "OVERLAP_F_B: a rank computes one after the other";
  }

  const std::string& file_;
  Diagnostics& diags_;
  int line_ = 0, column_ = 0;
  std::vector<std::map<int, Hosted>> hosted_; ///< by rank, then stage
  std::set<std::string> leftOut_;
  TorchBatch batch_;
};

} // namespace

Expected<TorchBatch> pdc::torchBatchFromCsv(const std::string& text, const std::string& file, Diagnostics& diags) {
  return Reader(file, diags).read(text);
}

/// A batch with what gathers and sums weights, as PyTorch states it: cells follow each other without steps.
static std::string withShards(const pdcrt::Schedule& schedule) {
  std::string text;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    std::string row;
    for (const Action& action : pdcrt::expand(schedule, static_cast<int>(rank), schedule.minibatchesPerUpdate)) {
      std::string cell;
      for (const auto& [kind, name] : shardCells)
        if (action.kind == kind && !action.wait) cell = std::to_string(action.stage) + name;
      if (pdcrt::kindRow(action.kind).index == pdcrt::Counted::minibatches && pdcrt::isComputation(action.kind))
        cell = toString(action);
      if (!cell.empty()) row += (row.empty() ? "" : ",") + cell;
    }
    text += row + "\n";
  }
  return text;
}

Expected<std::string> pdc::torchCsv(const pdcrt::Schedule& schedule, Diagnostics& diags) {
  const std::int64_t m = schedule.minibatchesPerUpdate;
  if (m == 0 || schedule.weights == pdcrt::WeightPolicy::twoVersions)
    return diags.error({}).exit(ExitCode::unsupported).help("take a schedule that flushes, like 1f1b-flush")
           << "PyTorch's CSV holds one batch, after which the pipeline drains; '" << schedule.kind
           << "' does not drain";
  for (std::size_t s = 0; s < schedule.stages.size(); ++s)
    if (m % schedule.stages[s].replicas != 0)
      return diags.error({}).exit(ExitCode::unsupported).help("take a number of microbatches that the replicas divide")
             << "the batches of stage " << s << " differ: " << m << " microbatches over " << schedule.stages[s].replicas
             << " replicas";

  const auto gathers = [](const pdcrt::ScheduleStage& stage) { return stage.sharding == pdcrt::Sharding::weights; };
  if (std::any_of(schedule.stages.begin(), schedule.stages.end(), gathers)) return withShards(schedule);
  std::vector<std::map<std::int64_t, std::string>> cells(schedule.ranks.size()); // by rank and step
  pdcrt::Times times;
  times.computation = [](const Action& action) { return action.kind == ActionKind::update ? 0.0 : 1.0; };
  pdcrt::CheckOptions options{.times = &times, .order = false};
  options.observe = [&](const pdcrt::TracedAction& traced) {
    if (pdcrt::isComputation(traced.action.kind) && traced.action.kind != ActionKind::update)
      cells[static_cast<std::size_t>(traced.rank)][std::llround(traced.startMs)] = toString(traced.action);
  };
  (void)pdcrt::check(schedule, m, options);
  std::string text;
  for (const auto& row : cells) {
    std::int64_t step = 0;
    for (const auto& [at, cell] : row) {
      for (; step < at; ++step) text += ",";
      text += cell;
    }
    text += "\n";
  }
  return text;
}
