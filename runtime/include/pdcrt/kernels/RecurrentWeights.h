// The gradient of the recurrent weights of RNN, GRU and LSTM layers, over oneDNN.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <memory>

namespace pdcrt {

/// Where step t computes a[t] = … + h · transposed r + b from the state h before it: dr is the sum over steps and rows
/// of transposed da[t] · h, and db that of da[t]. da is [steps, batch, gates], y all states after their steps [steps,
/// batch, hidden], r [gates, hidden]. No result may overlap an operand. One object serves one stream at a time.
class RecurrentWeights {
public:
  struct Options {
    std::int64_t steps = 0, batch = 0, hidden = 0, gates = 0;
    bool reverse = false; ///< from the last step to the first
  };

  /// Throws std::runtime_error, with the sizes, if the library refuses them.
  RecurrentWeights(Setup& setup, const Options& options);
  ~RecurrentWeights();
  RecurrentWeights(RecurrentWeights&&) noexcept;
  RecurrentWeights& operator=(RecurrentWeights&&) noexcept;

  /// `h0`, the state before the first step [batch, hidden], may be empty: zeros. So may `db`.
  void gradient(Stream& q, View<const float> da, View<const float> y, View<const float> h0, View<float> dr,
                View<float> db) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
