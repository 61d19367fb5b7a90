// Types of values: element type, static shape, layout.
#pragma once

#include "pdcrt/View.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pdc {

using ElementType = pdcrt::Element;

/// "f32". Text of parse and print.
const char* nameOf(ElementType element);
/// Reads what nameOf prints; false when there is no such type.
bool elementTypeFromName(const std::string& name, ElementType& element);
bool isFloat(ElementType element);
/// f16 and bf16.
bool isLowPrecision(ElementType element);

/// Dimensions, slowest first.
using Shape = std::vector<std::int64_t>;

/// Product of the dimensions, or -1 when it does not fit into 63 bits.
std::int64_t elementsOf(const Shape& shape);
/// "[2, 3]".
std::string toString(const Shape& shape);

/// How elements lie in memory.
struct Layout {
  std::uint16_t id = 0;
  friend bool operator==(const Layout&, const Layout&) = default;
};
/// Row-major.
inline constexpr Layout plain{};
/// Of [N, C, H, W] with C a multiple of `channelBlock`: row-major [N, C / channelBlock, H, W, channelBlock]. This is
/// what convolutions compute on.
inline constexpr Layout channelsInBlocks{1};
/// Of a filter [O, I, H, W] with O and I multiples of `channelBlock`: row-major
/// [O / channelBlock, I / channelBlock, H, W, channelBlock of I, channelBlock of O], oneDNN's OIhw16i16o
/// (pdcrt/FilterBlocks.h). This is what most of the CPU's convolutions compute with.
inline constexpr Layout filterInBlocks{2};
inline constexpr std::int64_t channelBlock = 16;
/// As `channelsInBlocks`, with all channels in one block: [N, 1, H, W, C]. This is what tensor cores compute on.
inline constexpr Layout channelsLast{3};

struct Type {
  ElementType element = ElementType::f32;
  Shape shape;
  Layout layout = plain;

  std::int64_t elements() const { return elementsOf(shape); }
  /// Bytes that a value occupies, padding of its layout included. Ask this; do not multiply dimensions.
  std::int64_t bytes() const;
  int rank() const { return static_cast<int>(shape.size()); }
  friend bool operator==(const Type&, const Type&) = default;
};

/// "f32[2, 3]".
std::string toString(const Type& type);

/// How many channels lie together in memory, of one position; 1 in plain layout.
std::int64_t lanesOf(const Type& type);
/// Whether `type` can have the layouts `channelsInBlocks` and `channelsLast`, and they would be others than `plain`.
bool fitsChannelBlocks(const Type& type);
/// Whether `type` has the same bytes in both layouts: planes of one position.
bool isInEitherLayout(const Type& type);
/// Whether `type` can have the layout `filterInBlocks`.
bool fitsFilterBlocks(const Type& type);
/// The row-major shape that the bytes of a value have: five dimensions for channels in blocks or last, six for
/// filters in blocks.
Shape memoryShape(const Type& type);

} // namespace pdc
