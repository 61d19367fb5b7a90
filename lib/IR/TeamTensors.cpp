#include "pdc/IR/TeamTensors.h"

#include <algorithm>
#include <functional>
#include <numeric>

using namespace pdc;

namespace {

/// A split as bytes: `rows` stretches of the whole, each of which is `members` shares of `share` bytes.
struct Stretches {
  std::size_t rows = 1, share = 1;
};

Stretches stretchesOf(const Type& part, const Form& form) {
  Stretches stretches{static_cast<std::size_t>(form.blocks), pdcrt::bytesOf(part.element)};
  for (std::size_t axis = 0; axis < part.shape.size(); ++axis)
    (static_cast<int>(axis) < form.axis ? stretches.rows : stretches.share) *=
        static_cast<std::size_t>(part.shape[axis]);
  stretches.share /= static_cast<std::size_t>(form.blocks);
  return stretches;
}

template <class T>
T combinedOf(Combine combine, T a, T b) {
  switch (combine) {
  case Combine::max: return std::max(a, b);
  case Combine::min: return std::min(a, b);
  case Combine::sum:
  case Combine::mean: break;
  }
  return a + b;
}

template <class T>
void combineInto(Tensor& sum, const Tensor& term, Combine combine) {
  auto to = sum.mutableData<T>();
  auto from = term.data<T>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = combinedOf(combine, to[i], from[i]);
}

Tensor combined(const std::vector<Tensor>& ofMembers, Combine combine) {
  Tensor result = ofMembers.front();
  const bool inDouble = result.type().element == ElementType::f64, isInteger = !isFloat(result.type().element);
  for (std::size_t m = 1; m < ofMembers.size(); ++m) {
    if (isInteger)
      for (std::int64_t i = 0; i < result.elements(); ++i)
        result.setInt(i, combinedOf(combine, result.asInt(i), ofMembers[m].asInt(i)));
    else
      (inDouble ? combineInto<double> : combineInto<float>)(result, ofMembers[m], combine);
  }
  if (combine == Combine::mean)
    for (std::int64_t i = 0; i < result.elements(); ++i)
      result.set(i, result.asDouble(i) / static_cast<double>(ofMembers.size()));
  return result;
}

} // namespace

/// The same elements with an axis of another size: zeros are added behind its end, or what is there is left out.
static Tensor resized(const Tensor& tensor, int axis, std::int64_t size) {
  Type type = tensor.type();
  const std::int64_t before = type.shape[static_cast<std::size_t>(axis)];
  type.shape[static_cast<std::size_t>(axis)] = size;
  std::size_t rows = 1, inner = pdcrt::bytesOf(type.element);
  for (std::size_t i = 0; i < type.shape.size(); ++i)
    if (static_cast<int>(i) != axis)
      (static_cast<int>(i) < axis ? rows : inner) *= static_cast<std::size_t>(type.shape[i]);
  const std::size_t from = inner * static_cast<std::size_t>(before), to = inner * static_cast<std::size_t>(size);
  std::vector<std::byte> bytes(rows * to);
  for (std::size_t row = 0; row < rows; ++row)
    std::copy_n(tensor.bytes().data() + row * from, std::min(from, to), bytes.data() + row * to);
  return {type, bytes};
}

/// Moves rows along an axis from place order[i] to place i, or back.
static Tensor moved(const Tensor& tensor, int axis, const std::vector<std::int32_t>& order, bool isBack) {
  std::size_t outer = 1, row = pdcrt::bytesOf(tensor.type().element);
  for (std::size_t i = 0; i < tensor.shape().size(); ++i)
    if (static_cast<int>(i) != axis)
      (static_cast<int>(i) < axis ? outer : row) *= static_cast<std::size_t>(tensor.shape()[i]);
  std::vector<std::byte> bytes(tensor.bytes().size());
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t here = o * order.size() + i, there = o * order.size() + static_cast<std::size_t>(order[i]);
      std::copy_n(tensor.bytes().data() + (isBack ? here : there) * row, row,
                  bytes.data() + (isBack ? there : here) * row);
    }
  return {tensor.type(), bytes};
}

Tensor pdc::inOrder(const Tensor& tensor, int axis, const std::vector<std::int32_t>& order) {
  return moved(tensor, axis, order, /*isBack=*/false);
}

Tensor pdc::outOfOrder(const Tensor& tensor, int axis, const std::vector<std::int32_t>& order) {
  return moved(tensor, axis, order, /*isBack=*/true);
}

Tensor pdc::partOf(const Tensor& whole, const Form& form, std::int64_t members, std::int64_t member) {
  if (!form.isSplit()) return whole;
  if (form.padded > 0) {
    const std::int64_t share = partOf(whole.type(), form, members).shape[static_cast<std::size_t>(form.axis)];
    return partOf(resized(whole, form.axis, share * members), Form::split(form.axis, 1), members, member);
  }
  const Type type = partOf(whole.type(), form, members);
  const Stretches stretches = stretchesOf(type, form);
  std::vector<std::byte> bytes(stretches.rows * stretches.share);
  for (std::size_t row = 0; row < stretches.rows; ++row)
    std::copy_n(whole.bytes().data() +
                    (row * static_cast<std::size_t>(members) + static_cast<std::size_t>(member)) * stretches.share,
                stretches.share, bytes.data() + row * stretches.share);
  return {type, bytes};
}

Tensor pdc::composed(const std::vector<Tensor>& ofMembers, const Form& form) {
  if (form.isPartial()) return combined(ofMembers, form.combine);
  if (!form.isSplit()) return ofMembers.front();
  if (form.padded > 0) return resized(composed(ofMembers, Form::split(form.axis, 1)), form.axis, form.padded);
  const Type& part = ofMembers.front().type();
  const Stretches stretches = stretchesOf(part, form);
  Type whole = part;
  whole.shape[static_cast<std::size_t>(form.axis)] *= static_cast<std::int64_t>(ofMembers.size());
  std::vector<std::byte> bytes(stretches.rows * stretches.share * ofMembers.size());
  for (std::size_t row = 0; row < stretches.rows; ++row)
    for (std::size_t m = 0; m < ofMembers.size(); ++m)
      std::copy_n(ofMembers[m].bytes().data() + row * stretches.share, stretches.share,
                  bytes.data() + (row * ofMembers.size() + m) * stretches.share);
  return {whole, bytes};
}
