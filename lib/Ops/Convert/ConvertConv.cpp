// A volume [N, C, D, H, W] is convolved slice by slice: its depth moves into the batch, each tap of the filter's depth
// is one conv2d over the slices that it meets, and the products are added.
#include "Convert/ConvertConv.h"

#include "Shared/Window.h"

#include <algorithm>

using namespace pdc;
using namespace pdc::ops;

namespace {

using Sizes = std::vector<std::int64_t>;

/// Geometry along one axis.
struct Axis : WindowAxis {
  std::int64_t output = 1; ///< of a transposed convolution: elements of its result
};

/// The last two axes as attributes of conv2d.
Attributes convAttributes(const WindowAxis& height, const WindowAxis& width, std::int64_t groups) {
  Attributes attributes = planeAttributes(height, width, /*dilations=*/true);
  attributes.set("groups", groups);
  return attributes;
}

Shape spatial(const Type& type) {
  return {type.shape.begin() + 2, type.shape.end()};
}
/// [a, b, w] as [a, b, 1, w].
Value* asPlane(OnnxReader& n, Value* x) {
  const Shape shape = x->type().shape;
  return shape.size() == 3 ? n.reshape(x, {shape[0], shape[1], 1, shape[2]}) : x;
}
/// And back.
Value* asLine(OnnxReader& n, Value* x) {
  const Shape shape = x ? x->type().shape : Shape{};
  return x ? n.reshape(x, {shape[0], shape[1], shape[3]}) : nullptr;
}

/// Elements begin, begin + step, … of axis `axis`, `count` of them.
Value* slice(OnnxReader& n, Value* x, std::size_t axis, std::int64_t begin, std::int64_t step, std::int64_t count) {
  if (!x) return nullptr;
  Sizes starts(x->type().shape.size(), 0), steps(starts.size(), 1), sizes = x->type().shape;
  starts[axis] = begin, steps[axis] = step, sizes[axis] = count;
  if (sizes == x->type().shape) return x;
  return n.value("slice", {x}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}});
}

/// Zeros before and after axis `axis`.
Value* pad(OnnxReader& n, Value* x, std::size_t axis, std::int64_t before, std::int64_t after) {
  if (!x || (before == 0 && after == 0)) return x;
  Sizes front(x->type().shape.size(), 0), back = front;
  front[axis] = before, back[axis] = after;
  return n.value("pad", {x}, {{"before", front}, {"after", back}});
}

Value* sum(OnnxReader& n, Value* a, Value* b) {
  return a && b ? n.value("add", {a, b}) : a ? a : b;
}

const Sizes depthFirst = {0, 2, 1, 3, 4}; ///< [N, C, D, H, W] as [N, D, C, H, W], and back

/// The tap at `depth` of a filter [O, C, kd, kh, kw], as a filter of a plane.
Value* tapOf(OnnxReader& n, Value* filter, std::int64_t depth) {
  const Shape w = filter->type().shape;
  return n.reshape(slice(n, filter, 2, depth, 1, 1), {w[0], w[1], w[3], w[4]});
}

/// x [N, D, C, H, W] with its depth in the batch, and back with `depth` slices.
Value* foldDepth(OnnxReader& n, Value* x) {
  const Shape s = x ? x->type().shape : Shape{};
  return x ? n.reshape(x, {s[0] * s[1], s[2], s[3], s[4]}) : nullptr;
}
Value* unfoldDepth(OnnxReader& n, Value* x, std::int64_t depth) {
  const Shape s = x ? x->type().shape : Shape{};
  return x ? n.reshape(x, {s[0] / depth, depth, s[1], s[2], s[3]}) : nullptr;
}

