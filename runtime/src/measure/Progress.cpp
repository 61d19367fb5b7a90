// The progress line goes to stderr: overwritten ten times a second on a terminal, else twenty lines in a run.
#include "Progress.h"

#include "transport/Transport.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <unistd.h>

namespace pdcrt {

/// Losses of one replica that rank 0 may read before the first one of another (Control.h keeps some at either end).
static constexpr std::int64_t messagesUnderWay = 1024;

std::int64_t peakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

Progress::Progress(const ProgressOptions& options, const Training& training)
    : options_(options), training_(training),
      entries_(static_cast<std::size_t>(options.inFlight + options.minibatchesPerStep + messagesUnderWay)),
      told_(options.first), begin_(now()), lastStep_(begin_) {
  terminal_ = ::isatty(STDERR_FILENO);
  if (options_.logEvery == 0) options_.logEvery = options_.minibatches / options_.minibatchesPerStep / 20 + 1;
}

Progress::~Progress() {
  if (metrics_) std::fclose(metrics_);
}

/// A run that was killed may have left half a line at the end.
static void dropTornLine(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::uintmax_t whole = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) whole += line.size() + 1;
  std::error_code error; // what cannot be shortened cannot be written either, or is no file
  if (whole < std::filesystem::file_size(path, error) && !error) std::filesystem::resize_file(path, whole, error);
}

Status Progress::open() {
  if (!options_.tensorboardFolder.empty())
    if (Status status = events_.open(options_.tensorboardFolder, options_.first / options_.minibatchesPerStep); !status)
      return status;
  if (options_.metricsFile.empty()) return {};
  if (options_.first > 0) dropTornLine(options_.metricsFile);
  metrics_ = std::fopen(options_.metricsFile.c_str(), options_.first > 0 ? "a" : "w");
  if (!metrics_) return {Exit::cannotWrite, options_.metricsFile + ": cannot be written: " + std::strerror(errno)};
  buffer_.resize(1 << 16);
  std::setvbuf(metrics_, buffer_.data(), _IOFBF, buffer_.size());
  return {};
}

void Progress::loss(std::int64_t minibatch, double value) {
  Entry& entry = entryOf(minibatch);
  entry.sum += value;
  ++entry.losses;
  tellWhole();
}

void Progress::term(std::int64_t minibatch, std::size_t place, double value) {
  if (place >= training_.terms.size()) return;
  Entry& entry = entryOf(minibatch);
  entry.values.resize(training_.terms.size());
  entry.values[place] = value;
  ++entry.terms;
  tellWhole();
}

/// Steps of which everything has come.
void Progress::tellWhole() {
  while (!complete()) {
    const std::int64_t last = std::min(told_ + options_.minibatchesPerStep, options_.minibatches);
    double sum = 0;
    std::vector<double> terms(options_.terms > 0 ? training_.terms.size() : 0);
    for (std::int64_t b = told_; b < last; ++b) {
      const Entry& part = entryOf(b);
      if (part.losses < options_.lossStages || part.terms < options_.terms) return;
      sum += part.sum;
      for (std::size_t i = 0; i < terms.size(); ++i) terms[i] += part.values[i];
    }
    for (std::int64_t b = told_; b < last; ++b) entryOf(b).clear();
    const std::int64_t first = std::exchange(told_, last);
    const auto count = static_cast<double>(last - first);
    for (double& term : terms) term /= count;
    step(first, last, sum / count, terms);
  }
}

/// What stands behind the loss: , "terms": {"balance_loss": 1.02}. JSON has no number for what is not finite.
static std::string termsText(const std::vector<std::string>& names, const std::vector<double>& terms) {
  std::string text;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    char number[32];
    std::snprintf(number, sizeof number, "%.9g", terms[i]);
    text += (i == 0 ? ", \"terms\": {" : ", ") +
            nlohmann::json(names[i]).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + ": " +
            (std::isfinite(terms[i]) ? number : "null");
  }
  return text.empty() ? "" : text + "}";
}

