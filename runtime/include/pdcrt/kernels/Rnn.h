// The recurrent part of a simple recurrent layer (Elman 1990) in one direction, over oneDNN.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <memory>

namespace pdcrt {

/// h' = tanh(x[t] + h · transposed r), h being the state before step t. x is [steps, batch, hidden], the input's part
/// with all biases; r is [hidden, hidden]. y is all states, [steps, batch, hidden]. A row b whose length is at most t
/// keeps its state in step t. No result may overlap an operand. One object serves one stream at a time.
class Rnn {
public:
  struct Options {
    std::int64_t steps = 0, batch = 0, hidden = 0;
    bool relu = false;    ///< max(·, 0) instead of tanh
    bool reverse = false; ///< from the last step to the first
  };

  /// Throws std::runtime_error, with the sizes, if the library refuses them.
  Rnn(Setup& setup, const Options& options);
  ~Rnn();
  Rnn(Rnn&&) noexcept;
  Rnn& operator=(Rnn&&) noexcept;

  /// `h0` [batch, hidden] may be empty: zeros; `lengths` [batch] too: all of `steps`.
  void forward(Stream& q, View<const float> x, View<const float> r, View<const float> h0,
               View<const std::int32_t> lengths, View<float> y) const;
  /// `dh0` may be empty.
  void gradient(Stream& q, View<const float> dy, View<const float> r, View<const float> y,
                View<const std::int32_t> lengths, View<float> dx, View<float> dh0) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
