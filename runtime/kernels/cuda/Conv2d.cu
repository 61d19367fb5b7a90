// Conv2d over cuDNN. Algorithms are chosen when the kernel is constructed: those of the options, else what the library
// recommends among those that give the same bits in every run and need no more workspace than was planned. The
// workspace holds, from its beginning, a padded copy of the input where both sides differ, copies with channels last
// where the algorithm wants those, and what the library needs.
#include "pdcrt/kernels/Conv2d.h"

#include "Convolution.h"
#include "ConvolutionOptions.h"
#include "Divider.h"
#include "Product.h"
#include "pdcrt/CudaWorkspace.h"
#include "pdcrt/kernels/Pad.h"
#include "pdcrt/kernels/Reduce.h"
#include "pdcrt/kernels/Transpose.h"

#include <algorithm>

namespace pdcrt {
namespace {

using cuda::Method;
using cuda::Way;

template <class T>
__global__ void addBias(std::int64_t count, cuda::Divider byChannels, cuda::Divider byInner, const T* b, T* y) {
  for (std::int64_t i = thread(); i < count; i += threads())
    y[i] = static_cast<T>(static_cast<float>(y[i]) + static_cast<float>(b[byChannels.remainder(byInner.quotient(i))]));
}

/// The input as cuDNN gets it.
Shape inputOf(const Conv2d::Options& o) {
  return cuda::padsDiffer(o) ? cuda::paddedInput(o) : o.input;
}

/// Copies [N, C, H, W] to [N, H, W, C], and back, at a place in the workspace.
class Copy {
public:
  Copy(const Shape& s, Element element, std::size_t at)
      : bytes_(static_cast<std::size_t>(s.elements()) * (element == Element::f32 ? 4 : 2)), at_(at),
        to_(unused_, {.input = s, .permutation = {0, 2, 3, 1}}),
        from_(unused_, {.input = {s.dims[0], s.dims[2], s.dims[3], s.dims[1]}, .permutation = {0, 3, 1, 2}}) {}
  std::size_t end() const { return at_ + cuda::roundedUp(bytes_); }

  template <class T>
  T* place(std::byte* workspace) const {
    return reinterpret_cast<T*>(workspace + at_);
  }
  template <class T>
  const T* made(Stream& q, const T* plain, std::byte* workspace) const {
    to_.forward(q, View<const T>(plain), View<T>(place<T>(workspace)));
    return place<T>(workspace);
  }
  template <class T>
  void back(Stream& q, std::byte* workspace, T* plain) const {
    from_.forward(q, View<const T>(place<T>(workspace)), View<T>(plain));
  }

private:
  Setup unused_;
  std::size_t bytes_, at_;
  Transpose to_, from_;
};

/// The convolution with channels last, and where its operands are copied to.
struct ChannelsLast {
  cuda::LibraryConvolution library;
  Copy x, w, y;

  explicit ChannelsLast(const Conv2d::Options& o)
      : library(o, CUDNN_TENSOR_NHWC), x(inputOf(o), o.element, 0), w(o.filter, o.element, x.end()),
        y(Conv2d::outputShape(o), o.element, w.end()) {}
  std::size_t copies() const { return y.end(); }
};

/// What can compute a convolution on this device.
struct Choices {
  Conv2d::Options options;
  cuda::LibraryConvolution plain;
  std::unique_ptr<ChannelsLast> last; ///< where it was asked for

  explicit Choices(const Conv2d::Options& o) : options(o), plain(o, CUDNN_TENSOR_NCHW) {
    if (!rounds()) return;
    // The library copies what it rounds. Profiles measure plain f32: there may be no room for the copies.
    if (!std::all_of(std::begin(cuda::methods), std::end(cuda::methods),
                     [&](Method method) { return recommendedOne(method).has_value(); }))
      plain.computeExactly();
  }

  bool rounds() const { return cuda::tf32 && options.element == Element::f32; }
  /// The first of those that the library recommends, or has anyway, that fits into the plan.
  std::optional<Way> recommendedOne(Method method) const;

