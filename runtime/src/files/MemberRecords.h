// What a member of a team writes into files of weights: its parts of what is divided; of what all members have alike,
// member 0 alone. So the files of all members together hold each element once (StoredTensor.h).
#pragma once

#include "pdcrt/Stage.h"
#include "pdcrt/StoredTensor.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace pdcrt {

inline bool writes(const Part& part, int member) {
  return member == 0 || !part.isWhole();
}

/// Whether the member has files of the stage's weights and of its optimizer.
inline bool writesWeights(const Stage& stage, int member) {
  const auto has = [&](const auto& row) { return writes(row.part, member); };
  return member == 0 || std::any_of(stage.parameters.begin(), stage.parameters.end(), has) ||
         std::any_of(stage.states.begin(), stage.states.end(), has);
}

/// The same for the files of other replicas, which hold state only.
inline bool writesState(const Stage& stage, int member) {
  return std::any_of(stage.states.begin(), stage.states.end(),
                     [&](const StateRow& row) { return writes(row.part, member); });
}

/// The records of one file and their metadata, row by row.
class MemberRecords {
public:
  MemberRecords(int member, std::map<std::string, std::string> more) : metadata(std::move(more)), member_(member) {}

  /// Adds, as `name`, what the member writes of a row; `values` has what it has of it.
  template <class Row>
  void add(const Row& row, const std::string& name, const std::byte* values) {
    if (!writes(row.part, member_)) return;
    records.push_back({name,
                       row.element,
                       {row.shape.dims, row.shape.dims + row.shape.rank},
                       {values, static_cast<std::size_t>(row.shape.elements()) * bytesOf(row.element)}});
    if (!row.part.isWhole()) metadata.insert(partMetadata(name, {row.part, member_}, wholeShape(row.shape, row.part)));
  }

  std::vector<TensorRecord> records;
  std::map<std::string, std::string> metadata;

private:
  int member_;
};

} // namespace pdcrt
