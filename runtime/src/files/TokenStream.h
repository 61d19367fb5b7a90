// A stream of tokens in one file: raw little-endian integers (nanoGPT's train.bin), or a .npy array of one dimension.
//
// The file is mapped, so a stream may be larger than memory. Window w of length L holds the tokens w·L … w·L + L - 1.
#pragma once

#include "pdcrt/Npy.h"

#include <optional>
#include <string>

namespace pdcrt {

class TokenStream {
public:
  /// Maps `path`. `type` is the type of raw tokens: u8, u16 or u32; without it, that of a .bin file is u16. A .npy file
  /// names its own. Fails with Exit::badData: no known type, one that the tokens contradict, a length that is not a
  /// whole number of tokens, an array of several dimensions or of other elements than integers.
  Status open(const std::string& path, std::optional<Element> type);

  Element element() const { return element_; }
  std::int64_t tokens() const { return tokens_; }
  std::span<const std::byte> values() const { return values_; }
  const std::string& path() const { return path_; }
  /// Fails with Exit::badData where the file has been written to since open().
  Status unchanged() const { return isRaw() ? raw_.unchanged() : array_.unchanged(); }
  /// Whether the file names no type of its own.
  bool isRaw() const { return !raw_.path().empty(); }

  /// Whether the tokens first … first + count - 1 are below `choices`. Fails with Exit::badData, naming the first one
  /// that is not, and the type that the file more likely has.
  Status check(std::int64_t first, std::int64_t count, std::int64_t choices) const;

private:
  Status openRaw(std::optional<Element> type);
  Status openArray(std::optional<Element> type);

  std::string path_;
  MappedFile raw_;
  NpyFile array_;
  Element element_ = Element::u16;
  std::int64_t tokens_ = 0;
  std::span<const std::byte> values_;
};

/// The type that --tokens=TEXT names: uint8, uint16 or uint32. None: another text.
std::optional<Element> tokenTypeOf(const std::string& text);

/// Whether --data=PATH names a token stream: a file of any kind, or a missing one that ends in .bin or .npy.
bool isTokenStream(const std::string& path);

/// "a/train.bin, a/val.bin": the .bin files of a folder, which are no data set of .npy files. Empty: none.
std::string tokenFilesIn(const std::string& folder);

} // namespace pdcrt