  /// The algorithm; nothing where it cannot compute, or not with the same bits in every run.
  std::optional<Way> find(Method method, Conv2d::Algorithm algorithm);
  /// That of the options, or a recommended one. Nothing for a method that was not measured where others were.
  std::optional<Way> choose(Method method);
};

std::optional<Way> Choices::find(Method method, Conv2d::Algorithm algorithm) {
  const std::optional<int> number = cuda::numberOf(options, method, algorithm);
  if (!number) return std::nullopt;
  if (algorithm == Conv2d::Algorithm::channelsLast) {
    if (!last) last = std::make_unique<ChannelsLast>(options);
    const std::optional<std::size_t> bytes = last->library.bytesOf(method, *number);
    if (!bytes) return std::nullopt;
    return Way{.number = *number, .bytes = last->copies() + *bytes, .channelsLast = true};
  }
  for (const Way& way : plain.recommended(method))
    if (way.number == *number)
      if (const std::optional<std::size_t> bytes = plain.bytesOf(method, *number)) return Way{*number, *bytes};
  return std::nullopt;
}

std::optional<Way> Choices::recommendedOne(Method method) const {
  std::vector<Way> ways = plain.recommended(method);
  ways.push_back({.number = cuda::standardNumber(method)});
  for (const Way& way : ways)
    if (const std::optional<std::size_t> bytes = plain.bytesOf(method, way.number);
        bytes && *bytes <= cuda::convolutionBytes(options))
      return Way{way.number, *bytes};
  return std::nullopt;
}

std::optional<Way> Choices::choose(Method method) {
  const std::size_t limit = cuda::convolutionBytes(options);
  const Conv2d::Algorithm asked = cuda::algorithmOf(options.algorithms, method);
  if (asked == Conv2d::Algorithm::automatic) {
    const std::optional<Way> way = recommendedOne(method);
    if (way || options.algorithms.workspace > 0) return way;
    refuseConvolution(options, "no algorithm that gives the same bits in every run takes so little workspace");
  }
  const std::string what =
      std::string("'") + cuda::nameOf(method) + "' by " + Conv2d::algorithmNames[static_cast<int>(asked)];
  const std::optional<Way> way = find(method, asked);
  // What was measured without rounding may want more with it, or not exist.
  if (rounds() && (!way || way->bytes > limit))
    if (const std::optional<Way> other = recommendedOne(method)) return other;
  if (!way)
    refuseConvolution(options, "cuDNN does not compute " + what + " on this device; measure on it: pdc-profile");
  if (way->bytes > limit)
    refuseConvolution(options, what + " needs " + std::to_string(way->bytes) +
                                   " bytes of workspace on this device, the program was planned with " +
                                   std::to_string(limit) + "; measure on it: pdc-profile");
  return way;
}

} // namespace

std::vector<cuda::Possible> cuda::algorithmsFor(const Conv2d::Options& o, Method method) {
  Choices choices(o);
  std::vector<Possible> found;
  for (std::size_t i = 0; i < std::size(Conv2d::algorithmNames); ++i) {
    const auto algorithm = static_cast<Conv2d::Algorithm>(i);
    const std::optional<Way> way = choices.find(method, algorithm);
    if (!way || way->bytes > convolutionBytes(o)) continue;
    found.push_back({algorithm, std::max(roundedUp(way->bytes), workspaceAlignment)});
  }
  return found;
}

struct Conv2d::Impl : Choices {
  Shape output;
  std::optional<Way> ways[3];
  std::unique_ptr<Pad> pad; ///< where both sides differ
  std::size_t padded = 0;   ///< bytes of the padded copy
  std::unique_ptr<Reduce> biasGradient;

  explicit Impl(const Options& o) : Choices(o), output(outputShape(o)) {}

  template <class T>
  T* copyOf(Stream& q) const {
    return reinterpret_cast<T*>(cuda::alignedWorkspace(q));
  }
  std::byte* workspace(Stream& q) const { return cuda::alignedWorkspace(q) + padded; }

