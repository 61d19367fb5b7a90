// See ConvolutionAlgorithms.h.
#include "Kernels/ConvolutionAlgorithms.h"

#include "Kernels/NamedAlgorithms.h"

#include <array>
#include <memory>

using namespace pdc;

namespace {

const std::vector<std::string> convolutionMethods = {"forward", "inputGradient", "weightGradient"};
/// As the enumeration has them.
const std::vector<std::string> convolutionNames(std::begin(pdcrt::Conv2d::algorithmNames),
                                                std::end(pdcrt::Conv2d::algorithmNames));
constexpr pdc::ops::AlgorithmMember<pdcrt::Conv2d> convolutionMembers[] = {&pdcrt::Conv2d::Algorithms::forward,
                                                                           &pdcrt::Conv2d::Algorithms::inputGradient,
                                                                           &pdcrt::Conv2d::Algorithms::weightGradient};

/// Aligned as the arena of a program is.
struct alignas(64) Line {
  std::array<float, 16> values;
};

/// Values of both signs that are neither denormal nor all equal.
std::vector<Line> linesOf(std::size_t bytes) {
  std::vector<Line> lines(bytes / sizeof(Line) + 1);
  float value = -1;
  for (Line& line : lines)
    for (float& element : line.values) element = value = value > 1 ? -1 : value + 0.0123f;
  return lines;
}

float* startOf(std::vector<Line>& lines) {
  return lines.front().values.data();
}

/// What the calls of one method share.
struct Memory {
  std::vector<Line> x, w, y, workspace;
};

void call(const pdcrt::Conv2d& kernel, std::size_t method, Memory& memory) {
  pdcrt::Stream q(reinterpret_cast<std::byte*>(memory.workspace.data()), memory.workspace.size() * sizeof(Line));
  float *x = startOf(memory.x), *w = startOf(memory.w), *y = startOf(memory.y);
  switch (method) {
  case 0: return kernel.forward(q, x, w, {}, y);
  case 1: return kernel.inputGradient(q, y, w, x);
  default: return kernel.weightGradient(q, x, y, w, {});
  }
}

std::vector<std::function<void()>> callsOf(pdcrt::Conv2d::Options options, std::size_t method,
                                           const std::vector<std::string>& algorithms) {
  const auto linesFor = [](const pdcrt::Shape& shape) {
    return linesOf(static_cast<std::size_t>(shape.elements()) * sizeof(float));
  };
  const auto memory = std::make_shared<Memory>(
      Memory{linesFor(options.input), linesFor(options.filter), linesFor(pdcrt::Conv2d::outputShape(options)), {}});
  pdcrt::Setup setup;
  std::vector<std::function<void()>> calls;
  for (const std::string& name : algorithms) {
    const auto place = std::find(convolutionNames.begin(), convolutionNames.end(), name) - convolutionNames.begin();
    options.algorithms = {pdcrt::Conv2d::Algorithm::direct, pdcrt::Conv2d::Algorithm::direct,
                          pdcrt::Conv2d::Algorithm::direct};
    options.algorithms.*convolutionMembers[method] = static_cast<pdcrt::Conv2d::Algorithm>(place);
    const auto kernel = std::make_shared<pdcrt::Conv2d>(setup, options);
    calls.push_back([memory, kernel, method] { call(*kernel, method, *memory); });
  }
  memory->workspace = linesOf(setup.workspaceBytes());
  return calls;
}

} // namespace

AttributeDef pdc::ops::convolutionAlgorithms() {
  return namedAlgorithms<pdcrt::Conv2d>(
      std::size(convolutionMembers), {"winograd", "winograd", "direct"},
      "of forward, input gradient and weight gradient: automatic, or pdcrt::Conv2d's name of one");
}

std::optional<pdcrt::Conv2d::Algorithms> pdc::ops::convolutionAlgorithmsOf(const Attributes& attributes) {
  std::optional<pdcrt::Conv2d::Algorithms> algorithms = algorithmsNamed<pdcrt::Conv2d>(attributes, convolutionMembers);
  if (algorithms) algorithms->workspace = attributes.getInt("workspace");
  return algorithms;
}

namespace {

/// Those of cuDNN that have this direction and these sizes; which of them a device has, it says when it is there.
std::vector<std::string> algorithmsOfCuda(const pdcrt::Conv2d::Options& options, std::size_t method) {
  std::vector<std::string> algorithms = {"implicitGemm", "fft", "tiledFft", "winogradApart", "channelsLast"};
  if (method == 0) algorithms.insert(algorithms.begin() + 1, {"precomputedGemm", "gemm"});
  if (method != 2 && pdcrt::Conv2d::takesWinograd(options)) algorithms.push_back("winograd");
  return algorithms;
}

/// The workspace of the library's Winograd holds 36·I·O floats of filters, whatever the maps are, and 36·(I + O) per
/// tile of 4×4 outputs; for the filters' gradient the former twice. On small maps that is mostly filters, and more than
/// a network has to spare where most is kept: 95 MiB for the weight gradient of 8×512×7×7, beside 11 MiB that such a
/// convolution reads and writes. (Ours takes large filters in portions.)
bool isMostlyFilters(const pdcrt::Conv2d::Options& options) {
  const pdcrt::Shape y = pdcrt::Conv2d::outputShape(options);
  const std::int64_t tiles = y.dims[0] * ((y.dims[2] + 3) / 4) * ((y.dims[3] + 3) / 4);
  return 4 * tiles * (options.filter.dims[0] + options.filter.dims[1]) <
         options.filter.dims[0] * options.filter.dims[1];
}

} // namespace

AttributeDef pdc::ops::convolutionWorkspace() {
  return integer("workspace", 0, "bytes that the algorithms take, where they were measured on a GPU");
}

KernelAlternatives pdc::ops::convolutionAlternatives(pdcrt::Conv2d::Options options, const std::string& method,
                                                     Target target) {
  options.bias = false;
  options.algorithms = {};
  const auto place = static_cast<std::size_t>(std::find(convolutionMethods.begin(), convolutionMethods.end(), method) -
                                              convolutionMethods.begin());
  std::vector<std::string> algorithms = {"direct"};
  if (pdcrt::Conv2d::takesWinograd(options) && !(method == "weightGradient" && isMostlyFilters(options)))
    algorithms.push_back("winograd");
  if (method == "inputGradient" ? pdcrt::Conv2d::takesTilesBackward(options) : pdcrt::Conv2d::takesTiles(options))
    algorithms.push_back("tiled");
  if (pdcrt::Conv2d::takesTiledWinograd(options)) algorithms.push_back("tiledWinograd");
  if (target == Target::cuda) algorithms = algorithmsOfCuda(options, place);
  return {.kernel = pdcrt::Conv2d::profileName(options),
          .method = method,
          .methods = convolutionMethods,
          .algorithms = algorithms,
          .calls = [options, place, algorithms] { return callsOf(options, place, algorithms); }};
}
