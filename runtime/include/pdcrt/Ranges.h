// Names for what the host puts into streams, as NVIDIA's profilers show them (NVTX): phases, and in them the ONNX nodes
// of each fusion group. Nothing on the CPU.
#pragma once

#include "pdcrt/Stage.h"
#include "pdcrt/Stream.h"

#include <span>

namespace pdcrt {

namespace device {

/// Whether anybody could see ranges.
bool namesRanges();
/// Opens a range of the calling thread inside the last one, and closes it.
void beginRange(const char* name);
void endRange();

} // namespace device

/// While it lives, what goes into `q` belongs to a phase, and to the groups that the phase's calls name.
class PhaseRange : GroupObserver {
public:
  /// `groups`: by ascending id, as Stage::groups.
  PhaseRange(Stream& q, const char* phase, std::span<const GroupRow> groups);
  ~PhaseRange() override;
  PhaseRange(const PhaseRange&) = delete;
  PhaseRange& operator=(const PhaseRange&) = delete;

private:
  void beginGroup(int group) override;

  Stream& stream_;
  std::span<const GroupRow> groups_;
  bool inGroup_ = false;
};

} // namespace pdcrt
