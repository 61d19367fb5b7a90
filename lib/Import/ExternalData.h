// The one place where files that a model names are opened.
//
// A model may come from anywhere, so a name in it must not reach outside the model's folder: it is resolved beneath
// that folder, without symbolic links, to a regular file with one link. Only where the model itself is a symbolic link,
// its data may be one, too: to a file beside the one that the model is a link to.
#pragma once

#include "pdc/Import/OnnxImport.h"
#include "pdc/Support/Diagnostics.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace pdc {

class ExternalData {
public:
  /// For the model at `modelPath`.
  explicit ExternalData(const std::string& modelPath);
  ~ExternalData();
  ExternalData(const ExternalData&) = delete;
  ExternalData& operator=(const ExternalData&) = delete;

  struct Range {
    std::string file; ///< its path, as the model's path and the location in it say
    std::int64_t offset = 0;
    std::int64_t length = 0;
  };
  /// Whether there is no file that the model calls `location`. Any other trouble with it is no lack.
  bool lacks(const std::string& location) const;
  /// Checks that `length` bytes from `offset` exist in the file that the model calls `location`. Errors are reported at
  /// `where`.
  Expected<Range> locate(const std::string& location, std::int64_t offset, std::int64_t length, const Location& where,
                         Diagnostics& diags);
  /// The bytes of a range that `locate` returned.
  Expected<std::vector<std::byte>> read(const std::string& location, const Range& range, const Location& where,
                                        Diagnostics& diags);

private:
  struct File;
  Expected<const File*> open(const std::string& location, const Location& where, Diagnostics& diags);

  std::string model_;  ///< its path
  std::string folder_; ///< of the model, with its final slash; empty: the current one
  std::map<std::string, std::unique_ptr<File>> files_;
};

} // namespace pdc
