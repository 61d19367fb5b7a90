// ONNX's ways to pick elements, as index arithmetic and gather; and masks made of positions.
#include "Convert/Indices.h"
#include "Shared/Define.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace pdc::ops::Indexing {

namespace {

/// Elements of `x`, as [rows, rest], at `rows` of its merged leading axes.
Value* gatherRows(OnnxReader& n, Value* x, Shape merged, Value* positions) {
  Value* flat = n.reshape(x, std::move(merged));
  return flat && positions ? n.value("gather", {flat, positions}, {{"axis", std::int64_t{0}}}) : nullptr;
}

Value* convertGatherElements(OnnxReader& n) {
  const Shape &x = n.type(0).shape, &indices = n.type(1).shape;
  const auto axis = n.axis(n.integer("axis", 0), n.type(0).rank());
  if (!axis || !requireIndices(n, 1)) return nullptr;
  bool inside = x.size() == indices.size();
  for (std::size_t i = 0; inside && i < x.size(); ++i)
    inside = static_cast<std::int64_t>(i) == *axis || indices[i] <= x[i];
  if (!inside) {
    static_cast<void>(n.error() << "has indices " << toString(n.type(1)) << " for " << toString(n.type(0)));
    return nullptr;
  }
  return gatherRows(n, n.input(0), {elementsOf(x)}, elementPositions(n, x, n.input(1), *axis));
}

Value* convertGatherNd(OnnxReader& n) {
  const Shape &x = n.type(0).shape, &indices = n.type(1).shape;
  const std::int64_t batch = n.integer("batch_dims", 0);
  if (!requireIndices(n, 1)) return nullptr;
  const std::int64_t tuple = indices.empty() ? 0 : indices.back();
  const auto least = static_cast<std::int64_t>(std::min(x.size(), indices.empty() ? 0 : indices.size() - 1));
  if (batch < 0 || batch > least || tuple < 1 || batch + tuple > n.type(0).rank() ||
      !std::equal(x.begin(), x.begin() + batch, indices.begin())) {
    static_cast<void>(n.error() << "has indices " << toString(n.type(1)) << " for " << toString(n.type(0)) << " and "
                                << batch << " batch dimensions");
    return nullptr;
  }
  const auto split = static_cast<std::size_t>(batch + tuple);
  Value* rows = gatherRows(n, n.input(0), {product(x, 0, split), product(x, split, x.size())},
                           tuplePositions(n, x, n.input(1), batch));
  Shape result(indices.begin(), indices.end() - 1);
  result.insert(result.end(), x.begin() + static_cast<std::ptrdiff_t>(split), x.end());
  return n.reshape(rows, result);
}

/// The elements whose condition holds: which ones decides about shapes, so the condition is constant.
Value* convertCompress(OnnxReader& n) {
  const std::optional<Tensor> condition = n.constant(1, "condition");
  Value* x = n.input(0);
  std::optional<std::int64_t> axis = 0;
  if (n.has("axis"))
    axis = n.axis(n.integer("axis", 0), n.type(0).rank());
  else
    x = n.reshape(x, {n.type(0).elements()});
  if (!condition || !axis || !x) return nullptr;
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < condition->elements(); ++i)
    if (condition->asInt(i) != 0) chosen.push_back(i);
  Value* indices = n.b.constant(Tensor::ofInts({static_cast<std::int64_t>(chosen.size())}, chosen));
  return n.value("gather", {x, indices}, {{"axis", *axis}});
}

/// The positions of elements that are not 0, one column each.
Value* convertNonZero(OnnxReader& n) {
  const std::optional<Tensor> x = n.constant(0, "X");
  if (!x) return nullptr;
  std::vector<std::vector<std::int64_t>> rows(std::max<std::size_t>(1, x->shape().size()));
  forEachIndex(x->shape(), [&, at = std::int64_t{0}](const std::vector<std::int64_t>& index) mutable {
    if (x->asDouble(at++) == 0) return;
    for (std::size_t axis = 0; axis < rows.size(); ++axis) rows[axis].push_back(index.empty() ? 0 : index[axis]);
  });
  std::vector<std::int64_t> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return n.b.constant(
      Tensor::ofInts({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())}, all));
}

