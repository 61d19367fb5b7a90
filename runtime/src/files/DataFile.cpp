#include "pdcrt/DataFile.h"

#include "NumpyNames.h"

#include <algorithm>
#include <filesystem>

namespace pdcrt {
namespace {

bool isPortable(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}

bool isFloatingPoint(Element element) {
  return element == Element::f64 || element == Element::f32;
}

bool isSigned(Element element) {
  return element == Element::i64 || element == Element::i32 || element == Element::i16 || element == Element::i8;
}

std::int64_t elementsOf(std::span<const std::int64_t> shape, int without = -1) {
  std::int64_t elements = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (static_cast<int>(axis) != without) elements *= shape[axis];
  return elements;
}

} // namespace

std::string dataFileName(const std::string& input) {
  constexpr std::size_t longest = 200; // file systems allow 255 bytes, with an ending
  std::string name;
  for (char c : input.substr(0, longest)) name += isPortable(c) ? c : '_';
  if (name.empty() || name[0] == '.' || name[0] == '-') name.insert(0, "_");
  return name;
}

std::string dataFile(const std::string& folder, const std::string& input, const char* ending) {
  const std::string path = folder + "/" + dataFileName(input) + ending;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  std::string kept = input;
  std::replace(kept.begin(), kept.end(), '/', '_');
  const std::string other = folder + "/" + kept + ending;
  return std::filesystem::exists(other, ignored) ? other : path;
}

bool converts(Element from, Element to) {
  if (from == to) return true;
  if (from == Element::f16 || from == Element::bf16 || to == Element::f16 || to == Element::bf16) return false;
  if (isFloatingPoint(from)) return isFloatingPoint(to);
  if (isFloatingPoint(to)) return true;
  return bytesOf(from) < bytesOf(to) && (isSigned(to) || !isSigned(from));
}

std::string astypeHelp(const std::string& path, Element wanted) {
  return "write it as np.save('" + lastPart(path) + "', x.astype(np." + numpyNameOf(wanted) + "))";
}

std::string reshapeHelp(const std::string& path, std::span<const std::int64_t> found,
                        std::span<const std::int64_t> wanted, int samplesAxis) {
  const std::int64_t has = elementsOf(found), each = elementsOf(wanted, samplesAxis);
  // Samples that come first stay whole, others might be mixed.
  const bool sameSamples =
      samplesAxis < 0 || (samplesAxis == 0 && (found.empty() || each == 0 || has / each == found[0]));
  if (has > 0 && each > 0 && (samplesAxis < 0 ? has == each : has % each == 0) && sameSamples) {
    std::string shape;
    for (std::size_t axis = 0; axis < wanted.size(); ++axis)
      shape += (axis > 0 ? ", " : "") + (static_cast<int>(axis) == samplesAxis ? "-1" : std::to_string(wanted[axis]));
    return "write it as np.save('" + lastPart(path) + "', x.reshape(" + shape + "))";
  }
  return "a sample of " + std::to_string(each) + " numbers does not make one of " +
         std::to_string(found.empty() || found[0] == 0 ? 0 : has / found[0]) +
         ": look at the data, or compile for this shape (--dim NAME=V)";
}

} // namespace pdcrt
