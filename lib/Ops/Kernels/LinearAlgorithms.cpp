// See LinearAlgorithms.h.
#include "Kernels/LinearAlgorithms.h"

#include "Kernels/NamedAlgorithms.h"

using namespace pdc;
using namespace pdc::ops;
using pdcrt::Linear;

namespace {

const std::vector<std::string> methods = {"forward", "inputGradient", "weightGradient"};
constexpr AlgorithmMember<Linear> members[] = {&Linear::Algorithms::forward, &Linear::Algorithms::inputGradient,
                                               &Linear::Algorithms::weightGradient};

} // namespace

AttributeDef pdc::ops::linearAlgorithms() {
  return namedAlgorithms<Linear>(std::size(members), {"first", "third", "secondWithSums"},
                                 "of forward, input gradient and weight gradient: automatic, or pdcrt::Linear's name "
                                 "of one (of 16 bits, for CUDA)");
}

std::optional<Linear::Algorithms> pdc::ops::linearAlgorithmsOf(const Attributes& attributes) {
  return algorithmsNamed<Linear>(attributes, members);
}

KernelAlternatives pdc::ops::linearAlternatives(Linear::Options options, const std::string& method, Target target) {
  options.algorithms = {};
  std::vector<std::string> algorithms;
  if (target == Target::cuda && Linear::hasChoice(options)) {
    // How many the library has for these sizes, a device says when it is there.
    const auto begin = std::begin(Linear::algorithmNames) + 1,
               sums = std::begin(Linear::algorithmNames) + static_cast<int>(Linear::Algorithm::firstWithSums);
    algorithms.assign(begin, method == methods.back() && options.bias ? std::end(Linear::algorithmNames) : sums);
  } else {
    algorithms = {Linear::algorithmNames[0]};
  }
  return {.kernel = Linear::profileName(options),
          .method = method,
          .methods = methods,
          .algorithms = algorithms,
          .calls = nullptr}; // CPUs have nothing to choose
}
