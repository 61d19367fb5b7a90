// Repetitions with and without the observer alternate, so that both see the same machine.
#include "Profile.h"

#include "pdcrt/MappedFile.h"
#include "pdcrt/Replay.h"
#include "pdcrt/StreamClock.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace pdcrt {
namespace {

enum class Phase : std::size_t { forward, inputGradient, weightGradient };
constexpr std::size_t phases = 3;

/// Collects, per group and phase, the seconds of each repetition.
class GroupTimer : public GroupObserver {
public:
  explicit GroupTimer(Stream& stream) : stream_(stream) {}

  void beginGroup(int group) override {
    const std::size_t point = clock_.mark(stream_);
    if (!spans_.empty() && spans_.back().group < 0)
      spans_.back().group = group; // what a phase does before its first group counts as that group's
    else {
      close(point);
      spans_.push_back({group, phase_, point, point});
    }
  }
  void beginPhase(Phase phase) {
    phase_ = phase;
    const std::size_t point = clock_.mark(stream_);
    spans_.push_back({-1, phase, point, point});
  }
  void endPhase() { close(clock_.mark(stream_)); }
  /// When the stream has been waited for.
  void endRepetition(bool keep) {
    std::map<Key, double> sums;
    for (const Span& span : spans_)
      if (span.group >= 0) sums[{span.group, span.phase}] += clock_.seconds(span.begin, span.end);
    for (const auto& [key, seconds] : sums)
      if (keep) samples_[key].push_back(seconds);
    spans_.clear();
    clock_.clear();
  }
  std::vector<double> samples(int group, Phase phase) const {
    auto at = samples_.find({group, phase});
    return at == samples_.end() ? std::vector<double>() : at->second;
  }

private:
  struct Span {
    int group; ///< -1: none yet
    Phase phase;
    std::size_t begin, end; ///< points of the clock
  };
  using Key = std::pair<int, Phase>;

  void close(std::size_t point) {
    if (!spans_.empty()) spans_.back().end = point;
  }

  Stream& stream_;
  StreamClock clock_;
  std::vector<Span> spans_;
  std::map<Key, std::vector<double>> samples_;
  Phase phase_ = Phase::forward;
};

/// Reads a few minibatches, once, and copies them from then on.
class Copies : public BatchSource {
public:
  explicit Copies(BatchSource& source) : source_(source) {}

