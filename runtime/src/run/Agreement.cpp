// Compares the hellos one by one.
#include "Agreement.h"

#include "checkpoint/Resume.h"
#include "data/Data.h"
#include "pdcrt/Hash.h"
#include "pdcrt/Machine.h"
#include "pdcrt/Places.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace pdcrt {

/// The minibatch with which training begins.
static Status chooseStart(const RunOptions& options, const RunFiles& files, Agreement& agreement) {
  const std::string& folder = options.checkpointFolder;
  if (folder.empty()) return {};
  if (!options.resume) {
    if (listCheckpoints(folder).empty()) return {};
    return {Exit::usage, folder + ": holds the checkpoints of another run",
            "go on with them by --resume, or name another folder"};
  }
  std::int64_t newest = -1;
  if (Status status = newestWhole(folder, newest); !status) return status;
  if (newest < 0) {
    std::fprintf(stderr, "note: %s holds no checkpoint; training begins with the initial weights\n", folder.c_str());
    return {};
  }
  Manifest manifest;
  if (Status status = readManifest(folder, newest, manifest); !status) return status;
  const Continued run = {.training = &files.training,
                         .shuffle = options.shuffle,
                         .samples = options.data == "synthetic" ? 0 : agreement.samples,
                         .modelHash = files.modelHash};
  if (Status status = checkContinues(manifest, run); !status) return status;
  if (newest > agreement.minibatches)
    return {Exit::usage,
            "the newest checkpoint is after " + std::to_string(newest) + " minibatches, the run would end after " +
                std::to_string(agreement.minibatches),
            "give more --epochs or --steps: they count from the beginning of the training"};
  std::fprintf(stderr, "note: going on from the checkpoint after %lld of %lld minibatches\n",
               static_cast<long long>(newest), static_cast<long long>(agreement.minibatches));
  agreement.first = newest;
  return {};
}

/// A token stream fills one input, and all windows are of one length (DataSet::windows): else two ranks would train on
/// tokens that do not belong together.
static Status agreeOnWindows(const std::map<int, Message>& hellos) {
  const Message *input = nullptr, *reader = nullptr;
  for (const auto& [rank, hello] : hellos) {
    if (hello.numbers[3] != 0) {
      if (input && input->numbers[3] != hello.numbers[3])
        return {Exit::badData,
                "ranks " + std::to_string(input->rank) + " and " + std::to_string(rank) +
                    " read two inputs of the model, a token stream fills one",
                severalInputsHelp()};
      input = &hello;
    }
    if (hello.values[3] < 0) continue;
    if (reader && reader->values[3] != hello.values[3])
      return {Exit::badData,
              "rank " + std::to_string(reader->rank) + " reads windows of " +
                  std::to_string(static_cast<std::int64_t>(reader->values[3])) + " tokens, rank " +
                  std::to_string(rank) + " of " + std::to_string(static_cast<std::int64_t>(hello.values[3])),
              "a token stream has a label for every token of the input: give a folder of .npy files"};
    reader = &hello;
  }
  return {};
}

/// Members compute the same values, and must get the same bits.
static Status agreeOnDevices(const std::map<int, Message>& hellos, const Schedule& schedule) {
  const Places places(schedule);
  const std::map<int, Message>::value_type* first = nullptr; // member 0 of the team
  for (const auto& hello : hellos) {
    const Place place = places.at(hello.first);
    if (place.member == 0) first = &hello;
    if (!first || hello.second.values[4] == first->second.values[4]) continue;
    return {Exit::noDevice,
            "members 0 and " + std::to_string(place.member) + " of the team of rank " + std::to_string(place.rank) +
                " compute on devices of different kinds (hosts " + first->second.text + " and " + hello.second.text +
                "): they would not get the same bits",
            "start the processes of a team, which have neighbouring numbers, on machines of one kind"};
  }
  return {};
}

std::int64_t evaluationInterval(const Schedule& schedule, std::int64_t steps) {
  const std::int64_t period = periodMinibatches(schedule);
  return (steps * std::max<std::int64_t>(1, schedule.minibatchesPerUpdate) + period - 1) / period * period;
}

