// A linear layer and its gradients, over oneDNN or kernels of our own.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace pdcrt {

/// y[rows, outputs] = x[rows, inputs] · op(w) (+ b[outputs]), everything row-major. No result may overlap an operand.
/// One object serves one stream at a time.
class Linear {
public:
  /// Under CUDA: which of the algorithms that cuBLASLt offers for a product, in the order in which it expects them to
  /// be fast. With sums, of the weights' gradient: the product adds up the bias' gradient on the way; else a kernel
  /// does.
  enum class Algorithm {
    automatic,
    first,
    second,
    third,
    fourth,
    fifth,
    sixth,
    firstWithSums,
    secondWithSums,
    thirdWithSums,
    fourthWithSums,
    fifthWithSums,
    sixthWithSums
  };
  static constexpr const char* algorithmNames[] = {
      "automatic",     "first",          "second",        "third",          "fourth",        "fifth",        "sixth",
      "firstWithSums", "secondWithSums", "thirdWithSums", "fourthWithSums", "fifthWithSums", "sixthWithSums"};
  static constexpr bool addsUp(Algorithm algorithm) { return algorithm >= Algorithm::firstWithSums; }
  /// How each result is computed. Automatic: the first.
  struct Algorithms {
    Algorithm forward = Algorithm::automatic;
    Algorithm inputGradient = Algorithm::automatic;
    Algorithm weightGradient = Algorithm::automatic;
    friend bool operator==(const Algorithms&, const Algorithms&) = default;
  };

  struct Options {
    std::int64_t rows = 0, inputs = 0, outputs = 0;
    bool transposed = false; ///< w is [outputs, inputs] (PyTorch's Linear, Gemm with transB), else [inputs, outputs]
    bool bias = false;
    Element element = Element::f32; ///< of all operands and results; sums are in f32
    bool wideGradient = false;      ///< the gradients of w and b are of f32, whatever the others are
    Algorithms algorithms = {};
    int parts = 1; ///< on CPUs: the kernel makes y and dx in so many parts of equally many rows, and tells the stream
  };

  /// Whether there is something to choose: of 16 bits, for tensor cores.
  static bool hasChoice(const Options& o) { return o.element != Element::f32; }
  /// What profiles call a kernel with these sizes: "Linear{.rows = 1024, …}", as in a program, without algorithms.
  static std::string profileName(const Options& options);

  static constexpr bool workspaceByMethod = true;

  /// Throws std::runtime_error, with the sizes, if the library refuses them.
  Linear(Setup& setup, const Options& options);
  ~Linear();
  Linear(Linear&&) noexcept;
  Linear& operator=(Linear&&) noexcept;

  /// `b` is empty without Options::bias.
  void forward(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> y) const;
  void inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const;
  /// `db` may be empty.
  void weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw, View<float> db) const;
  /// Both, for programs for CPUs.
  void gradients(Stream& q, View<const float> x, View<const float> dy, View<const float> w, View<float> dw,
                 View<float> db, View<float> dx) const {
    inputGradient(q, dy, w, dx);
    weightGradient(q, x, dy, dw, db);
  }
  /// Takes a part of a gradient: neighbouring elements, at the pointer.
  using PartTaker = std::function<void(const float*, Elements)>;
  /// On CPUs, the same for a large dw that is used once: `taken` gets it in parts, each while it is in the caches. They
  /// lie in `part`, of which the next ones make use again. Threads of the rank call `taken` at once.
  void weightGradientInParts(Stream& q, View<const float> x, View<const float> dy, View<float> part, View<float> db,
                             const PartTaker& taken) const;
  /// The same, and dx, with the weights that are there before `taken` may change them: part by part, so that they are
  /// read once for both.
  void gradientsInParts(Stream& q, View<const float> x, View<const float> dy, View<const float> w, View<float> part,
                        View<float> db, View<float> dx, const PartTaker& taken) const;
  /// Elements of `part`; 0: such sizes gain nothing by it.
  static std::int64_t partSize(const Options& options);
  // In bfloat16 and float16, for CUDA.
  template <class T>
  void forward(Stream& q, OperandView<T> x, OperandView<T> w, OperandView<T> b, View<T> y) const;
  template <class T>
  void inputGradient(Stream& q, OperandView<T> dy, OperandView<T> w, View<T> dx) const;
  template <class T>
  void weightGradient(Stream& q, OperandView<T> x, OperandView<T> dy, View<T> dw, View<T> db) const;
  void weightGradient(Stream& q, View<const bfloat16> x, View<const bfloat16> dy, View<float> dw, View<float> db) const;
  void weightGradient(Stream& q, View<const float16> x, View<const float16> dy, View<float> dw, View<float> db) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
