// Reads samples from mapped files and converts them to the element type of the graph input.
#include "Data.h"

#include "base/Index.h"
#include "pdcrt/DataFile.h"
#include "pdcrt/Hash.h"
#include "pdcrt/Random.h"
#include "pdcrt/Training.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <type_traits>

namespace pdcrt {
namespace {

const char* nameOf(Element element) {
  constexpr const char* names[] = {"f64", "f32", "f16", "bf16", "i64", "i32", "i16",
                                   "i8",  "u64", "u32", "u16",  "u8",  "bool"};
  return names[static_cast<std::size_t>(element)];
}

bool isFloat(Element element) {
  return element == Element::f64 || element == Element::f32;
}

/// Calls `action` with a value of the C++ type of `element`. False for f16 and bf16, which have none.
template <class Action>
bool withType(Element element, Action action) {
  switch (element) {
  case Element::f64: return action(double()), true;
  case Element::f32: return action(float()), true;
  case Element::i64: return action(std::int64_t()), true;
  case Element::i32: return action(std::int32_t()), true;
  case Element::i16: return action(std::int16_t()), true;
  case Element::i8: return action(std::int8_t()), true;
  case Element::u64: return action(std::uint64_t()), true;
  case Element::u32: return action(std::uint32_t()), true;
  case Element::u16: return action(std::uint16_t()), true;
  case Element::u8:
  case Element::boolean: return action(std::uint8_t()), true;
  default: return false;
  }
}

void copyConverted(Element from, Element to, const std::byte* source, std::byte* destination, std::int64_t count) {
  if (from == to) {
    std::memcpy(destination, source, index(count) * bytesOf(to));
    return;
  }
  withType(from, [&](auto sourceValue) {
    withType(to, [&](auto destinationValue) {
      using From = decltype(sourceValue);
      using To = decltype(destinationValue);
      for (std::int64_t i = 0; i < count; ++i) {
        From value;
        std::memcpy(&value, source + index(i) * sizeof(From), sizeof(From));
        reinterpret_cast<To*>(destination)[i] = static_cast<To>(value);
      }
    });
  });
}

std::int64_t integerAt(Element element, const std::byte* values, std::int64_t i) {
  std::int64_t result = 0;
  copyConverted(element, Element::i64, values + index(i) * bytesOf(element), reinterpret_cast<std::byte*>(&result), 1);
  return result;
}

/// A label below 0 is usually one to leave out.
std::string ignoreHelp(const DataRow& row, std::int64_t label) {
  if (!row.label || label >= 0) return {};
  return "; to leave out positions with " + std::to_string(label) +
         ", compile with --loss=KIND,ignore_index=" + std::to_string(label);
}

std::span<const std::int64_t> dims(const Shape& shape) {
  return {shape.dims, static_cast<std::size_t>(shape.rank)};
}

/// "[5, samples, 2]": what a file must have.
std::string expectedShape(const DataRow& row, int batchAxis) {
  std::string text;
  for (int i = 0; i < row.shape.rank; ++i)
    text += (i ? ", " : "") + (i == batchAxis ? "samples" : std::to_string(row.shape.dims[i]));
  return "[" + text + "]";
}

/// What to type where a file has other dimensions: "numpy.moveaxis(a, 0, 1)" where its samples come first.
std::string remedyFor(const std::string& path, const std::vector<std::int64_t>& shape,
                      std::span<const std::int64_t> wanted, int batchAxis) {
  if (batchAxis > 0 && shape.size() == wanted.size()) {
    std::vector<std::int64_t> moved = shape;
    std::rotate(moved.begin(), moved.begin() + 1, moved.begin() + batchAxis + 1);
    moved[index(batchAxis)] = wanted[index(batchAxis)];
    if (std::equal(moved.begin(), moved.end(), wanted.begin()))
      return "its samples lie along axis 0: numpy.save(file, numpy.ascontiguousarray(numpy.moveaxis(a, 0, " +
             std::to_string(batchAxis) + ")))";
  }
  if (batchAxis == noBatchAxis) return "it has no samples, every minibatch reads the whole file";
  return reshapeHelp(path, shape, wanted, batchAxis);
}

} // namespace

Status parseNormalize(const std::string& text, std::vector<double>& mean, std::vector<double>& deviation) {
  const char* at = text.data();
  const char* end = at + text.size();
  std::vector<double>* list = &mean;
  while (true) {
    double value = 0;
    auto [rest, problem] = std::from_chars(at, end, value);
    if (problem != std::errc()) break;
    list->push_back(value);
    at = rest;
    if (at == end && list == &deviation && mean.size() == deviation.size() &&
        std::all_of(deviation.begin(), deviation.end(), [](double d) { return d > 0; }))
      return {};
    if (at == end || (*at == '/' && list == &deviation) || (*at != '/' && *at != ',')) break;
    if (*at == '/') list = &deviation;
    ++at;
  }
  return {Exit::usage, "--normalize=" + text + " is not MEAN/STD",
          "give two numbers, or two lists with one positive deviation per channel, such as 0.5/0.25"};
}

Status DataSet::open(const DataOptions& options, std::span<const Stage* const> stages) {
  options_ = options;
  for (const Stage* stage : stages)
    for (const DataRow& row : stage->data)
      if (row.ofDataSet()) inputs_.push_back({.row = &row, .file = {}});
  for (Input& input : inputs_)
    if (Status status = setAxis(input); !status) return status;
  if (options.path == "synthetic") {
    if (!inputs_.empty()) samples_ = options.syntheticSamples;
    return {};
  }
  if (isTokenStream(options.path)) return openTokens();
  std::error_code ignored;
  if (!inputs_.empty() && !std::filesystem::exists(options.path, ignored))
    return {Exit::badData, options.path + ": is neither a folder nor a file",
            "give a folder with .npy files, or a file of tokens (docs/Data.md)"};
  for (Input& input : inputs_)
    if (Status status = openInput(input); !status) return status;
  return {};
}

/// The program and training.json must agree: else rows of different samples would be put together.
Status DataSet::setAxis(Input& input) const {
  const DataRow& row = *input.row;
  const auto stated = options_.batchAxes.find(row.name);
  input.batchAxis = stated == options_.batchAxes.end() ? 0 : stated->second;
  if (input.batchAxis == noBatchAxis) {
    input.inner = row.shape.elements();
    return {};
  }
  if (input.batchAxis >= row.shape.rank || row.shape.dims[input.batchAxis] != options_.batch)
    return {Exit::invalid,
            std::string("input '") + row.name + "' has the shape " + toString(dims(row.shape)) +
                ", which has no minibatch of " + std::to_string(options_.batch) + " samples on axis " +
                std::to_string(input.batchAxis),
            "compile the model again: batch and batch_axes of training.json are not those of the program"};
  for (int i = 0; i < row.shape.rank; ++i)
    if (i != input.batchAxis) (i < input.batchAxis ? input.outer : input.inner) *= row.shape.dims[i];
  return {};
}

Status DataSet::openInput(Input& input) {
  const DataRow& row = *input.row;
  const std::string path = dataFile(options_.path, row.name);
  if (Status status = input.file.open(path); !status) {
    if (!status.help().empty()) return status;
    if (const std::string streams = tokenFilesIn(options_.path); !streams.empty())
      return {status.code(), status.message(), "a token stream is given by its file: --data=" + streams};
    std::string expected;
    for (const Input& other : inputs_)
      expected += (expected.empty() ? "" : ", ") + dataFile(options_.path, other.row->name) + " " +
                  expectedShape(*other.row, other.batchAxis);
    return {status.code(), status.message(), "this stage reads " + expected};
  }
  const std::vector<std::int64_t>& shape = input.file.shape();
  std::span<const std::int64_t> wanted = dims(row.shape);
  bool fits = shape.size() == wanted.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i)
    fits = static_cast<int>(i) == input.batchAxis || shape[i] == wanted[i];
  if (!fits)
    return {Exit::badData,
            path + ": has the shape " + toString(shape) + ", input '" + row.name + "' needs " +
                expectedShape(row, input.batchAxis),
            remedyFor(path, shape, wanted, input.batchAxis)};
  if (!converts(input.file.element(), row.element))
    return {Exit::badData,
            path + ": has elements of type " + nameOf(input.file.element()) + ", input '" + row.name + "' needs " +
                nameOf(row.element),
            astypeHelp(path, row.element)};
  input.source = {.element = input.file.element(), .values = input.file.values()};
  if (input.batchAxis == noBatchAxis) return checkValues(input);
  const std::int64_t samples = shape[index(input.batchAxis)];
  input.source.perSample = input.inner;
  input.source.perOuter = samples * input.inner;
  if (samples_ >= 0 && samples_ != samples) {
    const auto first =
        std::find_if(inputs_.begin(), inputs_.end(), [](const Input& other) { return other.batchAxis != noBatchAxis; });
    return {Exit::badData,
            path + ": has " + std::to_string(samples) + " samples, " + first->file.path() + " has " +
                std::to_string(samples_),
            "samples are counted along axis " + std::to_string(input.batchAxis) + " of '" + row.name +
                "' and along axis " + std::to_string(first->batchAxis) + " of '" + first->row->name + "'" +
                (std::min(samples, samples_) == 1 ? "; an input that all samples share is compiled with "
                                                    "--batch-axis=NAME:none"
                                                  : "")};
  }
  samples_ = samples;
  if (samples_ == 0 || (!options_.evaluation && samples_ < options_.batch))
    return {Exit::badData,
            path + ": has " + std::to_string(samples_) + " samples, a minibatch has " + std::to_string(options_.batch),
            "generate the program with a smaller --batch"};
  return checkValues(input);
}

