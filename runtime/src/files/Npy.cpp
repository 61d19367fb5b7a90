// The header of .npy files is a Python dictionary in text: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
#include "pdcrt/Npy.h"

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

namespace pdcrt {
namespace {

struct Descr {
  std::string_view text;
  Element element;
};

constexpr Descr descrs[] = {{"<f8", Element::f64}, {"<f4", Element::f32}, {"<f2", Element::f16},
                            {"<i8", Element::i64}, {"<i4", Element::i32}, {"<i2", Element::i16},
                            {"|i1", Element::i8},  {"<u8", Element::u64}, {"<u4", Element::u32},
                            {"<u2", Element::u16}, {"|u1", Element::u8},  {"|b1", Element::boolean}};

/// What follows `'key':` in the dictionary.
std::optional<std::string_view> valueOf(std::string_view header, std::string_view key) {
  std::string quoted = "'" + std::string(key) + "':";
  std::size_t at = header.find(quoted);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = header.substr(at + quoted.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

/// "(3, 4)", "(3,)" or "()"; every dimension at least 0.
bool parseShape(std::string_view text, std::vector<std::int64_t>& shape) {
  std::size_t end = text.find(')');
  if (text.empty() || text.front() != '(' || end == std::string_view::npos) return false;
  text = text.substr(1, end - 1);
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" ,"), text.size()));
    if (text.empty()) return true;
    std::int64_t dim = 0;
    auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), dim);
    if (problem != std::errc() || dim < 0) return false;
    shape.push_back(dim);
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  }
}

std::optional<std::size_t> byteSize(Element element, std::span<const std::int64_t> shape) {
  std::size_t bytes = bytesOf(element);
  for (std::int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(dim), &bytes)) return std::nullopt;
  return bytes;
}

} // namespace

Status NpyFile::open(const std::string& path) {
  shape_.clear();
  values_ = {};
  if (Status status = file_.open(path); !status) return status;
  std::span<const std::byte> bytes = file_.bytes();
  auto bad = [&](const std::string& why, std::string help = {}) {
    return Status(Exit::badData, path + ": " + why, std::move(help));
  };
  auto byteAt = [&](std::size_t i) { return static_cast<std::size_t>(bytes[i]); };

  if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0)
    return bad("is not a .npy file", "write it with numpy.save");
  std::size_t major = byteAt(6);
  if (major < 1 || major > 3) return bad("has format version " + std::to_string(major) + ", known are 1 to 3");
  std::size_t start = major == 1 ? 10 : 12;
  if (bytes.size() < start) return bad("ends inside its header");
  std::size_t length = byteAt(8) + (byteAt(9) << 8);
  if (major > 1) length += (byteAt(10) << 16) + (byteAt(11) << 24);
  if (length > bytes.size() - start) return bad("ends inside its header");
  std::string_view header(reinterpret_cast<const char*>(bytes.data() + start), length);

  std::optional<std::string_view> descr = valueOf(header, "descr"), order = valueOf(header, "fortran_order"),
                                  shape = valueOf(header, "shape");
  if (!descr || !order || !shape) return bad("has a header without 'descr', 'fortran_order' or 'shape'");
  const Descr* found = nullptr;
  for (const Descr& known : descrs)
    if (descr->size() >= 5 && descr->substr(1, 3) == known.text) found = &known;
  if (!found)
    return bad("has the element type " + std::string(descr->substr(0, descr->find(','))) +
                   ", readable are little-endian f8, f4, f2, i8, i4, i2, i1, u8, u4, u2, u1 and b1",
               "convert it before: np.save('" + path.substr(path.rfind('/') + 1) +
                   "', x.astype(np.float32)), or np.int64 for labels and indices");
  if (!order->starts_with("False"))
    return bad("is in Fortran order",
               "write it as np.save('" + path.substr(path.rfind('/') + 1) + "', np.ascontiguousarray(x))");
  if (!parseShape(*shape, shape_)) return bad("has no readable shape in its header");

  element_ = found->element;
  std::optional<std::size_t> need = byteSize(element_, shape_);
  std::size_t have = bytes.size() - start - length;
  if (!need || have < *need)
    return bad("holds " + std::to_string(have) + " bytes of values, its shape " + toString(shape_) + " needs " +
               (need ? std::to_string(*need) : std::string("more than can be addressed")));
  values_ = bytes.subspan(start + length, *need);
  return {};
}

Status writeNpy(const std::string& path, Element element, std::span<const std::int64_t> shape,
                std::span<const std::byte> values) {
  const Descr* found = nullptr;
  for (const Descr& known : descrs)
    if (known.element == element) found = &known;
  if (!found) return {Exit::cannotWrite, path + ": .npy has no such element type"};
  if (byteSize(element, shape) != values.size())
    return {Exit::cannotWrite, path + ": shape " + toString(shape) + " does not fit " + std::to_string(values.size()) +
                                   " bytes of values"};
  std::string dims;
  for (std::int64_t dim : shape) dims += std::to_string(dim) + ", ";
  if (shape.size() > 1) dims.resize(dims.size() - 2);
  std::string text = "{'descr': '" + std::string(found->text) + "', 'fortran_order': False, 'shape': (" + dims + "), }";
  constexpr std::size_t fixed = 10;
  std::size_t length = (fixed + text.size() + 1 + 63) / 64 * 64 - fixed; // values start at a multiple of 64
  if (length > 0xFFFF) return {Exit::cannotWrite, path + ": has too many dimensions"};
  text.resize(length - 1, ' ');
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(length & 0xFF);
  header += static_cast<char>(length >> 8);
  header += text + '\n';
  std::span<const std::byte> parts[] = {std::as_bytes(std::span(header)), values};
  return writeAtomically(path, parts);
}

std::string toString(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

} // namespace pdcrt
