// The code of ConvolutionTiles.h's functions, included once for each instruction set, in a namespace of its own. There
// are `Vector`, of `width` floats, `pieces` to a block of 16, and what is done with it; `tileRows` rows of
// `tileOutputs` blocks of a result, or `weightSums` of a filter's gradient, are in registers at once.

template <int positions, int stride, int outputs>
void run(const ForwardTile& tile) {
  const ForwardTile t = tile;
  // The next tile of y is far away, and mostly behind this one.
  PDCRT_EACH(o, outputs)
  PDCRT_EACH(p, positions) _mm_prefetch(t.y + o * t.outputOfY + (positions + p) * block, _MM_HINT_T0);
  Vector sums[outputs][positions][pieces];
  PDCRT_EACH(o, outputs)
  PDCRT_EACH(p, positions)
  PDCRT_EACH(v, pieces) {
    if (t.before)
      sums[o][p][v] = load(t.before + o * t.outputOfY + p * block + v * width);
    else
      sums[o][p][v] = t.start ? load(t.start + o * block + v * width) : all(0.0f);
  }
  const float* w = t.w;
  for (std::int64_t c = 0; c < t.inputs; ++c)
    for (std::int64_t i = 0; i < t.kernelHeight; ++i) {
      const float* x = t.x + c * t.plane + i * t.rowFloats;
      if (t.nextX != 0) PDCRT_EACH(p, positions) _mm_prefetch(x + t.nextX + p * stride * block, _MM_HINT_T0);
      for (std::int64_t j = 0; j < t.kernelWidth; ++j)
#pragma GCC unroll 8
        for (int input = 0; input < block; ++input, ++x, w += block) {
          Vector right[outputs][pieces];
          PDCRT_EACH(o, outputs)
          PDCRT_EACH(v, pieces) right[o][v] = load(w + o * t.outputOfW + v * width);
          PDCRT_EACH(p, positions) {
            const Vector left = all(x[p * stride * block]);
            PDCRT_EACH(o, outputs)
            PDCRT_EACH(v, pieces) sums[o][p][v] = multiplyAdd(left, right[o][v], sums[o][p][v]);
          }
        }
    }
  const Vector least = all(t.relu ? 0.0f : -std::numeric_limits<float>::infinity());
  PDCRT_EACH(o, outputs)
  PDCRT_EACH(p, positions)
  PDCRT_EACH(v, pieces)
  store(t.y + o * t.outputOfY + p * block + v * width, larger(least, sums[o][p][v])); // a NaN stays
}

template <int stride, int outputs, int positions = tileRows>
void runForward(std::int64_t wanted, const ForwardTile& t) {
  if constexpr (positions > 1)
    if (wanted < positions) return runForward<stride, outputs, positions - 1>(wanted, t);
  run<positions, stride, outputs>(t);
}

void forward(std::int64_t positions, std::int64_t stride, std::int64_t outputs, const ForwardTile& t) {
  if constexpr (tileOutputs > 1)
    if (outputs > 1) return stride == 1 ? runForward<1, 2>(positions, t) : runForward<2, 2>(positions, t);
  stride == 1 ? runForward<1, 1>(positions, t) : runForward<2, 1>(positions, t);
}

template <int outputs, int taps, int inputs>
void run(const WeightTile& tile) {
  const WeightTile t = tile;
  Vector sums[outputs][taps][inputs][pieces];
  PDCRT_EACH(o, outputs)
  PDCRT_EACH(tap, taps)
  PDCRT_EACH(i, inputs)
  PDCRT_EACH(v, pieces) sums[o][tap][i][v] = all(0.0f);
  for (std::int64_t row = 0; row < t.rows; ++row) {
    const float *x = t.x + row * t.rowOfX, *dy = t.dy + row * t.rowOfDy;
    for (std::int64_t column = 0; column < t.columns; ++column, x += t.step, dy += block) {
      if (t.nextX != 0) _mm_prefetch(x + t.nextX, _MM_HINT_T0);
      if (t.nextDy != 0) PDCRT_EACH(o, outputs) _mm_prefetch(dy + t.nextDy + o * t.outputOfDy, _MM_HINT_T0);
      Vector right[outputs][pieces];
      PDCRT_EACH(o, outputs)
      PDCRT_EACH(v, pieces) right[o][v] = load(dy + o * t.outputOfDy + v * width);
      PDCRT_EACH(tap, taps)
      PDCRT_EACH(i, inputs) {
        const Vector left = all(x[tap * block + i]);
        PDCRT_EACH(o, outputs)
        PDCRT_EACH(v, pieces) sums[o][tap][i][v] = multiplyAdd(left, right[o][v], sums[o][tap][i][v]);
      }
    }
  }
  PDCRT_EACH(o, outputs)
  PDCRT_EACH(tap, taps)
  PDCRT_EACH(i, inputs)
  PDCRT_EACH(v, pieces) {
    float* const to = t.dw + o * t.outputOfDw + (tap * block + i) * block + v * width;
    store(to, t.fresh ? sums[o][tap][i][v] : plus(load(to), sums[o][tap][i][v]));
  }
}

/// Inputs from `done` on, as many at once as registers hold sums of.
template <int outputs, int taps, int done = 0>
void runInputs(const WeightTile& t) {
  if constexpr (done < block) {
    constexpr int left = int(block) - done, most = weightSums / taps / outputs, parts = (left + most - 1) / most,
                  some = (left + parts - 1) / parts;
    WeightTile next = t;
    next.x += done, next.dw += done * block;
    if (done > 0) next.nextX = next.nextDy = 0;
    run<outputs, taps, some>(next);
    runInputs<outputs, taps, done + some>(t);
  }
}

