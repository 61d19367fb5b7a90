// Conv2d over cuDNN. Algorithms are chosen when the kernel is constructed: those of the options, else what the library
// recommends among those that give the same bits in every run and need no more workspace than was planned. The library
// works on operands with channels last, or on plain ones. The workspace holds, from its beginning, a padded copy of the
// input where both sides differ, copies of what lies otherwise than the library wants it, and what the library needs.
#include "pdcrt/kernels/Conv2d.h"

#include "common/ConvolutionOptions.h"
#include "cuda/support/Convolution.h"
#include "cuda/support/Divider.h"
#include "cuda/support/Product.h"
#include "pdcrt/CudaWorkspace.h"
#include "pdcrt/Device.h"
#include "pdcrt/kernels/MaxPool2d.h"
#include "pdcrt/kernels/Pad.h"
#include "pdcrt/kernels/Reduce.h"
#include "pdcrt/kernels/Transpose.h"

#include <algorithm>

namespace pdcrt {
namespace {

using cuda::Method;
using cuda::Way;

/// Of `count` packs of n neighbours: those of one channel, or, with channels last, of so many channels. Adds the bias,
/// where there is one, and makes negative values 0, where they are to be.
template <int n, bool last, class T>
__global__ void finish(std::int64_t count, cuda::Divider byChannels, cuda::Divider byInner, const T* b, bool relu,
                       T* y) {
  auto* const packs = reinterpret_cast<Pack<T, n>*>(y);
  for (std::int64_t i = thread(); i < count; i += threads()) {
    Pack<T, n> values = packs[i];
    const std::int64_t channel = last ? n * byChannels.remainder(i) : byChannels.remainder(byInner.quotient(i));
    for (int k = 0; k < n; ++k) {
      float value = static_cast<float>(values[k]);
      if (b) value += static_cast<float>(b[channel + (last ? k : 0)]);
      values[k] = static_cast<T>(relu && value < 0 ? 0.0f : value);
    }
    packs[i] = values;
  }
}

template <int n, bool last, class T>
void launchFinish(Stream& q, const Shape& output, const T* b, bool relu, T* y) {
  const std::int64_t count = output.elements() / n;
  launchLoop(q, "convolution, bias and ReLU", finish<n, last, T>, count, count,
             cuda::Divider(last ? output.dims[1] / n : output.dims[1], count),
             cuda::Divider(last ? 1 : output.dims[2] * output.dims[3] / n, count), b, relu, y);
}

/// What lies with channels last. (With 16 channels in all, that and blocks of 16 are the same.)
bool lastInput(const Conv2d::Options& o) {
  return o.inputLanes > 1;
}
bool lastOutput(const Conv2d::Options& o) {
  return o.outputLanes > 1;
}

/// The input as cuDNN gets it.
Shape inputOf(const Conv2d::Options& o) {
  return cuda::padsDiffer(o) ? cuda::paddedInput(o) : o.input;
}

/// A tensor [N, C, H, W], and its copy in the other layout at a place in the workspace, if the library wants that.
class Operand {
public:
  Operand(const Shape& s, Element element, bool isLast, bool wantsLast, std::size_t at)
      : copied_(isLast != wantsLast && s.dims[1] > 1 && s.dims[2] * s.dims[3] > 1), // else both layouts are one
        bytes_(static_cast<std::size_t>(s.elements()) * (element == Element::f32 ? 4 : 2)), at_(at),
        toLast_(unused_, {.input = s, .permutation = {0, 2, 3, 1}}),
        toPlain_(unused_, {.input = {s.dims[0], s.dims[2], s.dims[3], s.dims[1]}, .permutation = {0, 3, 1, 2}}),
        to_(wantsLast ? &Operand::toLast_ : &Operand::toPlain_),
        back_(wantsLast ? &Operand::toPlain_ : &Operand::toLast_) {}
  std::size_t end() const { return at_ + (copied_ ? cuda::roundedUp(bytes_) : 0); }
  bool isCopied() const { return copied_; }

