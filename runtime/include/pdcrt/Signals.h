// What pdc-run and programs make of signals that ask them to end.
#pragma once

namespace pdcrt {

/// The first one asks a run to end and to keep its weights, a second one to end at once. It often comes twice, though:
/// `timeout` sends it to a process and to its group, a shell to all that a launcher has started. So it is a second one
/// only if it comes so many seconds after the first.
inline constexpr double secondSignalSeconds = 1;

} // namespace pdcrt