/// The first axis beside the samples.
int DataSet::channelAxis(const Input& input) {
  return input.batchAxis == 0 ? 1 : 0;
}

Status DataSet::checkValues(const Input& input) const {
  const DataRow& row = *input.row;
  const bool channels = options_.mean.size() > 1;
  const int axis = channelAxis(input);
  if (!row.label && isFloat(row.element) && channels &&
      (row.shape.rank <= axis || row.shape.dims[axis] != static_cast<std::int64_t>(options_.mean.size())))
    return {Exit::usage, "--normalize gives " + std::to_string(options_.mean.size()) + " channels, input '" + row.name +
                             "' has the shape " + expectedShape(row, input.batchAxis)};
  return checkChoices(input);
}

Status DataSet::checkChoices(const Input& input) const {
  const DataRow& row = *input.row;
  if (row.choices == 0) return {};
  const std::int64_t least = row.label ? 0 : -row.choices;
  const std::int64_t samples = input.batchAxis == noBatchAxis ? 1 : samples_;
  for (std::int64_t i = 0; i < input.outer * samples * input.inner; ++i) {
    const std::int64_t value = integerAt(input.file.element(), input.file.values().data(), i);
    if ((value >= least && value < row.choices) || (row.label && value == options_.ignoredLabel)) continue;
    return {Exit::badData,
            input.file.path() + ": sample " + std::to_string(i / input.inner % samples) + " has the " +
                (row.label ? "label " : "index ") + std::to_string(value) + ", the model has " +
                std::to_string(row.choices) + (row.label ? " classes" : " rows to choose from"),
            (row.label ? "labels are 0 to " : "indices are 0 to ") + std::to_string(row.choices - 1) +
                ignoreHelp(row, value)};
  }
  return {};
}