  /// Where the library writes the result.
  template <class T>
  T* place(T* tensor, std::byte* workspace) const {
    return copied_ ? reinterpret_cast<T*>(workspace + at_) : tensor;
  }
  /// There, before the library adds the result to it.
  template <class T>
  T* placeWith(Stream& q, const T* added, T* tensor, std::byte* workspace) const {
    if (copied_)
      made(q, added, workspace);
    else if (added != tensor)
      device::copy(q, tensor, added, bytes_);
    return place(tensor, workspace);
  }
  /// What the library reads.
  template <class T>
  const T* made(Stream& q, const T* tensor, std::byte* workspace) const {
    if (!copied_) return tensor;
    T* const copy = reinterpret_cast<T*>(workspace + at_);
    (this->*to_).forward(q, View<const T>(tensor), View<T>(copy));
    return copy;
  }
  /// After the library has written the result.
  template <class T>
  void finish(Stream& q, std::byte* workspace, T* tensor) const {
    if (copied_) (this->*back_).forward(q, View<const T>(reinterpret_cast<const T*>(workspace + at_)), View<T>(tensor));
  }

private:
  Setup unused_;
  bool copied_;
  std::size_t bytes_, at_;
  Transpose toLast_, toPlain_;
  Transpose Operand::*to_;
  Transpose Operand::*back_;
};

/// The convolution as the library computes it in one layout, and where its operands are copied to.
struct InLayout {
  cuda::LibraryConvolution library;
  Operand x, w, y;

  InLayout(const Conv2d::Options& o, bool last)
      : library(o, last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW), x(inputOf(o), o.element, lastInput(o), last, 0),
        w(o.filter, o.element, false, last, x.end()),
        y(Conv2d::outputShape(o), o.element, lastOutput(o), last, w.end()) {}
  std::size_t copies() const { return y.end(); }
  std::optional<Way> wayOf(Method method, int number, bool last) const {
    const std::optional<std::size_t> bytes = library.bytesOf(method, number);
    return bytes ? std::optional(Way{.number = number, .bytes = copies() + *bytes, .channelsLast = last})
                 : std::nullopt;
  }
};

/// What can compute a convolution on this device.
struct Choices {
  Conv2d::Options options;
  InLayout plain;
  std::unique_ptr<InLayout> last; ///< where an operand lies so, or it was asked for

  explicit Choices(const Conv2d::Options& o) : options(o), plain(o, false) {
    if (lastInput(o) || lastOutput(o)) last = std::make_unique<InLayout>(o, true);
    if (!rounds()) return;
    // The library copies what it rounds. Profiles measure plain f32: there may be no room for the copies.
    if (std::all_of(std::begin(cuda::methods), std::end(cuda::methods),
                    [&](Method method) { return recommendedOne(method).has_value(); }))
      return;
    plain.library.computeExactly();
    if (last) last->library.computeExactly();
  }

  bool rounds() const { return cuda::tf32 && options.element == Element::f32; }
  const InLayout& layoutOf(const Way& way) const { return way.channelsLast ? *last : plain; }
  /// The first of those that the library recommends, or has anyway, that fits into the plan.
  std::optional<Way> recommendedOne(Method method) const;
  std::optional<Way> recommendedOne(Method method, const InLayout& layout) const;