Status agreeOn(const std::map<int, Message>& hellos, const RunOptions& options, const RunFiles& files,
               Agreement& agreement) {
  std::int64_t samples = -1, evaluationSamples = -1;
  std::map<std::pair<std::string, std::uint64_t>, std::pair<int, int>> bound; // to cores of a host: ranks, cores
  if (Status status = agreeOnWindows(hellos); !status) return status;
  for (const auto& [rank, hello] : hellos) {
    if (hello.numbers[2] != files.build)
      return {Exit::invalid,
              "rank " + std::to_string(rank) + " is the build " + hex(hello.numbers[2]) + ", rank 0 is " +
                  hex(files.build),
              "build the folder on all machines with the same pdc and the same compiler"};
    if (hello.numbers[0] != files.hash)
      return {Exit::invalid,
              "rank " + std::to_string(rank) + " has a plan, schedule or flags with the hash " + hex(hello.numbers[0]) +
                  ", rank 0 has " + hex(files.hash),
              "start all ranks from one build, with the same flags"};
    for (auto [value, known] : {std::pair(hello.values[0], &samples), {hello.values[1], &evaluationSamples}}) {
      const auto count = static_cast<std::int64_t>(value);
      if (count < 0) continue;
      if (*known >= 0 && *known != count)
        return {Exit::badData, "rank " + std::to_string(rank) + " sees " + std::to_string(count) +
                                   " samples, another rank " + std::to_string(*known)};
      *known = count;
    }
    agreement.lossStages += static_cast<int>(hello.values[2]);
    agreement.terms += static_cast<int>(hello.values[5]);
    auto& [sharing, cores] = bound[{hello.text, hello.numbers[4]}];
    ++sharing;
    cores = static_cast<int>(hello.numbers[1]);
  }
  if (Status status = agreeOnDevices(hellos, files.schedule); !status) return status;
  for (const auto& [where, counts] : bound)
    if (counts.first > counts.second)
      agreement.sharing.push_back(std::to_string(counts.first) + " ranks share " + std::to_string(counts.second) +
                                  (counts.second > 1 ? " cores of " : " core of ") + where.first);
  if (!files.training.batchAxes.empty()) { // inputs without samples only: the whole data is one
    if (samples < 0) samples = 1;
    if (evaluationSamples < 0 && !options.evaluationData.empty()) evaluationSamples = 1;
  }
  if (samples < 0) return {Exit::invalid, "no stage reads data", "the model needs an input"};
  if (agreement.lossStages == 0) return {Exit::invalid, "no stage has a loss", "run pdc with --loss"};
  const std::int64_t batch = files.training.batch, perEpoch = samples / batch;
  if (const std::int64_t rest = samples % batch; rest && !options.steps)
    std::fprintf(stderr, "note: an epoch is %lld minibatches of %lld samples; the other %lld of %lld are left out\n",
                 static_cast<long long>(perEpoch), static_cast<long long>(batch), static_cast<long long>(rest),
                 static_cast<long long>(samples));
  const std::int64_t perStep = std::max<std::int64_t>(1, files.schedule.minibatchesPerUpdate);
  agreement.minibatches =
      options.steps > 0 ? options.steps * perStep : std::max<std::int64_t>(1, options.epochs) * perEpoch;
  agreement.samples = samples;
  agreement.minibatchesPerEpoch = std::max<std::int64_t>(1, perEpoch);
  agreement.evaluationSamples = std::max<std::int64_t>(0, evaluationSamples);
  if (Status status = chooseStart(options, files, agreement); !status) return status;
  const std::int64_t left = agreement.minibatches - agreement.first;
  const std::int64_t apart = evaluationInterval(files.schedule, options.evaluateEvery);
  // Between two drains as many minibatches as between two evaluations, and at the end the rest.
  for (const std::int64_t part : {apart > 0 && apart < left ? apart : 0, apart > 0 ? left % apart : left})
    if (part > 0)
      if (Status status = checkSchedule(files.schedule, part); !status) return status;
  return {};
}

} // namespace pdcrt