std::int64_t DataSet::minibatchesPerEpoch() const {
  if (samples_ < 0) return -1;
  return options_.evaluation ? (samples_ + options_.batch - 1) / options_.batch : samples_ / options_.batch;
}

std::int64_t DataSet::sampleAt(std::int64_t place) {
  if (options_.evaluation) return std::min(place, samples_ - 1);
  const std::int64_t perEpoch = minibatchesPerEpoch() * options_.batch;
  const std::int64_t epoch = place / perEpoch;
  if (!options_.shuffle) return place % perEpoch;
  if (epoch != epoch_) {
    order_.resize(index(samples_)); // once
    permute(options_.seed, static_cast<std::uint64_t>(epoch), order_);
    epoch_ = epoch;
  }
  return order_[index(place % perEpoch)];
}

Status DataSet::read(const DataRow& row, std::int64_t minibatch, std::byte* destination) {
  if (options_.path == "synthetic") {
    synthesize(row, minibatch, destination);
    return {};
  }
  auto input = std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& i) { return i.row == &row; });
  if (input == inputs_.end()) return {Exit::badData, std::string("no data for input '") + row.name + "'"};
  if (Status status = tokens_ ? tokens_->unchanged() : input->file.unchanged(); !status) return status;
  const Source& source = input->source;
  const bool whole = input->batchAxis == noBatchAxis;
  const std::int64_t batch = whole ? 1 : options_.batch;
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t sample = whole ? 0 : sampleAt(minibatch * options_.batch + i);
    if (tokens_)
      if (Status status = checkWindow(*input, sample); !status) return status;
    for (std::int64_t outer = 0; outer < input->outer; ++outer) {
      const std::int64_t from = source.first + sample * source.perSample + outer * source.perOuter;
      copyConverted(source.element, row.element, source.values.data() + index(from) * bytesOf(source.element),
                    destination + index((outer * batch + i) * input->inner) * bytesOf(row.element), input->inner);
    }
  }
  if (!options_.mean.empty() && !row.label && row.element == Element::f32)
    normalize(*input, reinterpret_cast<float*>(destination));
  return {};
}

