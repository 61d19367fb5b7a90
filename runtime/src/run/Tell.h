// What a process says of a failure.
#pragma once

#include "pdcrt/Status.h"

namespace pdcrt {

/// To standard error, in one write: other ranks write there, too, and nothing of theirs may stand between an error and
/// its help.
void tell(const Status& status);

} // namespace pdcrt
