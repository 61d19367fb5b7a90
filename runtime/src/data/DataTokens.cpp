// A data set that is a token stream: which windows its inputs read.
#include "Data.h"
#include "pdcrt/Hash.h"
#include "pdcrt/Training.h"

#include <algorithm>
#include <cstring>

namespace pdcrt {
namespace {

bool isInteger(Element element) {
  return element == Element::i64 || element == Element::i32;
}

/// Labels that the model computes with before its loss reads them, as Hugging Face's models do, have no mark in the
/// program; their name tells.
bool isLabel(const DataRow& row) {
  return row.label || std::strcmp(row.name, "labels") == 0 || std::strcmp(row.name, "label") == 0;
}

/// A wrong vocabulary or a wrong type shows early; to look at all tokens first may take minutes.
constexpr std::int64_t tokensLookedAt = 1 << 20;

} // namespace

std::string severalInputsHelp() {
  return "make the others constants when compiling: pdc --bind attention_mask=1, pdc --bind position_ids=FILE.npy; or "
         "give a folder of .npy files (docs/Data.md)";
}

Status DataSet::openTokens() {
  tokens_.emplace();
  if (Status status = tokens_->open(options_.path, options_.tokenType); !status) return status;
  if (Status status = refuseOtherInputs(); !status) return status;
  for (Input& input : inputs_)
    if (Status status = takeTokens(input); !status) return status;
  if (inputs_.empty()) return {};
  const std::int64_t tokens = tokens_->tokens(), length = windows_.length;
  samples_ = std::max<std::int64_t>(0, tokens - options_.labelShift) / length;
  const std::int64_t least = options_.evaluation ? 1 : options_.batch;
  if (samples_ < least)
    return {Exit::badData,
            options_.path + ": has " + std::to_string(tokens) + " tokens, which make " + std::to_string(samples_) +
                " windows of " + std::to_string(length) + "; " +
                (options_.evaluation ? "an evaluation" : "a minibatch of " + std::to_string(options_.batch)) +
                " takes " + std::to_string(least * length + options_.labelShift) + " tokens",
            "give a longer stream, or compile with a smaller --batch or sequence length (--dim NAME=V)"};
  for (const Input& input : inputs_) {
    const std::int64_t choices = input.row->choices;
    if (choices > 1 << 16 && !options_.tokenType && tokens_->isRaw())
      return {Exit::badData,
              options_.path + ": is read as uint16 tokens, the model has " + std::to_string(choices) +
                  " rows to choose from",
              "name the type with --tokens=uint32; if it is uint16 indeed, with --tokens=uint16"};
    if (choices > 0)
      if (Status status = tokens_->check(0, std::min(tokensLookedAt, samples_ * length + options_.labelShift), choices);
          !status)
        return status;
  }
  return {};
}

/// Any number of labels may read the stream, but one input only: others, such as a mask, would get tokens, too.
Status DataSet::refuseOtherInputs() const {
  std::string names;
  int count = 0;
  for (auto input = inputs_.begin(); input != inputs_.end(); ++input) {
    if (isLabel(*input->row)) continue;
    const bool named = std::any_of(inputs_.begin(), input, [&](const Input& other) {
      return std::strcmp(other.row->name, input->row->name) == 0;
    });
    if (named) continue; // two stages read it
    names += (count > 0 ? " and '" : "'") + std::string(input->row->name) + "'";
    ++count;
  }
  if (count < 2) return {};
  return {Exit::badData, options_.path + ": the model reads " + names + ", a token stream fills one input",
          severalInputsHelp()};
}

Status DataSet::takeTokens(Input& input) {
  const DataRow& row = *input.row;
  const bool label = isLabel(row);
  const std::string what = std::string(label ? "label '" : "input '") + row.name + "'";
  const char* const folder = "give a folder with one .npy file per input and label (docs/Data.md)";
  if (!isInteger(row.element))
    return {Exit::badData, options_.path + ": " + what + " does not take integers, a token stream has no other numbers",
            folder};
  if (input.batchAxis == noBatchAxis)
    return {Exit::badData, options_.path + ": " + what + " has no samples, a token stream fills samples",
            "make it a constant when compiling: pdc --bind " + std::string(row.name) + "=FILE.npy"};
  if (label && !row.label && options_.labelShift != 0)
    return {Exit::badData,
            options_.path + ": the model computes with its " + what + ", as models that shift their labels themselves",
            std::string("if it shifts them, give --label-shift=0; else ") + folder};
  const std::int64_t length = input.outer * input.inner;
  if (label && length <= 1)
    return {Exit::badData,
            options_.path + ": " + what + " has a number for each sample, a token stream has one for each token",
            std::string("a token stream is for language models; for others, ") + folder};
  if (length == 0 || (windows_.length >= 0 && windows_.length != length))
    return {Exit::badData,
            options_.path + ": " + what + " has " + std::to_string(length) + " integers per sample, another input " +
                std::to_string(windows_.length),
            std::string("a token stream has a label for every token of the input: ") + folder};
  windows_.length = length;
  if (!label) windows_.input = hashOf(row.name);
  input.source = {.element = tokens_->element(),
                  .values = tokens_->values(),
                  .first = label ? options_.labelShift : 0,
                  .perSample = length,
                  .perOuter = input.inner};
  return {};
}

Status DataSet::checkWindow(const Input& input, std::int64_t window) const {
  if (input.row->choices == 0) return {};
  return tokens_->check(input.source.first + window * input.source.perSample, input.source.perSample,
                        input.row->choices);
}

} // namespace pdcrt
