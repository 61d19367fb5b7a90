// What an evaluation tells of layers that deal out rows to places with little room: experts.
#pragma once

#include "pdcrt/Stage.h"
#include "pdcrt/Training.h"
#include "transport/Control.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pdcrt {

/// Sums over minibatches; add those of several ranks.
class Loads {
public:
  /// Adds what a stage has in `slot` after the evaluation of a minibatch. Rows of samples that do not count cannot be
  /// told from others: `valid` is the whole minibatch, or nothing is added.
  void add(const Training& training, const Stage& stage, const std::byte* slot, std::int64_t valid);
  void add(const Message& message);

  /// Messages that tell another rank.
  std::vector<Message> messages() const;
  /// Of each layer that `training` names, and that has got rows: the share of rows that found no room, the share of
  /// each place of the others, and that of the fullest place over the mean. A JSON object; empty where there is none:
  ///   {"blocks.0.experts": {"dropped": 0.02, "shares": [0.3, 0.7], "fullest": 1.4}}
  std::string text(const Training& training) const;

private:
  std::vector<double>& layer(std::size_t place, std::size_t size);

  std::vector<std::vector<double>> layers_; ///< by place in Training::loads: what each place took, and all rows
};

} // namespace pdcrt
