#include "Shared/Window.h"

#include <algorithm>

namespace pdc::ops {

/// Sizes beyond this are mistakes, and their products would overflow.
constexpr std::int64_t limit = std::int64_t{1} << 31;

std::int64_t Window::count(int axis, std::int64_t size, bool roundUp) const {
  const std::int64_t room = size + before[axis] + after[axis] - extent(axis);
  if (room < 0) return 0;
  std::int64_t result = room / strides[axis] + 1;
  if (roundUp && room % strides[axis] != 0 && result * strides[axis] < size + before[axis]) ++result;
  return result;
}

std::vector<AttributeDef> windowAttributes(bool kernel, bool dilations) {
  std::vector<AttributeDef> defs;
  if (kernel) defs.push_back(integers("kernel", std::nullopt, "height and width of the window"));
  defs.push_back(integers("strides", {{1, 1}}, "rows and columns from one window to the next"));
  defs.push_back(integers("pads", {{0, 0, 0, 0}}, "rows and columns added at the top, left, bottom, right"));
  if (dilations) defs.push_back(integers("dilations", {{1, 1}}, "rows and columns from one tap to the next"));
  return defs;
}

Window windowOf(const Attributes& attributes) {
  Window window;
  const auto copy = [&](const char* name, std::int64_t(&to)[2], std::size_t from = 0) {
    if (!attributes.has(name)) return;
    const std::vector<std::int64_t>& values = attributes.getInts(name);
    to[0] = values[from], to[1] = values[from + 1];
  };
  copy("kernel", window.kernel);
  copy("strides", window.strides);
  copy("pads", window.before, 0);
  copy("pads", window.after, 2);
  copy("dilations", window.dilations);
  return window;
}

Status checkWindowAttributes(const InferContext& c, const char* op) {
  for (const char* name : {"kernel", "strides", "pads", "dilations"}) {
    if (!c.attributes.has(name)) continue;
    const std::vector<std::int64_t>& values = c.attributes.getInts(name);
    const std::size_t wanted = std::string(name) == "pads" ? 4 : 2;
    const std::int64_t least = wanted == 4 ? 0 : 1;
    if (values.size() != wanted)
      return c.error() << "'" << op << "' op has " << values.size() << " " << name << ", it needs " << wanted;
    for (std::int64_t value : values)
      if (value < least || value >= limit)
        return c.error() << "'" << op << "' op has " << value << " in " << name << ", it must lie in " << least
                         << " to " << limit - 1;
  }
  return success;
}

Status checkWindow(const InferContext& c, const char* op, const Window& window, std::int64_t height,
                   std::int64_t width) {
  const std::int64_t sizes[] = {height, width};
  for (int axis = 0; axis < 2; ++axis) {
    if (window.kernel[axis] < 1 || window.kernel[axis] >= limit)
      return c.error() << "'" << op << "' op has a window of " << window.kernel[axis] << " elements";
    if (window.count(axis, sizes[axis]) < 1)
      return c.error() << "'" << op << "' op has a window of " << window.extent(axis) << " elements on an axis of "
                       << sizes[axis] << " with " << window.before[axis] + window.after[axis] << " padding";
  }
  return success;
}

std::int64_t WindowAxis::count(std::int64_t size, bool roundUp) const {
  Window window;
  window.kernel[0] = kernel, window.strides[0] = stride, window.dilations[0] = dilation;
  window.before[0] = before, window.after[0] = after;
  return window.count(0, size, roundUp);
}

/// Adds the padding that auto_pad asks for: SAME_* gives ceil(size / stride) windows.
static void padSame(WindowAxis& axis, std::int64_t size, bool upper) {
  const std::int64_t windows = (size + axis.stride - 1) / axis.stride;
  const std::int64_t total = std::max<std::int64_t>(0, (windows - 1) * axis.stride + axis.extent() - size);
  axis.before = upper ? total / 2 : total - total / 2;
  axis.after = total - axis.before;
}

std::optional<std::vector<WindowAxis>> readWindows(OnnxReader& n, const std::vector<std::int64_t>& sizes,
                                                   std::optional<std::vector<std::int64_t>> kernel) {
  const std::size_t count = sizes.size();
  const std::vector<std::int64_t> stated = n.integers("kernel_shape", kernel.value_or(std::vector<std::int64_t>{}));
  const std::vector<std::int64_t> ones(count, 1), zeros(2 * count, 0);
  const std::vector<std::int64_t> strides = n.integers("strides", ones), dilations = n.integers("dilations", ones);
  const std::string autoPad = n.text("auto_pad", "NOTSET");
  const std::vector<std::int64_t> pads = n.integers("pads", zeros);
  const auto fits = [&](const char* name, const std::vector<std::int64_t>& values, std::size_t wanted,
                        std::int64_t least) {
    const auto good = [&](std::int64_t value) { return value >= least && value < limit; };
    if (values.size() == wanted && std::all_of(values.begin(), values.end(), good)) return true;
    static_cast<void>(n.error() << "has " << name << " = " << toString(values) << ", it needs " << wanted
                                << " numbers, each at least " << least);
    return false;
  };
  if (!fits("kernel_shape", stated, count, 1) || !fits("strides", strides, count, 1) ||
      !fits("dilations", dilations, count, 1) || !fits("pads", pads, 2 * count, 0))
    return std::nullopt;
  if (kernel && stated != *kernel) {
    static_cast<void>(n.error() << "has kernel_shape = " << toString(stated) << ", its weight says "
                                << toString(*kernel));
    return std::nullopt;
  }
  const bool same = autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER";
  if (!same && autoPad != "VALID" && autoPad != "NOTSET") {
    static_cast<void>(n.error() << "has auto_pad = '" << autoPad
                                << "', it must be NOTSET, SAME_UPPER, SAME_LOWER or VALID");
    return std::nullopt;
  }
  std::vector<WindowAxis> axes;
  for (std::size_t i = 0; i < count; ++i) {
    WindowAxis& axis = axes.emplace_back(WindowAxis{.kernel = stated[i],
                                                    .stride = strides[i],
                                                    .before = pads[i],
                                                    .after = pads[count + i],
                                                    .dilation = dilations[i]});
    if (same)
      padSame(axis, sizes[i], autoPad == "SAME_UPPER");
    else if (autoPad == "VALID")
      axis.before = axis.after = 0;
  }
  return axes;
}

Attributes planeAttributes(const WindowAxis& height, const WindowAxis& width, bool dilations) {
  using Sizes = std::vector<std::int64_t>;
  Attributes attributes{{"strides", Sizes{height.stride, width.stride}},
                        {"pads", Sizes{height.before, width.before, height.after, width.after}}};
  if (dilations) attributes.set("dilations", Sizes{height.dilation, width.dilation});
  return attributes;
}

} // namespace pdc::ops
