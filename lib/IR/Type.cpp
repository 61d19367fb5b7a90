// Types of values: names, sizes, text.
#include "pdc/IR/Type.h"

#include <array>
#include <limits>

using namespace pdc;

namespace {
struct NamedElement {
  ElementType element;
  const char* name;
};
constexpr std::array<NamedElement, 13> elementNames = {{{ElementType::f64, "f64"},
                                                        {ElementType::f32, "f32"},
                                                        {ElementType::f16, "f16"},
                                                        {ElementType::bf16, "bf16"},
                                                        {ElementType::i64, "i64"},
                                                        {ElementType::i32, "i32"},
                                                        {ElementType::i16, "i16"},
                                                        {ElementType::i8, "i8"},
                                                        {ElementType::u64, "u64"},
                                                        {ElementType::u32, "u32"},
                                                        {ElementType::u16, "u16"},
                                                        {ElementType::u8, "u8"},
                                                        {ElementType::boolean, "bool"}}};
} // namespace

const char* pdc::nameOf(ElementType element) {
  for (const NamedElement& entry : elementNames)
    if (entry.element == element) return entry.name;
  return "";
}

bool pdc::elementTypeFromName(const std::string& name, ElementType& element) {
  for (const NamedElement& entry : elementNames)
    if (name == entry.name) {
      element = entry.element;
      return true;
    }
  return false;
}

bool pdc::isLowPrecision(ElementType element) {
  return element == ElementType::f16 || element == ElementType::bf16;
}

bool pdc::isFloat(ElementType element) {
  return element == ElementType::f64 || element == ElementType::f32 || element == ElementType::f16 ||
         element == ElementType::bf16;
}

std::int64_t pdc::elementsOf(const Shape& shape) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::int64_t product = 1;
  bool overflow = false;
  for (std::int64_t dim : shape) {
    if (dim < 0) return -1;
    // An empty tensor is empty whatever its other dimensions are, so the product goes on after an overflow.
    if (dim == 0) return 0;
    if (product > most / dim)
      overflow = true;
    else
      product *= dim;
  }
  return overflow ? -1 : product;
}

std::string pdc::toString(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::int64_t Type::bytes() const {
  const std::int64_t count = elements(), size = static_cast<std::int64_t>(pdcrt::bytesOf(element));
  if (count < 0 || count > std::numeric_limits<std::int64_t>::max() / size) return -1;
  return count * size;
}

static bool hasWholeBlocks(const Type& type) {
  return type.rank() == 4 && type.shape[1] > 0 && type.shape[1] % channelBlock == 0;
}

bool pdc::fitsChannelBlocks(const Type& type) {
  return hasWholeBlocks(type) && type.shape[2] * type.shape[3] > 1;
}

bool pdc::isInEitherLayout(const Type& type) {
  return hasWholeBlocks(type) && type.shape[2] * type.shape[3] == 1;
}

bool pdc::fitsFilterBlocks(const Type& type) {
  return hasWholeBlocks(type) && type.element == ElementType::f32 && type.shape[0] > 0 &&
         type.shape[0] % channelBlock == 0;
}

std::int64_t pdc::lanesOf(const Type& type) {
  return type.layout == channelsInBlocks ? channelBlock : type.layout == channelsLast ? type.shape[1] : 1;
}

Shape pdc::memoryShape(const Type& type) {
  const Shape& s = type.shape;
  if (type.layout == filterInBlocks)
    return {s[0] / channelBlock, s[1] / channelBlock, s[2], s[3], channelBlock, channelBlock};
  const std::int64_t lanes = lanesOf(type);
  if (lanes == 1) return s;
  return {s[0], s[1] / lanes, s[2], s[3], lanes};
}

std::string pdc::toString(const Type& type) {
  std::string text = nameOf(type.element) + toString(type.shape);
  if (type.layout != plain) text += "@" + std::to_string(type.layout.id);
  return text;
}
