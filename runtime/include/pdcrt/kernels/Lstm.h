// The recurrent part of an LSTM layer (Hochreiter and Schmidhuber 1997, with forget gates) in one direction, over
// oneDNN.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <memory>
#include <string>

namespace pdcrt {

/// With a = x[t] + h · transposed r, the four gates side by side, and h, c the state before step t:
///   i = sigmoid(a_i), f = sigmoid(a_f), o = sigmoid(a_o), g = tanh(a_c);  c' = f · c + i · g;  h' = o · tanh(c')
/// x is [steps, batch, 4 · hidden], the input's part with all biases; r is [4 · hidden, hidden]. y and c are all
/// states, [steps, batch, hidden]. A row b whose length is at most t keeps its state in step t. No result may overlap
/// an operand. One object serves one stream at a time.
class Lstm {
public:
  struct Options {
    std::int64_t steps = 0, batch = 0, hidden = 0;
    std::string order = "iofc"; ///< of the gates in x and r
    bool reverse = false;       ///< from the last step to the first
  };

  /// Throws std::runtime_error, with the sizes, if the library refuses them or `order` is none.
  Lstm(Setup& setup, const Options& options);
  ~Lstm();
  Lstm(Lstm&&) noexcept;
  Lstm& operator=(Lstm&&) noexcept;

  /// `h0`, `c0` [batch, hidden] may be empty: zeros; `lengths` [batch] too: all of `steps`. `c` and `gates`
  /// [steps, batch, 4 · hidden], what `gradient` wants to know, may be empty.
  void forward(Stream& q, View<const float> x, View<const float> r, View<const float> h0, View<const float> c0,
               View<const std::int32_t> lengths, View<float> y, View<float> c, View<float> gates) const;
  /// `dy`, `dc` may be empty: zeros; so may `dh0` and `dc0`.
  void gradient(Stream& q, View<const float> dy, View<const float> dc, View<const float> r, View<const float> c,
                View<const float> gates, View<const float> c0, View<const std::int32_t> lengths, View<float> dx,
                View<float> dh0, View<float> dc0) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