template <int outputs>
void runTaps(std::int64_t taps, const WeightTile& t) {
  switch (taps) {
  case 1: return runInputs<outputs, 1>(t);
  case 2: return runInputs<outputs, 2>(t);
  default: return runInputs<outputs, 3>(t);
  }
}

void weights(std::int64_t outputs, std::int64_t taps, const WeightTile& t) {
  outputs == 1 ? runTaps<1>(taps, t) : runTaps<2>(taps, t);
}

// The transforms of Winograd's algorithm F(4x4, 3x3), for 16 channels at a time. A row of four outputs is the product
// of two polynomials, seen from its transposed side: values are taken at the points 0, ±5/8, ±3/2 and infinity. Of the
// pairs that are multiples of 1/8 these round least.

PDCRT_INLINE Vector times(float factor, Vector x) {
  return multiply(all(factor), x);
}
/// factor * x + y
PDCRT_INLINE Vector plus(float factor, Vector x, Vector y) {
  return multiplyAdd(all(factor), x, y);
}

/// Six inputs of four outputs.
PDCRT_INLINE void ofInputs(const Vector (&d)[points], Vector (&to)[points]) {
  to[0] = plus(p2 * q2, d[0], plus(-(p2 + q2), d[2], d[4]));
  const Vector evenP = plus(-q2, d[2], d[4]), oddP = times(p, plus(-q2, d[1], d[3]));
  const Vector evenQ = plus(-p2, d[2], d[4]), oddQ = times(q, plus(-p2, d[1], d[3]));
  to[1] = plus(evenP, oddP);
  to[2] = minus(evenP, oddP);
  to[3] = plus(evenQ, oddQ);
  to[4] = minus(evenQ, oddQ);
  to[5] = plus(p2 * q2, d[1], plus(-(p2 + q2), d[3], d[5]));
}

PDCRT_INLINE void ofFilter(const Vector (&g)[taps], Vector (&to)[points]) {
  const Vector evenP = plus(p2, g[2], g[0]), oddP = times(p, g[1]);
  const Vector evenQ = plus(q2, g[2], g[0]), oddQ = times(q, g[1]);
  to[0] = times(scale0, g[0]);
  to[1] = times(scaleP, plus(evenP, oddP));
  to[2] = times(scaleP, minus(evenP, oddP));
  to[3] = times(scaleQ, plus(evenQ, oddQ));
  to[4] = times(scaleQ, minus(evenQ, oddQ));
  to[5] = g[2];
}

/// Products at the points become outputs.
PDCRT_INLINE void toOutputs(const Vector (&m)[points], Vector (&y)[outputs]) {
  const Vector evenP = plus(m[1], m[2]), oddP = minus(m[1], m[2]);
  const Vector evenQ = plus(m[3], m[4]), oddQ = minus(m[3], m[4]);
  y[0] = plus(m[0], plus(evenP, evenQ));
  y[1] = plus(q, oddQ, times(p, oddP));
  y[2] = plus(q2, evenQ, times(p2, evenP));
  y[3] = plus(q3, oddQ, plus(p3, oddP, m[5]));
}

/// Gradients go through what is transposed: those of outputs become those of the products,
PDCRT_INLINE void ofOutputGradients(const Vector (&dy)[outputs], Vector (&to)[points]) {
  const Vector evenP = plus(p2, dy[2], dy[0]), oddP = plus(p3, dy[3], times(p, dy[1]));
  const Vector evenQ = plus(q2, dy[2], dy[0]), oddQ = plus(q3, dy[3], times(q, dy[1]));
  to[0] = dy[0];
  to[1] = plus(evenP, oddP);
  to[2] = minus(evenP, oddP);
  to[3] = plus(evenQ, oddQ);
  to[4] = minus(evenQ, oddQ);
  to[5] = dy[3];
}

/// and those of the filter at the points those of the filter.
PDCRT_INLINE void toFilterGradient(const Vector (&u)[points], Vector (&dg)[taps]) {
  const Vector evenP = times(scaleP, plus(u[1], u[2])), oddP = times(scaleP, minus(u[1], u[2]));
  const Vector evenQ = times(scaleQ, plus(u[3], u[4])), oddQ = times(scaleQ, minus(u[3], u[4]));
  dg[0] = plus(scale0, u[0], plus(evenP, evenQ));
  dg[1] = plus(q, oddQ, times(p, oddP));
  dg[2] = plus(q2, evenQ, plus(p2, evenP, u[5]));
}

/// Applies a transform to all columns, then to all rows.
template <int from, int to, void (*transform)(const Vector (&)[from], Vector (&)[to])>
void apply(Square<const float> source, Square<float> result) {
  for (int piece = 0; piece < block; piece += width) {
    Vector between[to][from];
    for (int j = 0; j < from; ++j) {
      Vector in[from], out[to];
      PDCRT_EACH(i, from) in[i] = load(source.data + i * source.row + j * source.column + piece);
      transform(in, out);
      PDCRT_EACH(i, to) between[i][j] = out[i];
    }
    for (int i = 0; i < to; ++i) {
      Vector out[to];
      transform(between[i], out);
      PDCRT_EACH(j, to) store(result.data + i * result.row + j * result.column + piece, out[j]);
    }
  }
}

constexpr Tiles tiles = {.rows = tileRows,
                         .outputs = tileOutputs,
                         .forward = forward,
                         .weights = weights,
                         .ofInputs = apply<points, points, ofInputs>,
                         .ofFilter = apply<taps, points, ofFilter>,
                         .toOutputs = apply<points, outputs, toOutputs>,
                         .ofOutputGradients = apply<outputs, points, ofOutputGradients>,
                         .toFilterGradient = apply<points, taps, toFilterGradient>};