  /// The input, padded on both sides alike.
  template <class T>
  const T* input(Stream& q, View<const T> from) const {
    if (!pad) return from.data;
    pad->forward(q, from, View<T>(copyOf<T>(q)));
    return copyOf<T>(q);
  }
  template <class T>
  void run(Stream& q, Method method, const T* first, Copy ChannelsLast::*firstCopy, const T* second,
           Copy ChannelsLast::*secondCopy, T* result, Copy ChannelsLast::*resultCopy) const;
};

template <class T>
void Conv2d::Impl::run(Stream& q, Method method, const T* first, Copy ChannelsLast::*firstCopy, const T* second,
                       Copy ChannelsLast::*secondCopy, T* result, Copy ChannelsLast::*resultCopy) const {
  const std::optional<Way>& way = ways[static_cast<int>(method)];
  if (!way) refuseConvolution(options, "the profile has no algorithm for what is called; measure the model again");
  std::byte* const room = workspace(q);
  if (!way->channelsLast) return plain.run(q, method, way->number, first, second, result, room, way->bytes);
  const Copy& made = (*last).*resultCopy;
  last->library.run(q, method, way->number, ((*last).*firstCopy).made(q, first, room),
                    ((*last).*secondCopy).made(q, second, room), made.template place<T>(room), room + last->copies(),
                    way->bytes - last->copies());
  made.back(q, room, result);
}

Conv2d::Conv2d(Setup& setup, const Options& asked) {
  checkConvolution(asked);
  if (asked.inputLanes != 1 || asked.outputLanes != 1 || asked.filterLanes != 1)
    refuseConvolution(asked, "blocks of channels are for the CPU");
  Options o = asked;
  if (setup.times() && o.algorithms == Algorithms{}) o.algorithms = cuda::fastest(o, *setup.times());
  impl_ = std::make_unique<Impl>(o);
  setup.needWorkspace(cuda::workspaceOf(o));
  if (cuda::padsDiffer(o)) {
    impl_->pad = std::make_unique<Pad>(setup, Pad::Options{.input = o.input,
                                                           .before = {0, 0, o.pads.top, o.pads.left},
                                                           .after = {0, 0, o.pads.bottom, o.pads.right}});
    impl_->padded = cuda::roundedUp(cuda::bytesOfFloats(cuda::paddedInput(o).elements()));
  }
  if (o.bias)
    impl_->biasGradient = std::make_unique<Reduce>(setup, Reduce::Options{.input = outputShape(o), .axes = {0, 2, 3}});
  for (Method method : cuda::methods) impl_->ways[static_cast<int>(method)] = impl_->choose(method);
}

Conv2d::~Conv2d() = default;
Conv2d::Conv2d(Conv2d&&) noexcept = default;
Conv2d& Conv2d::operator=(Conv2d&&) noexcept = default;

template <class T>
void Conv2d::forward(Stream& q, OperandView<T> x, OperandView<T> w, OperandView<T> b, View<T> y) const {
  const Impl& i = *impl_;
  i.run<T>(q, Method::forward, i.input<T>(q, x), &ChannelsLast::x, w.data, &ChannelsLast::w, y.data, &ChannelsLast::y);
  if (!i.options.bias) return;
  const std::int64_t count = i.output.elements();
  launchLoop(q, "convolution, bias", addBias<T>, count, count, cuda::Divider(i.output.dims[1], count),
             cuda::Divider(i.output.dims[2] * i.output.dims[3], count), b.data, y.data);
}
void Conv2d::forward(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> y) const {
  forward<float>(q, x, w, b, y);
}

template <class T>
void Conv2d::inputGradient(Stream& q, OperandView<T> dy, OperandView<T> w, View<T> dx) const {
  const Impl& i = *impl_;
  T* const to = i.pad ? i.copyOf<T>(q) : dx.data;
  i.run<T>(q, Method::inputGradient, w.data, &ChannelsLast::w, dy.data, &ChannelsLast::y, to, &ChannelsLast::x);
  if (i.pad) i.pad->inputGradient(q, View<const T>(to), dx);
}
void Conv2d::inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const {
  inputGradient<float>(q, dy, w, dx);
}

template <class T>
void Conv2d::weightGradient(Stream& q, OperandView<T> x, OperandView<T> dy, View<T> dw, View<T> db) const {
  const Impl& i = *impl_;
  i.run<T>(q, Method::weightGradient, i.input<T>(q, x), &ChannelsLast::x, dy.data, &ChannelsLast::y, dw.data,
           &ChannelsLast::w);
  if (i.options.bias && db) i.biasGradient->forward(q, dy, db);
}
void Conv2d::weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw,
                            View<float> db) const {
  weightGradient<float>(q, x, dy, dw, db);
}

#define PDCRT_CONV2D(T)                                                                                                \
  template void Conv2d::forward<T>(Stream&, View<const T>, View<const T>, View<const T>, View<T>) const;               \
  template void Conv2d::inputGradient<T>(Stream&, View<const T>, View<const T>, View<T>) const;                        \
  template void Conv2d::weightGradient<T>(Stream&, View<const T>, View<const T>, View<T>, View<T>) const;
PDCRT_CONV2D(float)
PDCRT_CONV2D(bfloat16)
PDCRT_CONV2D(float16)
#undef PDCRT_CONV2D

} // namespace pdcrt