void Progress::step(std::int64_t first, std::int64_t last, double loss, const std::vector<double>& terms) {
  const double time = now();
  const std::int64_t number = first / options_.minibatchesPerStep;
  const auto samples = static_cast<double>((last - first) * training_.batch);
  if (steadyFrom_ < 0 && (last - options_.first) * 5 >= options_.minibatches - options_.first) {
    steadyFrom_ = last;
    steadyBegin_ = time;
  }
  const std::int64_t epoch = first / options_.minibatchesPerEpoch;
  const double rate = training_.schedule.at(training_.learningRate, first);
  const double perSecond = samples / std::max(1e-9, time - lastStep_), milliseconds = (time - lastStep_) * 1e3;
  if (metrics_)
    std::fprintf(metrics_,
                 "{\"step\": %lld, \"epoch\": %lld, \"loss\": %.9g%s, \"lr\": %.9g, \"samples_per_s\": %.6g, "
                 "\"step_ms\": %.6g, \"peak_memory_bytes\": %lld}\n",
                 static_cast<long long>(number), static_cast<long long>(epoch), loss,
                 termsText(training_.terms, terms).c_str(), rate, perSecond, milliseconds,
                 static_cast<long long>(peakMemoryBytes()));
  if (events_.isOpen()) {
    events_.scalar("loss/train", number, loss);
    for (std::size_t i = 0; i < terms.size(); ++i)
      if (std::isfinite(terms[i])) events_.scalar("terms/" + training_.terms[i], number, terms[i]);
    events_.scalar("learning_rate", number, rate);
    events_.scalar("time/step_ms", number, milliseconds);
    events_.scalar("time/samples_per_s", number, perSecond);
  }
  lastStep_ = time;
  if (time - flushedAt_ > 1) { // so that little is missing after a kill
    if (metrics_) std::fflush(metrics_);
    if (Status status = events_.flush(); !status) unwritten_ = status;
    flushedAt_ = time;
  }

  const bool end = complete();
  const bool due = terminal_ ? time - lastLine_ > 0.1 : (number + 1) % options_.logEvery == 0;
  if (!due && !end) return;
  lastLine_ = time;
  const double perMinibatch = (time - begin_) / static_cast<double>(last - options_.first);
  const auto left = std::llround(perMinibatch * static_cast<double>(options_.minibatches - last));
  const std::int64_t steps = (options_.minibatches + options_.minibatchesPerStep - 1) / options_.minibatchesPerStep;
  std::fprintf(stderr, "%sstep %lld/%lld  epoch %lld  loss %.4f  %.0f samples/s  %lld:%02lld left%s",
               terminal_ ? "\r" : "", static_cast<long long>(number + 1), static_cast<long long>(steps),
               static_cast<long long>(epoch + 1), loss, static_cast<double>(training_.batch) / perMinibatch, left / 60,
               left % 60, terminal_ ? "   " : "\n");
  lineOpen_ = terminal_;
}

void Progress::leaveOut(double seconds) {
  for (double* time : {&begin_, &lastStep_, &steadyBegin_}) *time += seconds;
}

void Progress::evaluated(const std::string& metric, double value, double loss, const std::string& loads) {
  if (!complete()) {
    if (lineOpen_) std::fputc('\n', stderr);
    lineOpen_ = false;
    std::fprintf(stderr, "after step %lld: test", static_cast<long long>(stepsTold()));
    if (std::isfinite(loss)) std::fprintf(stderr, " loss %.4f", loss);
    if (metric != "none") std::fprintf(stderr, " %s %.4f", metric.c_str(), value);
    std::fputc('\n', stderr);
  }
  if (metric != "none") events_.scalar(metric + "/test", lastStepTold(), value);
  if (std::isfinite(loss)) events_.scalar("loss/test", lastStepTold(), loss);
  if (!metrics_) return;
  const std::string key = nlohmann::json(metric).dump(); // an output of the model may be called anything
  std::fprintf(metrics_, "{\"step\": %lld, %s: %.9g", static_cast<long long>(stepsTold()), key.c_str(), value);
  if (std::isfinite(loss)) std::fprintf(metrics_, ", \"test_loss\": %.9g", loss);
  if (!loads.empty()) std::fprintf(metrics_, ", \"loads\": %s", loads.c_str());
  std::fputs("}\n", metrics_);
}

void Progress::finish() {
  if (lineOpen_) std::fputc('\n', stderr);
  lineOpen_ = false;
  if (metrics_) std::fflush(metrics_);
}

Status Progress::memory(std::span<const MeasuredStage> stages) {
  constexpr double mebibyte = 1 << 20;
  for (const MeasuredStage& stage : stages) {
    const std::string name = "memory/stage" + std::to_string(stage.host.stage) + "_replica" +
                             std::to_string(stage.host.replica) + "_rank" + std::to_string(stage.rank);
    events_.scalar(name + "_arena_MiB", lastStepTold(), static_cast<double>(stage.arenaBytes) / mebibyte);
    events_.scalar(name + "_process_peak_MiB", lastStepTold(), static_cast<double>(stage.peakBytes) / mebibyte);
  }
  if (Status status = events_.flush(); !status) return status;
  return unwritten_;
}

double Progress::secondsPerMinibatch() const {
  if (steadyFrom_ < 0 || told_ <= steadyFrom_) return 0;
  return (lastStep_ - steadyBegin_) / static_cast<double>(told_ - steadyFrom_);
}

} // namespace pdcrt