  Status read(const DataRow& row, std::int64_t minibatch, std::byte* destination) override {
    constexpr std::int64_t kept = 4;
    std::vector<std::byte>& copy = copies_[{&row, minibatch % kept}];
    if (copy.empty()) {
      copy.resize(static_cast<std::size_t>(row.shape.elements()) * bytesOf(row.element));
      if (Status status = source_.read(row, minibatch % kept, copy.data()); !status) return status;
    }
    std::copy(copy.begin(), copy.end(), destination);
    return {};
  }

private:
  BatchSource& source_;
  std::map<std::pair<const DataRow*, std::int64_t>, std::vector<std::byte>> copies_;
};

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

/// Median and spread of each group in each phase.
nlohmann::ordered_json groupsOf(const Stage& stage, const GroupTimer& timer) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  constexpr const char* names[phases] = {"forward", "input_gradient", "weight_gradient"};
  for (const GroupRow& row : stage.groups) {
    nlohmann::ordered_json group = {{"id", row.id}, {"name", row.name}};
    for (std::size_t phase = 0; phase < phases; ++phase) {
      const std::vector<double> samples = timer.samples(row.id, static_cast<Phase>(phase));
      const double median = quantile(samples, 0.5);
      group[std::string(names[phase]) + "_ms"] = median * 1e3;
      group[std::string(names[phase]) + "_spread"] =
          median > 0 ? (quantile(samples, 0.75) - quantile(samples, 0.25)) / median : 0;
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

} // namespace

/// Adds what lies in `spare` to the gradients, as each microbatch of a batch does behind the first one.
void accumulate(Stream& stream, const Stage& stage, std::byte* gradients, const std::vector<std::byte>& spare) {
  for (const GradientRow& row : stage.gradients) {
    auto* sum = reinterpret_cast<float*>(gradients + row.offset);
    const float* const terms[] = {sum, reinterpret_cast<const float*>(spare.data() + row.offset)};
    device::addUp(stream, sum, terms, stage.parameters[static_cast<std::size_t>(row.parameter)].shape.elements());
  }
}

Status profile(Executor& executor, BatchSource& source, bool copies, const Training& training, bool recordsPhases,
               const std::vector<KernelTime>& kernels, const std::string& path) {
  if (executor.hosted().size() != 1 || executor.hosted()[0].stage->count != 1)
    return {Exit::usage, "--profile needs a program of one stage", "generate it with --devices=1"};
  HostedStage& hosted = executor.hosted()[0];
  const Stage& stage = *hosted.stage;

  Stream stream = executor.stream();
  GroupTimer timer(stream);
  std::byte* gradients = hosted.gradients.memory(1);
  Call call = {.kernels = hosted.kernels.get(),
               .weights = hosted.versions.raw(0),
               .state = hosted.state,
               .gradients = gradients,
               .handover = hosted.handovers,
               .scratch = hosted.scratch,
               .frame = {.slot = hosted.slots[0].memory, .edges = nullptr},
               .draw = {.seed = training.seed, .minibatch = 0},
               .stream = &stream,
               .frozen = hosted.frozen};
  Replays replays; // without an observer, phases run as in training
  replays.enable(recordsPhases);
  Copies copied(source);
  BatchSource* data = copies ? &copied : &source;
  std::vector<double> steps, updates, reads, sums;
  // Where gradients are kept until the update, and the host may write them.
  std::vector<std::byte> spare(device::name().empty() ? stage.bytes.gradients : 0);
  auto repeat = [&](std::int64_t minibatch, bool observed, bool keep) -> Status {
    const double reading = now();
    if (Status status = executor.readData(hosted, minibatch, call.frame.slot, data); !status) return status;
    if (Status status = device::wait(stream); !status) return status;
    call.draw.minibatch = static_cast<std::uint64_t>(minibatch);
    stream.observe(observed ? &timer : nullptr);
    const double begin = now();
    if (keep) reads.push_back(begin - reading);
    const std::pair<Phase, void (*)(const Call&)> calls[phases] = {{Phase::forward, stage.forward},
                                                                   {Phase::inputGradient, stage.backwardInput},
                                                                   {Phase::weightGradient, stage.backwardWeight}};
    for (const auto& [phase, function] : calls) {
      if (!observed) {
        replays.run(function, call, /*edges=*/0, /*shared=*/0);
        continue;
      }
      timer.beginPhase(phase);
      function(call);
      timer.endPhase();
    }
    stream.observe(nullptr);
    if (Status status = device::wait(stream); !status) return status;
    const double end = now();
    if (!spare.empty()) accumulate(stream, stage, gradients, spare);
    const double middle = now();
    hosted.optimizer->addUses(stream, gradients);
    hosted.optimizer->update(stream,
                             {.old = hosted.versions.raw(0),
                              .fresh = hosted.versions.raw(0),
                              .gradients = gradients,
                              .state = hosted.optimizerState},
                             {.learningRate = 0, .minibatches = 1, .count = minibatch + 1});
    if (Status status = device::wait(stream); !status) return status;
    if (observed) timer.endRepetition(keep);
    if (keep && !observed) steps.push_back(end - begin);
    if (keep) sums.push_back(middle - end);
    if (keep) updates.push_back(now() - middle);
    return {};
  };

  constexpr int warmUp = 6;
  constexpr std::size_t fewest = 15, most = 200;
  constexpr double seconds = 2;
  std::int64_t minibatch = 0;
  for (; minibatch < warmUp; ++minibatch)
    if (Status status = repeat(minibatch, minibatch % 2 == 0, false); !status) return status;
  const double begin = now();
  while (steps.size() < fewest || (now() - begin < seconds && steps.size() < most))
    for (bool observed : {true, false})
      if (Status status = repeat(minibatch++, observed, true); !status) return status;
  const double clockMhz = device::clockMhz(stream); // while it is warm

  nlohmann::ordered_json json = {{"repetitions", steps.size()},
                                 {"step_ms", quantile(steps, 0.5) * 1e3},
                                 {"update_ms", quantile(updates, 0.5) * 1e3},
                                 {"data_ms", quantile(reads, 0.5) * 1e3},
                                 {"groups", groupsOf(stage, timer)}};
  if (!spare.empty()) json["accumulate_ms"] = quantile(sums, 0.5) * 1e3;
  if (!device::name().empty()) {
    json["device"] = device::name();
    json["clock_mhz"] = clockMhz;
    json["reserved_bytes"] = device::otherBytes();
    for (const KernelTime& time : kernels)
      json["kernels"].push_back({{"kernel", time.kernel},
                                 {"method", time.method},
                                 {"algorithm", time.algorithm},
                                 {"ms", time.ms},
                                 {"workspace_bytes", time.workspaceBytes}});
  }
  return writeAtomically(path, json.dump(2) + "\n");
}

} // namespace pdcrt