void DataSet::normalize(const Input& input, float* values) const {
  const Shape& shape = input.row->shape;
  const std::int64_t count = shape.elements();
  const auto channels = static_cast<std::int64_t>(options_.mean.size());
  std::int64_t inner = 1; // of one channel
  for (int i = channelAxis(input) + 1; i < shape.rank; ++i) inner *= shape.dims[i];
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t channel = index(i / inner % channels);
    values[i] = static_cast<float>((values[i] - options_.mean[channel]) / options_.deviation[channel]);
  }
}

void DataSet::synthesize(const DataRow& row, std::int64_t minibatch, std::byte* destination) const {
  constexpr int width = 16; // blocks of four words that are drawn at once
  const std::int64_t count = row.shape.elements();
  const auto input = std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& i) { return i.row == &row; });
  if (input != inputs_.end() && input->batchAxis == noBatchAxis) minibatch = 0;
  PhiloxBlock counter = {0, noiseStream, static_cast<std::uint32_t>(minibatch),
                         static_cast<std::uint32_t>(hashOf(row.name))};
  const auto choices = static_cast<std::uint32_t>(std::max<std::int64_t>(1, row.choices));
  withType(row.element, [&](auto type) {
    using Value = decltype(type);
    Value* values = reinterpret_cast<Value*>(destination);
    for (std::int64_t begin = 0; begin < count; begin += 4 * width, values += 4 * width) {
      std::uint32_t words[4][width];
      counter[0] = static_cast<std::uint32_t>(begin / 4);
      philoxLanes(counter, options_.seed, words);
      const auto here = static_cast<int>(std::min<std::int64_t>(4 * width, count - begin));
      for (int i = 0; i < here; ++i) {
        const std::uint32_t word = words[i % 4][i / 4];
        if constexpr (std::is_floating_point_v<Value>)
          values[i] = static_cast<Value>(word) / static_cast<Value>(4294967296.0) * 2 - 1; // in [-1, 1)
        else
          values[i] = static_cast<Value>(word % choices);
      }
    }
  });
}

} // namespace pdcrt
