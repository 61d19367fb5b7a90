#include "TokenStream.h"

#include "NumpyNames.h"
#include "pdcrt/DataFile.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

namespace pdcrt {
namespace {

struct TokenType {
  const char* name;
  Element element;
};
constexpr TokenType tokenTypes[] = {{"uint8", Element::u8}, {"uint16", Element::u16}, {"uint32", Element::u32}};

bool isInteger(Element element) {
  return element != Element::f64 && element != Element::f32 && element != Element::f16 && element != Element::bf16 &&
         element != Element::boolean;
}

template <class T>
T tokenAt(std::span<const std::byte> values, std::int64_t i) {
  T value;
  std::memcpy(&value, values.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

/// The place of the first token that is not in 0 … choices - 1, or -1.
template <class T>
std::int64_t firstOutside(std::span<const std::byte> values, std::int64_t first, std::int64_t count,
                          std::int64_t choices) {
  for (std::int64_t i = first; i < first + count; ++i) {
    const auto token = static_cast<std::int64_t>(tokenAt<T>(values, i)); // a u64 that wraps is negative
    if (token < 0 || token >= choices) return i;
  }
  return -1;
}

/// Whether u16 tokens are more likely the halves of u32 tokens.
bool looksLikeWiderTokens(std::span<const std::byte> values, std::int64_t tokens) {
  constexpr std::int64_t most = 4096, fewest = 64;
  const std::int64_t looked = std::min(tokens, most);
  for (std::int64_t i = 1; i < looked; i += 2)
    if (tokenAt<std::uint16_t>(values, i) != 0) return false;
  return looked >= fewest;
}

/// Calls `action` with a value of the C++ type of a token.
template <class Action>
std::int64_t withTokenType(Element element, Action action) {
  switch (element) {
  case Element::i64: return action(std::int64_t());
  case Element::i32: return action(std::int32_t());
  case Element::i16: return action(std::int16_t());
  case Element::i8: return action(std::int8_t());
  case Element::u64: return action(std::uint64_t());
  case Element::u32: return action(std::uint32_t());
  case Element::u16: return action(std::uint16_t());
  default: return action(std::uint8_t());
  }
}

} // namespace

std::optional<Element> tokenTypeOf(const std::string& text) {
  for (const TokenType& type : tokenTypes)
    if (text == type.name) return type.element;
  return std::nullopt;
}

bool isTokenStream(const std::string& path) {
  std::error_code ignored;
  if (path == "synthetic" || std::filesystem::is_directory(path, ignored)) return false;
  return path.ends_with(".bin") || path.ends_with(".npy") || std::filesystem::exists(path, ignored);
}

std::string tokenFilesIn(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".bin") found.push_back(entry.path().string());
  std::sort(found.begin(), found.end());
  std::string text;
  for (const std::string& path : found) text += (text.empty() ? "" : ", ") + path;
  return text;
}

Status TokenStream::open(const std::string& path, std::optional<Element> type) {
  path_ = path;
  return path.ends_with(".npy") ? openArray(type) : openRaw(type);
}

Status TokenStream::openRaw(std::optional<Element> type) {
  if (!type && !path_.ends_with(".bin"))
    return {
        Exit::badData, path_ + ": its name does not tell the type of its tokens",
        "say it with --tokens=uint8, uint16 or uint32 (uint8: the bytes of a text), or give a folder of .npy files"};
  element_ = type.value_or(Element::u16);
  if (Status status = raw_.open(path_); !status) return status;
  values_ = raw_.bytes();
  const std::size_t each = bytesOf(element_);
  if (values_.size() % each != 0)
    return {Exit::badData,
            path_ + ": has " + std::to_string(values_.size()) + " bytes, which is not a whole number of " +
                numpyNameOf(element_) + " tokens of " + std::to_string(each) + " bytes",
            std::string("name its type with --tokens=uint8, uint16 or uint32, or write it as "
                        "x.astype(np.") +
                numpyNameOf(element_) + ").tofile('" + lastPart(path_) + "')"};
  tokens_ = static_cast<std::int64_t>(values_.size() / each);
  if (!type && looksLikeWiderTokens(values_, tokens_))
    return {Exit::badData, path_ + ": every second token is 0, as where uint32 tokens are read as uint16",
            "name the type with --tokens=uint32; if it is uint16 indeed, with --tokens=uint16"};
  return {};
}

Status TokenStream::openArray(std::optional<Element> type) {
  if (Status status = array_.open(path_); !status) return status;
  element_ = array_.element();
  if (!isInteger(element_))
    return {Exit::badData, path_ + ": holds no integers, tokens are uint16 or uint32",
            astypeHelp(path_, type.value_or(Element::u16))};
  if (array_.shape().size() != 1)
    return {Exit::badData, path_ + ": has the shape " + toString(array_.shape()) + ", a token stream has one dimension",
            "write it as np.save('" + lastPart(path_) +
                "', x.reshape(-1)), or give a folder with one .npy file per input"};
  if (type && *type != element_)
    return {Exit::badData, path_ + ": has tokens of " + numpyNameOf(element_) + ", --tokens says " + numpyNameOf(*type),
            "leave out --tokens: a .npy file names its type"};
  values_ = array_.values();
  tokens_ = array_.shape()[0];
  return {};
}

Status TokenStream::check(std::int64_t first, std::int64_t count, std::int64_t choices) const {
  const std::int64_t place =
      withTokenType(element_, [&](auto type) { return firstOutside<decltype(type)>(values_, first, count, choices); });
  if (place < 0) return {};
  const std::int64_t token = withTokenType(
      element_, [&](auto type) { return static_cast<std::int64_t>(tokenAt<decltype(type)>(values_, place)); });
  std::string help = "tokenise with the model's vocabulary";
  if (isRaw())
    help += std::string("; if the file does not hold ") + numpyNameOf(element_) +
            " tokens, name its type with --tokens=uint8, uint16 or uint32";
  return {Exit::badData,
          path_ + ": token " + std::to_string(place) + " is " + std::to_string(token) + ", the model has " +
              std::to_string(choices) + " rows to choose from",
          help};
}

} // namespace pdcrt
