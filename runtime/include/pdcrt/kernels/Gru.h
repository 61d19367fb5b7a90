// The recurrent part of a GRU layer (Cho et al. 2014, in cuDNN's variant) in one direction, over oneDNN.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <memory>
#include <string>

namespace pdcrt {

/// With p = h · transposed r + b, x = x[t], three gates side by side, and h the state before step t:
///   z = sigmoid(x_z + p_z), s = sigmoid(x_r + p_r), n = tanh(x_h + s · p_h);  h' = (1 - z) · n + z · h
/// x is [steps, batch, 3 · hidden], the input's part with its bias; r is [3 · hidden, hidden]. y is all states,
/// [steps, batch, hidden]. A row b whose length is at most t keeps its state in step t. No result may overlap an
/// operand. One object serves one stream at a time.
class Gru {
public:
  struct Options {
    std::int64_t steps = 0, batch = 0, hidden = 0;
    std::string order = "zrh"; ///< of the gates in x, r and b
    bool reverse = false;      ///< from the last step to the first
  };

  /// Throws std::runtime_error, with the sizes, if the library refuses them or `order` is none.
  Gru(Setup& setup, const Options& options);
  ~Gru();
  Gru(Gru&&) noexcept;
  Gru& operator=(Gru&&) noexcept;

  /// `b` [3 · hidden] and `h0` [batch, hidden] may be empty: zeros; `lengths` [batch] too: all of `steps`. `gates`
  /// [steps, batch, 4 · hidden], which may be empty, are z, s, n and p_h, for `gradient`.
  void forward(Stream& q, View<const float> x, View<const float> r, View<const float> b, View<const float> h0,
               View<const std::int32_t> lengths, View<float> y, View<float> gates) const;
  /// `da` is the gradient of p for all steps [steps, batch, 3 · hidden]; `dh0` may be empty.
  void gradient(Stream& q, View<const float> dy, View<const float> r, View<const float> y, View<const float> gates,
                View<const float> h0, View<const std::int32_t> lengths, View<float> dx, View<float> da,
                View<float> dh0) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
