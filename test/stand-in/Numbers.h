// What the stand-ins for cuBLASLt and cuDNN share: numbers of several types, and workspace that is overwritten.
#pragma once

#include "Streams.h"
#include "pdcrt/LowPrecision.h"

#include <cublasLt.h>
#include <cudnn.h>

#include <cstdint>
#include <cstring>

namespace stand_in {

/// Libraries leave anything there.
inline void scribble(void* workspace, std::size_t bytes) {
  if (bytes > 0 && !workspace) misuse("no workspace");
  std::memset(workspace, 0xCD, bytes);
}

inline constexpr std::size_t usedWorkspace = 4096; ///< by every call

/// To the 10 bits of mantissa that TF32 has.
inline float roundedToTf32(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x1000u) & ~0x1FFFu;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

/// Numbers in memory, of 32 or of 16 bits. Both libraries name their types so. Of tf32 are operands that tensor cores
/// round when they read them.
struct Numbers {
  enum class Kind { f32, tf32, f16, bf16 };
  Kind kind;
  void* data;

  double operator[](std::int64_t i) const {
    switch (kind) {
    case Kind::f32: return static_cast<const float*>(data)[i];
    case Kind::tf32: return roundedToTf32(static_cast<const float*>(data)[i]);
    case Kind::f16: return static_cast<const pdcrt::float16*>(data)[i];
    case Kind::bf16: return static_cast<const pdcrt::bfloat16*>(data)[i];
    }
    return 0;
  }
  void set(std::int64_t i, double value) const {
    const auto rounded = static_cast<float>(value); // sums are in f32
    switch (kind) {
    case Kind::f32:
    case Kind::tf32: static_cast<float*>(data)[i] = rounded; break;
    case Kind::f16: static_cast<pdcrt::float16*>(data)[i] = pdcrt::float16(rounded); break;
    case Kind::bf16: static_cast<pdcrt::bfloat16*>(data)[i] = pdcrt::bfloat16(rounded); break;
    }
  }
};

inline Numbers::Kind kindOf(cudaDataType_t type) {
  return type == CUDA_R_16F ? Numbers::Kind::f16 : type == CUDA_R_16BF ? Numbers::Kind::bf16 : Numbers::Kind::f32;
}
inline Numbers::Kind kindOf(cudnnDataType_t type) {
  return type == CUDNN_DATA_HALF       ? Numbers::Kind::f16
         : type == CUDNN_DATA_BFLOAT16 ? Numbers::Kind::bf16
                                       : Numbers::Kind::f32;
}
inline Numbers rounding(Numbers numbers, bool tf32) {
  if (tf32 && numbers.kind == Numbers::Kind::f32) numbers.kind = Numbers::Kind::tf32;
  return numbers;
}
template <class Type>
Numbers numbers(Type type, const void* data) {
  return {kindOf(type), const_cast<void*>(data)};
}

} // namespace stand_in
