// --verify-diagnostics: compares what was reported with comments in the input.
//
//   // expected-error@+1 {{'%y' is defined twice}}
//
// stands for an error on the next line whose message contains the text; @-2 and no offset work likewise, and `warning`
// and `remark` beside `error`. Notes and helps of a diagnostic belong to its message.
#pragma once

#include "pdc/Support/Diagnostics.h"

#include <iosfwd>
#include <string>

namespace pdc {

/// True when every expectation in `text` was met by one diagnostic, and no other was reported; otherwise says on `out`
/// what is missing or too much. Lines count from `firstLine`. A diagnostic without line meets an expectation anywhere.
bool checkExpectedDiagnostics(const std::string& text, int firstLine, const Diagnostics& diags, std::ostream& out);

} // namespace pdc
