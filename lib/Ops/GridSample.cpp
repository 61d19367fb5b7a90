// ONNX GridSample (Jaderberg et al. 2015): an image read at positions that are data. Each tap of the interpolation is a
// gather over all pixels, times a weight per position; X has a gradient by the gather, the grid by the weights.
#include "Convert/Onnx.h"
#include "Shared/Define.h"

#include <charconv>

namespace pdc::ops::GridSample {

namespace {

std::string literal(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// One pixel along one axis: its number (a float), and how much of it is taken.
struct Tap {
  Value *index = nullptr, *weight = nullptr; ///< no weight: 1
};

class GridSample {
public:
  explicit GridSample(OnnxReader& reader) : n(reader) {}

  Value* run() {
    if (!read()) return nullptr;
    const Shape x = n.type(0).shape, grid = n.type(1).shape;
    const Shape where(grid.begin(), grid.end() - 1); // [samples, rows, columns] of the result
    const std::vector<Tap> columns = taps(coordinate(0, x[3]), x[3]), rows = taps(coordinate(1, x[2]), x[2]);
    Value* pixels = n.transpose(n.input(0), {0, 2, 3, 1});
    pixels = pixels ? n.reshape(pixels, {x[0] * x[2] * x[3], x[1]}) : nullptr;
    Value* total = nullptr;
    for (const Tap& row : rows)
      for (const Tap& column : columns) {
        Value* term = pick(pixels, row, column, where);
        total = total && term ? n.value("add", {total, term}) : term;
        if (!total) return nullptr;
      }
    return total ? n.transpose(total, {0, 3, 1, 2}) : nullptr;
  }

private:
  bool read() {
    mode_ = n.text("mode", n.version() < 20 ? "bilinear" : "linear");
    padding_ = n.text("padding_mode", "zeros");
    corners_ = n.integer("align_corners", 0) != 0;
    if (mode_ == "bilinear" || mode_ == "bicubic") mode_.erase(0, 2);
    const Type &x = n.type(0), &grid = n.type(1);
    if (x.rank() != 4 || grid.rank() != 4 || grid.shape[3] != 2 || grid.shape[0] != x.shape[0] || x.elements() == 0 ||
        !isFloat(x.element) || grid.element != x.element) {
      static_cast<void>(n.unsupported() << "reads images of floats at two coordinates each, its inputs are "
                                        << toString(x) << " and " << toString(grid));
      return false;
    }
    const bool known = (mode_ == "linear" || mode_ == "cubic" || mode_ == "nearest") &&
                       (padding_ == "zeros" || padding_ == "border" || padding_ == "reflection");
    if (!known)
      static_cast<void>(n.unsupported() << "has mode '" << mode_ << "' and padding_mode '" << padding_ << "'");
    return known;
  }

  Value* scalar(std::vector<Value*> operands, const std::string& expression) {
    for (const Value* operand : operands)
      if (!operand) return nullptr;
    return n.value("elementwise", std::move(operands), {{"expressions", std::vector{expression}}});
  }

  /// x put back between the borders of an axis of `size` pixels: by reflection, as often as it takes.
  Value* reflected(Value* x, std::int64_t size) {
    const double least = corners_ ? 0 : -0.5, range = static_cast<double>(corners_ ? size - 1 : size);
    if (range == 0) return scalar({x}, "0 * a0");
    const std::string low = literal(least), once = literal(range), twice = literal(2 * range);
    Value* distance = scalar({x}, "abs(a0 - (" + low + "))");
    Value* folded = scalar({distance}, "a0 - floor(a0 / " + twice + ") * " + twice);
    return scalar({folded}, low + " + select(a0 <= " + once + ", a0, " + twice + " - a0)");
  }

  /// With no gradient at the borders, as in PyTorch.
  Value* clamped(Value* x, std::int64_t size) {
    return scalar({x}, "min(max(a0, 0), " + std::to_string(size - 1) + ")");
  }

  /// Coordinate `which` of the grid, which runs from -1 to 1, in pixels of an axis of `size`.
  Value* coordinate(std::int64_t which, std::int64_t size) {
    Shape shape = n.type(1).shape;
    shape[3] = 1;
    Value* x = n.value("slice", {n.input(1)},
                       {{"starts", std::vector<std::int64_t>{0, 0, 0, which}},
                        {"steps", std::vector<std::int64_t>{1, 1, 1, 1}},
                        {"sizes", shape}});
    shape.pop_back();
    x = n.reshape(x, shape);
    const std::string count = std::to_string(size), last = std::to_string(size - 1);
    x = x ? scalar({x}, corners_ ? "(a0 + 1) / 2 * " + last : "((a0 + 1) * " + count + " - 1) / 2") : nullptr;
    if (mode_ == "nearest") x = scalar({x}, "round(a0)");
    if (padding_ == "border") return mode_ == "cubic" ? x : clamped(x, size); // of cubics, only each tap is
    if (padding_ != "reflection") return x;
    x = reflected(x, size);
    return mode_ == "linear" ? clamped(x, size) : x; // beyond the outer pixels there is nothing else
  }

  /// Keys's cubic at distance a0 with a = -0.75.
  static std::string cubic() {
    return "select(abs(a0) < 1, (1.25 * abs(a0) - 2.25) * a0 * a0 + 1, "
           "select(abs(a0) < 2, -0.75 * (((abs(a0) - 5) * abs(a0) + 8) * abs(a0) - 4), 0))";
  }

  std::vector<Tap> taps(Value* x, std::int64_t size) {
    if (mode_ == "nearest") return {padded({x, nullptr}, size)};
    Value* base = scalar({x}, "floor(a0)");
    Value* ratio = scalar({x, base}, "a0 - a1");
    std::vector<Tap> list;
    for (int offset = mode_ == "linear" ? 0 : -1; offset <= (mode_ == "linear" ? 1 : 2); ++offset) {
      Value* index = scalar({base}, "a0 + " + std::to_string(offset));
      Value* weight = mode_ == "linear" ? scalar({ratio}, offset == 0 ? "1 - a0" : "a0")
                                        : scalar({scalar({ratio}, "a0 - " + std::to_string(offset))}, cubic());
      list.push_back(padded({index, weight}, size));
    }
    return list;
  }

  /// A tap beyond the border counts nothing, or is another pixel.
  Tap padded(Tap tap, std::int64_t size) {
    if (padding_ == "zeros") {
      const std::string inside = "a0 >= 0 && a0 <= " + std::to_string(size - 1);
      tap.weight = tap.weight ? scalar({tap.index, tap.weight}, "select(" + inside + ", a1, 0)")
                              : scalar({tap.index}, "select(" + inside + ", 1, 0)");
    }
    if (padding_ == "reflection") tap.index = reflected(tap.index, size);
    tap.index = clamped(tap.index, size);
    return tap;
  }

  /// The pixels of a row and a column, times their weights: [samples, rows, columns, channels].
  Value* pick(Value* pixels, const Tap& row, const Tap& column, const Shape& where) {
    const Shape& x = n.type(0).shape;
    const auto whole = [&](Value* index) {
      return index ? n.value("cast", {index}, {{"to", std::string("i64")}}) : nullptr;
    };
    std::vector<std::int64_t> first;
    for (std::int64_t sample = 0; sample < x[0]; ++sample) first.push_back(sample * x[2] * x[3]);
    Value* samples = n.b.constant(Tensor::ofInts({x[0], 1, 1}, first));
    Value* indices =
        scalar({whole(row.index), whole(column.index), samples}, "a2 + a0 * " + std::to_string(x[3]) + " + a1");
    Value* picked = indices && pixels ? n.value("gather", {pixels, indices}, {{"axis", std::int64_t{0}}}) : nullptr;
    Value* weight = row.weight && column.weight ? scalar({row.weight, column.weight}, "a0 * a1")
                    : row.weight                ? row.weight
                                                : column.weight;
    if (!picked || !weight) return picked;
    Shape apart = where;
    apart.push_back(1);
    return scalar({picked, n.reshape(weight, apart)}, "a0 * a1");
  }

  OnnxReader& n;
  std::string mode_, padding_;
  bool corners_ = false;
};

} // namespace

std::vector<OpDef> define() {
  return {composed("grid_sample", "Images read at given positions, interpolated: gather, mul and add",
                   {onnx(
                       "GridSample", 2, [](OnnxReader& n) { return GridSample(n).run(); }, 16)})};
}

} // namespace pdc::ops::GridSample