Value* convolveVolume(OnnxReader& n, const std::vector<WindowAxis>& axes, std::int64_t groups) {
  const WindowAxis& depth = axes[0];
  const Attributes attributes = convAttributes(axes[1], axes[2], groups);
  const std::int64_t room = n.type(0).shape[2] + depth.before + depth.after - depth.extent();
  if (room < 0) {
    static_cast<void>(n.error() << "has a filter of depth " << depth.extent() << " on a depth of " << n.type(0).shape[2]
                                << " with " << depth.before + depth.after << " padding");
    return nullptr;
  }
  const std::int64_t count = room / depth.stride + 1;
  Value* x = pad(n, n.transpose(n.input(0), depthFirst), 1, depth.before, depth.after);
  Value* total = nullptr;
  for (std::int64_t tap = 0; tap < depth.kernel; ++tap) {
    Value* met = foldDepth(n, slice(n, x, 1, tap * depth.dilation, depth.stride, count));
    Value* weight = tapOf(n, n.input(1), tap);
    if (!met || !weight) return nullptr;
    total = sum(n, total, n.value("conv2d", {met, weight, tap == 0 ? n.input(2) : nullptr}, attributes));
  }
  Value* y = unfoldDepth(n, total, count);
  return y ? n.transpose(y, depthFirst) : nullptr;
}

Value* transposedPlane(OnnxReader& n, Value* x, Value* filter, const Axis& height, const Axis& width,
                       std::int64_t groups) {
  if (!x || !filter) return nullptr;
  Attributes attributes = convAttributes(height, width, groups);
  attributes.set("input_shape",
                 Shape{x->type().shape[0], filter->type().shape[1] * groups, height.output, width.output});
  return n.value("conv2d_input_gradient", {x, filter}, attributes);
}

/// Each tap of the depth spreads the slices of x, `stride` apart, over the result.
Value* transposedVolume(OnnxReader& n, const std::vector<Axis>& axes, std::int64_t groups) {
  const Axis& depth = axes[0];
  const std::int64_t slices = n.type(0).shape[2], spread = (slices - 1) * depth.stride + 1;
  Value* x = foldDepth(n, n.transpose(n.input(0), depthFirst));
  Value* total = nullptr;
  for (std::int64_t tap = 0; tap < depth.kernel; ++tap) {
    Value* y = unfoldDepth(n, transposedPlane(n, x, tapOf(n, n.input(1), tap), axes[1], axes[2], groups), slices);
    if (!y) return nullptr;
    const Shape s = y->type().shape;
    y = pad(n, n.reshape(y, {s[0], s[1], 1, s[2], s[3], s[4]}), 2, 0, depth.stride - 1);
    y = y ? n.reshape(y, {s[0], s[1] * depth.stride, s[2], s[3], s[4]}) : nullptr;
    const std::int64_t begin = tap * depth.dilation;
    // Before the padding is cut off, the result has before + output elements, and more where nothing is written.
    y = pad(n, slice(n, y, 1, 0, 1, spread), 1, begin,
            std::max<std::int64_t>(0, depth.before + depth.output - begin - spread));
    total = sum(n, total, slice(n, y, 1, depth.before, 1, depth.output));
  }
  return total ? n.transpose(total, depthFirst) : nullptr;
}

