// See LinearAlgorithms.h.
#include "Kernels/LinearAlgorithms.h"

#include "Kernels/NamedAlgorithms.h"

using namespace pdc;
using namespace pdc::ops;

namespace {

const std::vector<std::string> linearMethods = {"forward", "inputGradient", "weightGradient"};
constexpr AlgorithmMember<pdcrt::Linear> linearMembers[] = {&pdcrt::Linear::Algorithms::forward,
                                                            &pdcrt::Linear::Algorithms::inputGradient,
                                                            &pdcrt::Linear::Algorithms::weightGradient};

} // namespace

AttributeDef pdc::ops::linearAlgorithms() {
  return namedAlgorithms<pdcrt::Linear>(
      std::size(linearMembers), {"first", "third", "secondWithSums"},
      "of forward, input gradient and weight gradient: automatic, or pdcrt::Linear's name "
      "of one (of 16 bits, for CUDA)");
}

std::optional<pdcrt::Linear::Algorithms> pdc::ops::linearAlgorithmsOf(const Attributes& attributes) {
  return algorithmsNamed<pdcrt::Linear>(attributes, linearMembers);
}

KernelAlternatives pdc::ops::linearAlternatives(pdcrt::Linear::Options options, const std::string& method,
                                                Target target) {
  options.algorithms = {};
  std::vector<std::string> algorithms;
  if (target == Target::cuda && pdcrt::Linear::hasChoice(options)) {
    // How many the library has for these sizes, a device says when it is there.
    const auto begin = std::begin(pdcrt::Linear::algorithmNames) + 1,
               sums = std::begin(pdcrt::Linear::algorithmNames) +
                      static_cast<int>(pdcrt::Linear::Algorithm::firstWithSums);
    algorithms.assign(begin,
                      method == linearMethods.back() && options.bias ? std::end(pdcrt::Linear::algorithmNames) : sums);
  } else {
    algorithms = {pdcrt::Linear::algorithmNames[0]};
  }
  return {.kernel = pdcrt::Linear::profileName(options),
          .method = method,
          .methods = linearMethods,
          .algorithms = algorithms,
          .calls = nullptr}; // CPUs have nothing to choose
}
