// How cuDNN computes a convolution: what it is told of the shapes, and the algorithms of each of its three results.
#pragma once

#include "Libraries.h"
#include "pdcrt/kernels/Conv2d.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace pdcrt::cuda {

enum class Method { forward, inputGradient, weightGradient };
inline constexpr Method methods[] = {Method::forward, Method::inputGradient, Method::weightGradient};

/// As profiles call the method of Conv2d.
inline const char* nameOf(Method method) {
  constexpr const char* names[] = {"forward", "inputGradient", "weightGradient"};
  return names[static_cast<int>(method)];
}
/// The algorithm that is asked for.
inline Conv2d::Algorithm& algorithmOf(Conv2d::Algorithms& algorithms, Method method) {
  return method == Method::forward         ? algorithms.forward
         : method == Method::inputGradient ? algorithms.inputGradient
                                           : algorithms.weightGradient;
}

/// One way to compute the result of a method.
struct Way {
  int number = 0;            ///< in the library's enumeration of the method's algorithms
  std::size_t bytes = 0;     ///< of workspace, with the copies of what has channels last
  bool channelsLast = false; ///< the library works on such copies
};

/// The convolution in one layout. Where both sides of the input are padded by different numbers it is padded already.
class LibraryConvolution {
public:
  LibraryConvolution(const Conv2d::Options& options, cudnnTensorFormat_t format);
  ~LibraryConvolution();
  LibraryConvolution(const LibraryConvolution&) = delete;
  LibraryConvolution& operator=(const LibraryConvolution&) = delete;

  /// Operands are not rounded, whatever was allowed.
  void computeExactly();
  /// What gives the same bits in every run, what the library expects to be the fastest first.
  std::vector<Way> recommended(Method method) const;
  /// Workspace of an algorithm; nothing where the library does not have it for these shapes.
  std::optional<std::size_t> bytesOf(Method method, int number) const;

  /// Forward: x, w, y. Input gradient: w, dy, dx. Weight gradient: x, dy, dw. `adds`: to what is in the result.
  void run(Stream& q, Method method, int number, const void* first, const void* second, bool adds, void* result,
           std::byte* workspace, std::size_t bytes) const;
  /// Forward with a bias, and what is negative made 0 if so asked, in one pass. False: the library does not have it for
  /// this algorithm and these shapes, and nothing was done.
  bool runFinished(Stream& q, int number, const void* x, const void* w, const void* bias, bool relu, void* y,
                   std::byte* workspace, std::size_t bytes) const;

private:
  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t x_ = nullptr, y_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
  cudnnTensorDescriptor_t bias_ = nullptr;
  cudnnActivationDescriptor_t identity_ = nullptr, relu_ = nullptr;
};

/// Its number in the library's enumeration; nothing where the method has none such, or not for these sizes.
std::optional<int> numberOf(const Conv2d::Options& options, Method method, Conv2d::Algorithm algorithm);
/// What always exists, and gives the same bits in every run.
int standardNumber(Method method);

struct Possible {
  Conv2d::Algorithm algorithm;
  std::size_t bytes; ///< of workspace, to be planned for it; not 0
};
/// The algorithms that compute its result on this device with the same bits in every run, within the workspace that
/// is planned where nothing was measured.
std::vector<Possible> algorithmsFor(const Conv2d::Options& options, Method method);

/// Those of the fastest algorithms among `times`, to which it adds what all of them take if it does not say so
/// yet. Where there is no memory to try them, nothing is added, and the library's recommendation holds.
Conv2d::Algorithms fastest(const Conv2d::Options& options, std::vector<KernelTime>& times);

} // namespace pdcrt::cuda