/// Reads the geometry of a transposed convolution and what it makes the result's sizes.
std::optional<std::vector<Axis>> transposedAxes(OnnxReader& n) {
  const Shape x = spatial(n.type(0)), w = spatial(n.type(1));
  const std::size_t count = x.size();
  const Sizes ones(count, 1), zeros(count, 0);
  const Sizes kernel = n.integers("kernel_shape", w), strides = n.integers("strides", ones),
              dilations = n.integers("dilations", ones), more = n.integers("output_padding", zeros),
              pads = n.integers("pads", Sizes(2 * count, 0));
  Sizes outputs = n.integers("output_shape");
  const std::string autoPad = n.text("auto_pad", "NOTSET");
  const bool same = autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER";
  if (outputs.size() == count + 2) outputs.erase(outputs.begin(), outputs.begin() + 2); // with batch and channels
  const auto bad = [](const Sizes& values, std::size_t size, std::int64_t least) {
    return values.size() != size || std::any_of(values.begin(), values.end(), [least](std::int64_t value) {
             return value < least || value > (std::int64_t{1} << 31);
           });
  };
  if (kernel != w || bad(strides, count, 1) || bad(dilations, count, 1) || bad(more, count, 0) ||
      bad(pads, 2 * count, 0) || (!outputs.empty() && bad(outputs, count, 1)) ||
      (!same && autoPad != "NOTSET" && autoPad != "VALID")) {
    static_cast<void>(n.error() << "has sizes that do not fit " << toString(n.type(0)) << " and the filter "
                                << toString(n.type(1)));
    return std::nullopt;
  }
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < count; ++i) {
    Axis axis{
        {.kernel = w[i], .stride = strides[i], .before = pads[i], .after = pads[count + i], .dilation = dilations[i]}};
    std::int64_t added = more[i], whole = axis.stride * (x[i] - 1) + added + axis.extent();
    if (same || !outputs.empty()) {
      const std::int64_t wanted = outputs.empty() ? x[i] * axis.stride : outputs[i];
      added += std::max<std::int64_t>(0, wanted - whole); // larger than the filter reaches: padded at the end
      whole = std::max(whole, wanted);
      const std::int64_t total = whole - wanted;
      axis.before = autoPad == "SAME_UPPER" ? total / 2 : total - total / 2;
      axis.after = total - axis.before;
    } else if (autoPad == "VALID") {
      axis.before = axis.after = 0;
    }
    axis.output = whole - axis.before - axis.after;
    if (axis.before < 0 || axis.after < 0 || axis.output < 1 || added >= axis.stride) {
      static_cast<void>(n.unsupported() << "has an output padding of " << added << " with stride " << axis.stride
                                        << " and a padding of " << axis.before << " and " << axis.after
                                        << ": the output padding must be below the stride, the padding positive");
      return std::nullopt;
    }
    axes.push_back(axis);
  }
  return axes;
}

/// Both inputs have floats over the same one to three axes.
bool checkRanks(OnnxReader& n) {
  const int rank = n.type(0).rank();
  if (n.type(1).rank() == rank && rank >= 3 && rank <= 5) return true;
  static_cast<void>(n.unsupported() << "convolves over one to three axes, its inputs are " << toString(n.type(0))
                                    << " and " << toString(n.type(1)));
  return false;
}

} // namespace

Value* pdc::ops::convertConv(OnnxReader& n) {
  const std::int64_t groups = n.integer("group", 1);
  if (!checkRanks(n)) return nullptr;
  const Shape x = spatial(n.type(0)), w = spatial(n.type(1));
  auto axes = readWindows(n, x, w);
  if (!axes) return nullptr;
  if (axes->size() == 3) return convolveVolume(n, *axes, groups);
  if (axes->size() == 1) axes->insert(axes->begin(), WindowAxis{});
  Value *plane = asPlane(n, n.input(0)), *filter = asPlane(n, n.input(1));
  if (!plane || !filter) return nullptr;
  Value* y = n.value("conv2d", {plane, filter, n.input(2)}, convAttributes((*axes)[0], (*axes)[1], groups));
  return x.size() == 1 ? asLine(n, y) : y;
}

Value* pdc::ops::convertConvTranspose(OnnxReader& n) {
  const std::int64_t groups = n.integer("group", 1);
  if (!checkRanks(n)) return nullptr;
  auto axes = transposedAxes(n);
  if (!axes) return nullptr;
  const std::size_t count = axes->size();
  Value* y = nullptr;
  if (count == 3) {
    y = transposedVolume(n, *axes, groups);
  } else {
    if (count == 1) axes->insert(axes->begin(), Axis{});
    y = transposedPlane(n, asPlane(n, n.input(0)), asPlane(n, n.input(1)), (*axes)[0], (*axes)[1], groups);
    if (count == 1) y = asLine(n, y);
  }
  Value* bias = n.input(2);
  if (!y || !bias) return y;
  Shape perChannel(count + 1, 1);
  perChannel[0] = y->type().shape[1];
  if (elementsOf(bias->type().shape) != perChannel[0]) {
    static_cast<void>(n.error() << "has " << toString(bias->type()) << " as bias of " << perChannel[0] << " channels");
    return nullptr;
  }
  bias = n.reshape(bias, perChannel);
  return bias ? n.value("add", {y, bias}) : nullptr;
}