  /// The algorithm; nothing where it cannot compute, or not with the same bits in every run.
  std::optional<Way> find(Method method, Conv2d::Algorithm algorithm);
  /// That of the options, or a recommended one. Nothing for a method that was not measured where others were.
  std::optional<Way> choose(Method method);
};

std::optional<Way> Choices::find(Method method, Conv2d::Algorithm algorithm) {
  const std::optional<int> number = cuda::numberOf(options, method, algorithm);
  if (!number) return std::nullopt;
  if (algorithm == Conv2d::Algorithm::channelsLast) {
    if (!last) last = std::make_unique<InLayout>(options, true);
    return last->wayOf(method, *number, true);
  }
  for (const Way& way : plain.library.recommended(method))
    if (way.number == *number)
      if (const std::optional<Way> found = plain.wayOf(method, *number, false)) return found;
  return std::nullopt;
}

std::optional<Way> Choices::recommendedOne(Method method, const InLayout& layout) const {
  std::vector<Way> ways = layout.library.recommended(method);
  ways.push_back({.number = cuda::standardNumber(method)});
  for (const Way& way : ways)
    if (const std::optional<Way> found = layout.wayOf(method, way.number, &layout == last.get());
        found && found->bytes <= cuda::convolutionBytes(options))
      return found;
  return std::nullopt;
}

/// As the operands lie, if that is possible.
std::optional<Way> Choices::recommendedOne(Method method) const {
  if (lastInput(options) || lastOutput(options))
    if (const std::optional<Way> way = recommendedOne(method, *last)) return way;
  return recommendedOne(method, plain);
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
  std::unique_ptr<MaxPool2d> pool; ///< of forwardPooled

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
  /// `added`: what the result is added to, perhaps in its place; null: 0.
  template <class T>
  void run(Stream& q, Method method, const T* first, Operand InLayout::*firstOperand, const T* second,
           Operand InLayout::*secondOperand, T* result, Operand InLayout::*resultOperand,
           const T* added = nullptr) const;
  /// The whole forward in one call of the library. False: nothing was done.
  template <class T>
  bool runFinished(Stream& q, const T* x, const T* w, const T* b, T* y) const;
  mutable bool finishes = true; ///< until the library has refused to
};

template <class T>
void Conv2d::Impl::run(Stream& q, Method method, const T* first, Operand InLayout::*firstOperand, const T* second,
                       Operand InLayout::*secondOperand, T* result, Operand InLayout::*resultOperand,
                       const T* added) const {
  const std::optional<Way>& way = ways[static_cast<int>(method)];
  if (!way) refuseConvolution(options, "the profile has no algorithm for what is called; measure the model again");
  std::byte* const room = workspace(q);
  const InLayout& layout = layoutOf(*way);
  const Operand& made = layout.*resultOperand;
  T* const place = added ? made.placeWith(q, added, result, room) : made.place(result, room);
  layout.library.run(q, method, way->number, (layout.*firstOperand).made(q, first, room),
                     (layout.*secondOperand).made(q, second, room), added != nullptr, place, room + layout.copies(),
                     way->bytes - layout.copies());
  made.finish(q, room, result);
}

/// Only on tensor cores, where the pass that is saved is long against the product.
template <class T>
bool Conv2d::Impl::runFinished(Stream& q, const T* x, const T* w, const T* b, T* y) const {
  const std::optional<Way>& way = ways[static_cast<int>(Method::forward)];
  if (!finishes || !way || !b || !(rounds() || options.element != Element::f32)) return false;
  const InLayout& layout = layoutOf(*way);
  if (layout.y.isCopied()) return false;
  std::byte* const room = workspace(q);
  finishes = layout.library.runFinished(q, way->number, layout.x.made(q, x, room), layout.w.made(q, w, room), b,
                                        options.relu, y, room + layout.copies(), way->bytes - layout.copies());
  return finishes;
}

/// [N, C, H, W] as the input lies in memory.
Shape inMemory(const Shape& s, bool last) {
  return last ? Shape{s.dims[0], s.dims[2], s.dims[3], s.dims[1]} : s;
}

Conv2d::Conv2d(Setup& setup, const Options& asked) {
  Options sizes = asked;
  sizes.inputLanes = sizes.outputLanes = 1;
  checkConvolution(sizes);
  if ((lastInput(asked) && asked.inputLanes != asked.input.dims[1]) ||
      (lastOutput(asked) && asked.outputLanes != asked.filter.dims[0]) || asked.filterLanes != 1)
    refuseConvolution(asked, "blocks of some of the channels are for the CPU");
  Options o = asked;
  if (setup.times() && o.algorithms == Algorithms{}) o.algorithms = cuda::fastest(o, *setup.times());
  setup.needWorkspace(cuda::workspaceOf(o));
  if (o.pooled) o.relu = false; // which is the pooling's
  impl_ = std::make_unique<Impl>(o);
  if (o.pooled)
    impl_->pool = std::make_unique<MaxPool2d>(setup, MaxPool2d::Options{.input = outputShape(o),
                                                                        .output = pooledShape(o),
                                                                        .kernel = {2, 2},
                                                                        .strides = {2, 2},
                                                                        .relu = asked.relu,
                                                                        .lanes = o.outputLanes});
  if (cuda::padsDiffer(o)) {
    const auto axes = [&](std::int64_t height, std::int64_t width) {
      return lastInput(o) ? Axes{0, height, width, 0} : Axes{0, 0, height, width};
    };
    impl_->pad = std::make_unique<Pad>(setup, Pad::Options{.input = inMemory(o.input, lastInput(o)),
                                                           .before = axes(o.pads.top, o.pads.left),
                                                           .after = axes(o.pads.bottom, o.pads.right)});
    impl_->padded = cuda::roundedUp(cuda::bytesOfFloats(cuda::paddedInput(o).elements()));
  }
  if (o.bias)
    impl_->biasGradient =
        std::make_unique<Reduce>(setup, Reduce::Options{.input = inMemory(outputShape(o), lastOutput(o)),
                                                        .axes = lastOutput(o) ? Axes{0, 1, 2} : Axes{0, 2, 3}});
  for (Method method : cuda::methods) impl_->ways[static_cast<int>(method)] = impl_->choose(method);
}

Conv2d::~Conv2d() = default;
Conv2d::Conv2d(Conv2d&&) noexcept = default;
Conv2d& Conv2d::operator=(Conv2d&&) noexcept = default;

template <class T>
void Conv2d::forward(Stream& q, OperandView<T> x, OperandView<T> w, OperandView<T> b, View<T> y) const {
  const Impl& i = *impl_;
  const T* const input = i.input<T>(q, x);
  if (i.runFinished(q, input, w.data, i.options.bias ? b.data : nullptr, y.data)) return;
  i.run<T>(q, Method::forward, input, &InLayout::x, w.data, &InLayout::w, y.data, &InLayout::y);
  if (!i.options.bias && !i.options.relu) return;
  constexpr int n = 16 / static_cast<int>(sizeof(T));
  const bool last = lastOutput(i.options), aligned = reinterpret_cast<std::uintptr_t>(y.data) % 16 == 0;
  const bool packs = aligned && (last ? i.output.dims[1] : i.output.dims[2] * i.output.dims[3]) % n == 0;
  const auto launch = last ? (packs ? launchFinish<n, true, T> : launchFinish<1, true, T>)
                           : (packs ? launchFinish<n, false, T> : launchFinish<1, false, T>);
  launch(q, i.output, i.options.bias ? b.data : nullptr, i.options.relu, y.data);
}
void Conv2d::forward(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> y) const {
  forward<float>(q, x, w, b, y);
}

void Conv2d::forwardPooled(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> maxima,
                           View<std::int32_t> index) const {
  const View<float> y(reinterpret_cast<float*>(cuda::alignedWorkspace(q) + cuda::pooledFrom(impl_->options)));
  forward(q, x, w, b, y);
  impl_->pool->forward(q, View<const float>(y.data), maxima, index);
}

template <class T>
void Conv2d::inputGradient(Stream& q, OperandView<T> dy, OperandView<T> w, View<T> dx) const {
  const Impl& i = *impl_;
  T* const to = i.pad ? i.copyOf<T>(q) : dx.data;
  i.run<T>(q, Method::inputGradient, w.data, &InLayout::w, dy.data, &InLayout::y, to, &InLayout::x);
  if (i.pad) i.pad->inputGradient(q, View<const T>(to), dx);
}
void Conv2d::inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const {
  inputGradient<float>(q, dy, w, dx);
}

template <class T>
void Conv2d::addedInputGradient(Stream& q, OperandView<T> dy, OperandView<T> w, OperandView<T> added,
                                View<T> dx) const {
  const Impl& i = *impl_;
  T* const to = i.pad ? i.copyOf<T>(q) : dx.data;
  i.run<T>(q, Method::inputGradient, w.data, &InLayout::w, dy.data, &InLayout::y, to, &InLayout::x,
           i.input<T>(q, added));
  if (i.pad) i.pad->inputGradient(q, View<const T>(to), dx);
}
void Conv2d::addedInputGradient(Stream& q, View<const float> dy, View<const float> w, View<const float> added,
                                View<float> dx) const {
  addedInputGradient<float>(q, dy, w, added, dx);
}

template <class T>
void Conv2d::weightGradient(Stream& q, OperandView<T> x, OperandView<T> dy, View<T> dw, View<T> db) const {
  const Impl& i = *impl_;
  i.run<T>(q, Method::weightGradient, i.input<T>(q, x), &InLayout::x, dy.data, &InLayout::y, dw.data, &InLayout::w);
  if (i.options.bias && db) i.biasGradient->forward(q, dy, db);
}
void Conv2d::weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw,
                            View<float> db) const {
  weightGradient<float>(q, x, dy, dw, db);
}

#define PDCRT_CONV2D(T)                                                                                                \
  template void Conv2d::forward<T>(Stream&, View<const T>, View<const T>, View<const T>, View<T>) const;               \
  template void Conv2d::inputGradient<T>(Stream&, View<const T>, View<const T>, View<T>) const;                        \
  template void Conv2d::addedInputGradient<T>(Stream&, View<const T>, View<const T>, View<const T>, View<T>) const;    \
  template void Conv2d::weightGradient<T>(Stream&, View<const T>, View<const T>, View<T>, View<T>) const;
PDCRT_CONV2D(float)
PDCRT_CONV2D(bfloat16)
PDCRT_CONV2D(float16)
#undef PDCRT_CONV2D

} // namespace pdcrt
