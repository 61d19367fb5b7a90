// Signals that ask pdc-run and programs to end.
#pragma once

namespace pdcrt {

/// The first signal asks a run to end and to keep its weights. A second signal asks it to end at once. One wish often
/// arrives as two signals: `timeout` sends it to a process and to its group. So a signal counts as the second only if
/// it comes so many seconds after the first.
inline constexpr double secondSignalSeconds = 1;

} // namespace pdcrt