/// The distinct ones of `count` rows: `rows(i)` is comparable.
struct Distinct {
  std::vector<std::int64_t> first, inverse, counts;

  template <class Rows>
  Distinct(std::int64_t count, bool sorted, Rows rows) : inverse(static_cast<std::size_t>(count)) {
    std::map<decltype(rows(0)), std::vector<std::int64_t>> places;
    for (std::int64_t i = 0; i < count; ++i) places[rows(i)].push_back(i);
    std::vector<const std::vector<std::int64_t>*> groups;
    for (const auto& [row, group] : places) groups.push_back(&group);
    if (!sorted)
      std::sort(groups.begin(), groups.end(), [](const auto* a, const auto* b) { return a->front() < b->front(); });
    for (const auto* group : groups) {
      for (std::int64_t i : *group) inverse[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(first.size());
      first.push_back(group->front());
      counts.push_back(static_cast<std::int64_t>(group->size()));
    }
  }
};

/// The distinct slices along an axis, or elements: how many there are decides about shapes, so they are constant.
Expected<std::vector<Value*>> convertUnique(OnnxReader& n) {
  const std::optional<Tensor> x = n.constant(0, "X");
  const bool sorted = n.integer("sorted", 1) != 0, whole = n.has("axis");
  const auto axis = whole ? n.axis(n.integer("axis", 0), n.type(0).rank()) : 0;
  if (!x || !axis) return failure;
  Value* source = whole ? n.input(0) : n.reshape(n.input(0), {x->elements()});
  const Shape shape = source->type().shape;
  const std::int64_t size = shape[static_cast<std::size_t>(*axis)];
  const std::int64_t inner = product(shape, static_cast<std::size_t>(*axis) + 1, shape.size());
  for (std::int64_t i = 0; i < x->elements(); ++i)
    if (std::isnan(x->asDouble(i))) return n.unsupported() << "has elements that are not a number";
  const auto rows = [&](auto at) {
    return [&, at](std::int64_t place) {
      std::vector<decltype(at(0))> row;
      for (std::int64_t i = 0; i < x->elements(); ++i)
        if (i / inner % size == place) row.push_back(at(i));
      return row;
    };
  };
  const Distinct distinct = isFloat(x->type().element)
                                ? Distinct(size, sorted, rows([&](std::int64_t i) { return x->asDouble(i); }))
                                : Distinct(size, sorted, rows([&](std::int64_t i) { return x->asInt(i); }));
  const auto list = [&](const std::vector<std::int64_t>& numbers) {
    return n.b.constant(Tensor::ofInts({static_cast<std::int64_t>(numbers.size())}, numbers));
  };
  Value* y = n.value("gather", {source, list(distinct.first)}, {{"axis", *axis}});
  if (!y) return failure;
  return std::vector<Value*>{y, list(distinct.first), list(distinct.inverse), list(distinct.counts)};
}

/// The first sequence_lens[b] steps of each sequence, backwards; the rest as it is.
Value* convertReverseSequence(OnnxReader& n) {
  const Shape& x = n.type(0).shape;
  const std::int64_t time = n.integer("time_axis", 0), batch = n.integer("batch_axis", 1);
  if (!requireIndices(n, 1)) return nullptr;
  if (x.size() < 2 || time < 0 || time > 1 || batch != 1 - time || n.type(1).shape != Shape{x[batch ? 1 : 0]}) {
    static_cast<void>(n.error() << "reverses " << toString(n.type(0)) << " along axis " << time
                                << " with sequence lengths " << toString(n.type(1)) << " of axis " << batch);
    return nullptr;
  }
  const std::int64_t steps = x[time ? 1 : 0], sequences = x[batch ? 1 : 0];
  Shape lengthShape = {1, 1};
  lengthShape[batch ? 1 : 0] = sequences;
  Value* lengths = n.reshape(asIndices(n, n.input(1)), lengthShape);
  Value* step = compute(n, {arange(n, steps, time ? 1 : 0, 2), lengths}, "select(a0 < a1, a1 - 1 - a0, a0)");
  const std::string stepStride = std::to_string(time == 0 ? sequences : 1);
  const std::string sequenceStride = std::to_string(time == 0 ? 1 : steps);
  Value* positions =
      compute(n, {step, arange(n, sequences, batch ? 1 : 0, 2)}, "a0 * " + stepStride + " + a1 * " + sequenceStride);
  Value* rows = gatherRows(n, n.input(0), {x[0] * x[1], product(x, 2, x.size())}, n.reshape(positions, {x[0] * x[1]}));
  return n.reshape(rows, x);
}

/// `on` where the class is the index, `off` elsewhere; an index outside has neither.
Value* convertOneHot(OnnxReader& n) {
  const std::optional<Tensor> depth = n.constant(1, "depth");
  const Shape& shape = n.type(0).shape;
  const auto axis = n.axis(n.integer("axis", -1), n.type(0).rank() + 1);
  if (!depth || !axis) return nullptr;
  if (depth->elements() != 1 || depth->asInt(0) < 1 || n.type(2).shape != Shape{2}) {
    static_cast<void>(n.error() << "needs a depth of at least 1 and two values, they are "
                                << (depth->elements() ? depth->asInt(0) : 0) << " and " << toString(n.type(2)));
    return nullptr;
  }
  const auto a = static_cast<std::size_t>(*axis);
  Shape unsqueezed = shape;
  unsqueezed.insert(unsqueezed.begin() + *axis, 1);
  Value* classes = arange(n, depth->asInt(0), a, unsqueezed.size());
  Value* isClass = compute(n, {n.reshape(asIndices(n, n.input(0)), unsqueezed), classes},
                           "select(a0 < 0, a0 + " + std::to_string(depth->asInt(0)) + ", a0) == a1");
  const auto value = [&](std::int64_t i) {
    return n.reshape(
        n.value("slice", {n.input(2)},
                {{"starts", std::vector{i}}, {"sizes", Shape{1}}, {"steps", std::vector<std::int64_t>{1}}}),
        {});
  };
  Value *off = value(0), *on = value(1);
  return isClass && on && off ? n.value("where", {isClass, on, off}) : nullptr;
}

/// Keeps the triangle above (or below) the k-th diagonal of each matrix.
Value* convertTrilu(OnnxReader& n) {
  std::int64_t k = 0;
  if (n.input(1)) {
    const std::optional<std::vector<std::int64_t>> stated = n.constantIntegers(1, "k");
    if (!stated || stated->size() != 1) return nullptr;
    k = stated->front();
  }
  const bool upper = n.integer("upper", 1) != 0;
  const Type& x = n.type(0);
  if (x.rank() < 2) {
    static_cast<void>(n.error() << "needs matrices, its input is " << toString(x));
    return nullptr;
  }
  const std::size_t rank = x.shape.size();
  Value* kept = compute(n, {arange(n, x.shape[rank - 2], 0, 2), arange(n, x.shape[rank - 1], 1, 2)},
                        std::string("a1 - a0 ") + (upper ? ">= " : "<= ") + std::to_string(k));
  return kept ? n.value("where", {kept, n.input(0), n.b.constant(0, x.element)}) : nullptr;
}

} // namespace

std::vector<OpDef> define() {
  return {
      composed("gather_elements", "One element per index, elsewhere at its own place: gather",
               {onnx("GatherElements", 2, convertGatherElements)}),
      composed("gather_nd", "Slices named by tuples of indices: gather", {onnx("GatherND", 2, convertGatherNd)}),
      composed("compress", "Slices whose condition, a constant, holds: gather", {onnx("Compress", 2, convertCompress)}),
      composed("non_zero", "Positions of a constant's elements that are not 0", {onnx("NonZero", 1, convertNonZero)}),
      composed("unique", "The distinct elements, or slices, of a constant", {onnxMany("Unique", 1, convertUnique, 11)}),
      composed("reverse_sequence", "The first steps of each sequence in reverse order: gather",
               {onnx("ReverseSequence", 2, convertReverseSequence)}),
      composed("one_hot", "One of two values, depending on whether the class is the index: where",
               {onnx("OneHot", 3, convertOneHot)}),
      composed("trilu", "Upper or lower triangles of matrices: where", {onnx("Trilu", 1, convertTrilu)}),
  };
}

} // namespace pdc::ops::Indexing
