// From sharding specs in a file to the split that divides a graph so.
#pragma once

#include "NodePlaces.h"
#include "pdc/Pass/Pass.h"
#include "pdc/Plan/TeamSplit.h"

#include <optional>

namespace pdc {

/// How a file divides a tensor: an axis, which is `blocks` blocks, in `members` parts each.
struct AskedPart {
  std::string node, tensor;
  std::optional<std::int32_t> stage; ///< of the node, where the file says it
  std::int64_t axis = 0;
  std::optional<std::int64_t> blocks = 1; ///< nothing: symbolic
  std::optional<std::int64_t> size;       ///< of the axis, where the file says it
  std::int64_t members = 1;
  bool isEven = true; ///< the parts are, as far as the file says
};

/// What the specs of a configuration divide. Errors: more than one axis of a tensor, or teams of several sizes in one
/// stage.
Expected<std::vector<AskedPart>> askedParts(const std::string& path, const DeviceAnnotations& file,
                                            const std::string& configuration, Diagnostics& diags);

/// The splits that divide @main like that, of those over so many members: of each stage, in the order of their numbers,
/// or one for all if these are the same, if the file has no stages, or if `given` is one. The metadata may have those
/// that pdc has written. A stage of which nothing is asked is not divided, unless the one split of all others finds
/// nothing in it to divide. What a file says of weights holds, or it is an error; of values it is a warning; of weights
/// that it does not mention a remark.
Expected<std::vector<TeamSplit>> splitsFor(PassContext& context, const std::string& path, const DeviceAnnotations& file,
                                           const std::string& configuration, const NodePlaces& places,
                                           const std::vector<AskedPart>& asked, const TeamSplit& given);

} // namespace pdc
