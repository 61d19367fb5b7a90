// Text on its way into HTML and SVG. Names come from ONNX files, which may hold anything: every text that is not a
// literal of ours passes the one escaper here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pdc {

/// `text` as character data or as a quoted attribute's value: no markup in it takes effect, bytes that are not UTF-8
/// and control characters become U+FFFD.
std::string escaped(std::string_view text);

/// At most so many characters, with "…" for the rest.
std::string shortened(const std::string& text, std::size_t most);

/// A coordinate: "12.5", "3".
std::string number(double value);

/// Three digits that count: "0.673 ms", "12.4 ms", "1.24 s".
std::string timeText(double ms);

/// "12.3 %".
std::string percentText(double fraction);

/// "2.04 ×".
std::string timesText(double factor);

/// "+3.1 %".
std::string errorText(double error);

/// The largest of 1, 2, 5 times a power of ten that makes at least `least` steps in `range` > 0.
double niceStep(double range, int least);

/// A tick's label on an axis with this step: "0.5", "20".
std::string tickText(double value, double step);

} // namespace pdc
