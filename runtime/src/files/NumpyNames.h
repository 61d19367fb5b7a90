// What advice about data files calls things.
#pragma once

#include "pdcrt/View.h"

#include <string>

namespace pdcrt {

/// The type's name in NumPy; of bf16, which NumPy lacks, that of the type to write instead.
inline const char* numpyNameOf(Element element) {
  constexpr const char* names[] = {"float64", "float32", "float16", "float32", "int64", "int32", "int16",
                                   "int8",    "uint64",  "uint32",  "uint16",  "uint8", "bool_"};
  return names[static_cast<std::size_t>(element)];
}

/// The file's name without its folders.
inline std::string lastPart(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

} // namespace pdcrt
