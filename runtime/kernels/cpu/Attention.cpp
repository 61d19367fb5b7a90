// See Attention.h. A block of queries at a time meets all keys that it sees: the block's scores stay in the cache, from
// the first product to the second. Threads share the heads, and each product has one: it is small.
#include "pdcrt/kernels/Attention.h"

#include "common/AttentionShapes.h"
#include "cpu/support/DropoutMask.h"
#include "cpu/support/Product.h"
#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"
#include "pdcrt/Math.h"

#include <algorithm>
#include <vector>

namespace pdcrt {
namespace {

/// How many queries' scores are in memory at once: 128 KiB, at least 16 rows. A causal block meets keys that its first
/// query does not see, and its size is one of its own, so that there are a few blocks, but not many.
std::int64_t blockOf(const Attention::Options& o) {
  const std::int64_t fitting = std::max<std::int64_t>(16, (std::int64_t{1} << 15) / o.keys);
  const std::int64_t eighth = std::max<std::int64_t>(64, (o.queries + 7) / 8);
  return std::min(o.queries, o.causal ? eighth : fitting);
}

/// What becomes of a row of scores.
struct Row {
  std::int64_t seen;        ///< keys that the query sees; those after it get nothing
  std::int64_t count;       ///< keys of the block
  const float* bias;        ///< or null
  const std::uint8_t* mask; ///< or null
  float kept;               ///< factor of the weights that dropout keeps
};

PDCRT_VECTORIZED void scaleRow(const Row& row, float scale, float* x) {
  for (std::int64_t i = 0; i < row.seen; ++i) x[i] *= scale;
  for (std::int64_t i = 0; row.bias && i < row.seen; ++i) x[i] += row.bias[i];
}

PDCRT_VECTORIZED void drop(std::int64_t count, const std::uint8_t* mask, float kept, float* x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = mask[i] ? x[i] * kept : 0.0f;
}

/// Scores become weights. A NaN is in the sum, whatever the largest is.
PDCRT_VECTORIZED void softmaxRow(const Row& row, float* x, float& largest, float& inverse) {
  const std::int64_t seen = row.seen;
  const float max = maxOf(seen, x);
  for (std::int64_t i = 0; i < seen; ++i) x[i] = pdcrt::exp(x[i] - max);
  const float factor = static_cast<float>(1 / sumOf(seen, [x](std::int64_t i) { return x[i]; }));
  for (std::int64_t i = 0; i < seen; ++i) x[i] *= factor;
  for (std::int64_t i = seen; i < row.count; ++i) x[i] = 0;
  largest = max;
  inverse = factor;
}

/// The same again, with what is known.
PDCRT_VECTORIZED void weightsAgain(const Row& row, float largest, float inverse, float* x) {
  for (std::int64_t i = 0; i < row.seen; ++i) x[i] = pdcrt::exp(x[i] - largest) * inverse;
  for (std::int64_t i = row.seen; i < row.count; ++i) x[i] = 0;
}

PDCRT_VECTORIZED void hide(std::int64_t count, const float* bias, float* dp) {
  for (std::int64_t i = 0; i < count; ++i) dp[i] = bias[i] <= Attention::hidden ? 0.0f : dp[i];
}

/// dp, the gradient of the weights p, becomes that of the products: scale · p · (dp - Σ p · dp).
PDCRT_VECTORIZED void scoresGradient(const Row& row, float scale, const float* p, float* dp) {
  const float sum = static_cast<float>(sumOf(row.seen, [dp, p](std::int64_t i) { return double(dp[i]) * p[i]; }));
  for (std::int64_t i = 0; i < row.seen; ++i) dp[i] = (dp[i] - sum) * p[i] * scale;
  for (std::int64_t i = row.seen; i < row.count; ++i) dp[i] = 0;
}

/// The products of a block of `count` queries with the first `seen` keys, of matrices that are all dense.
struct Products {
  Product scores;            ///< q · transposed k
  Product results;           ///< p · v
  Product dweights;          ///< dy · transposed v
  Product dquery;            ///< ds · k
  Product dkey, dvalue;      ///< transposed ds · q and transposed p · dy, added to what is there
  std::size_t workspace = 0; ///< of any of them

  /// Throws dnnl::error.
  Products(Setup& setup, const Attention::Options& o, std::int64_t count, std::int64_t seen)
      : scores(setup, {count, o.size, seen, false, true}), results(setup, {count, seen, o.valueSize}),
        dweights(setup, {count, o.valueSize, seen, false, true}), dquery(setup, {count, seen, o.size}),
        dkey(setup, {seen, count, o.size, true, false, /*adds=*/true}),
        dvalue(setup, {seen, count, o.valueSize, true, false, /*adds=*/true}) {
    for (const Product* each : {&scores, &results, &dweights, &dquery, &dkey, &dvalue})
      workspace = std::max(workspace, each->workspaceBytes());
  }
};

} // namespace

struct Attention::Impl {
  Options o;
  BiasStrides biasStrides;
  std::int64_t block; ///< queries
  /// One for each thread: the products of the blocks of a head, in order; of two sizes at most if not causal.
  std::vector<std::vector<Products>> products;
  std::size_t partWorkspace = 0; ///< of a thread
  std::size_t ownWorkspace = 0;  ///< where that of the kernel begins in it, behind that of the products

  std::int64_t seenBy(std::int64_t begin, std::int64_t count) const {
    return o.causal ? begin + count + o.keys - o.queries : o.keys;
  }

  void prepare(Setup& setup) {
    block = blockOf(o);
    // Heads that share keys and values add to the same gradients.
    products.resize(
        static_cast<std::size_t>(parts::countOf(o.batch * o.groups, o.batch * o.heads * o.queries * o.keys)));
    const parts::OneThread one;
    for (std::vector<Products>& each : products)
      for (std::int64_t begin = 0; begin < o.queries; begin += block) {
        const std::int64_t count = std::min(block, o.queries - begin);
        if (o.causal || begin == 0 || count < block) each.emplace_back(setup, o, count, seenBy(begin, count));
      }
    for (const Products& each : products[0]) ownWorkspace = std::max(ownWorkspace, each.workspace);
    ownWorkspace = (ownWorkspace + 63) / 64 * 64;
    // The gradient has weights and their gradient.
    partWorkspace = ownWorkspace + 2 * static_cast<std::size_t>(block * o.keys) * sizeof(float);
    partWorkspace = (partWorkspace + 63) / 64 * 64;
    setup.needWorkspace(products.size() * partWorkspace);
  }

  /// Queries begin … begin + count - 1 of one head of one sample, and where their data is.
  struct Block {
    std::int64_t begin, count, seen; ///< `seen`: keys that any of them sees
    std::int64_t firstRow;           ///< number of the first query among all rows of scores
    std::int64_t group;              ///< of its keys and values, among all samples'
    const float* bias;               ///< of the first query, or null
    const Products& products;
  };

  /// Calls f(stream, block), where `stream` has a thread's part of the workspace.
  template <class F>
  void forEachBlock(Stream& q, const float* bias, F f) const {
    const int count = static_cast<int>(products.size());
    parts::run(count, [&](int part) {
      const std::size_t index = static_cast<std::size_t>(part);
      Stream mine(q.workspace() + index * partWorkspace, partWorkspace);
      const parts::Range groups = parts::rangeOf(part, count, o.batch * o.groups);
      for (std::int64_t group = groups.begin; group < groups.end; ++group)
        forEachBlockOf(group, bias, products[index], [&](const Block& at) { f(mine, at); });
    });
  }

  /// The blocks of all heads with these keys and values.
  template <class F>
  void forEachBlockOf(std::int64_t group, const float* bias, const std::vector<Products>& sizes, F f) const {
    const std::int64_t shared = o.heads / o.groups, b = group / o.groups;
    for (std::int64_t h = group % o.groups * shared; h < (group % o.groups + 1) * shared; ++h)
      for (std::int64_t begin = 0; begin < o.queries; begin += block) {
        const std::int64_t count = std::min(block, o.queries - begin);
        const std::int64_t size = o.causal ? begin / block : (count < block ? 1 : 0);
        f(Block{begin, count, seenBy(begin, count), (b * o.heads + h) * o.queries + begin, group,
                bias ? bias + b * biasStrides.batch + h * biasStrides.head + begin * biasStrides.query : nullptr,
                sizes[static_cast<std::size_t>(size)]});
      }
  }

  Row row(const Block& at, std::int64_t i, const std::uint8_t* mask) const {
    return {o.causal ? seenBy(at.begin + i, 1) : at.seen, at.seen, at.bias ? at.bias + i * biasStrides.query : nullptr,
            mask ? mask + (at.firstRow + i) * o.keys : nullptr, static_cast<float>(1 / (1 - o.ratio))};
  }

  float* ownFloats(Stream& q) const { return reinterpret_cast<float*>(q.workspace() + ownWorkspace); }

  const float* queries(const Block& at, const float* query) const { return query + at.firstRow * o.size; }
  std::int64_t keyOffset(const Block& at) const { return at.group * o.keys * o.size; }
  std::int64_t valueOffset(const Block& at) const { return at.group * o.keys * o.valueSize; }

  void forward(Stream& q, const float* query, const float* key, const float* value, const float* bias, float* y,
               float* largest, float* inverse, const std::uint8_t* mask) const {
    forEachBlock(q, bias, [&](Stream& mine, const Block& at) {
      float* const p = ownFloats(mine);
      at.products.scores.run(mine, queries(at, query), key + keyOffset(at), p);
      for (std::int64_t i = 0; i < at.count; ++i) {
        const Row r = row(at, i, mask);
        float max = 0, factor = 0;
        scaleRow(r, static_cast<float>(o.scale), p + i * at.seen);
        softmaxRow(r, p + i * at.seen, max, factor);
        if (largest) largest[at.firstRow + i] = max;
        if (inverse) inverse[at.firstRow + i] = factor;
        if (mask) drop(r.seen, r.mask, r.kept, p + i * at.seen);
      }
      at.products.results.run(mine, p, value + valueOffset(at), y + at.firstRow * o.valueSize);
    });
  }
};

Attention::Attention(Setup& setup, const Options& options) : impl_(std::make_unique<Impl>()) {
  checkSizes(options);
  impl_->o = options;
  impl_->biasStrides = BiasStrides(options.bias);
  try {
    impl_->prepare(setup);
  } catch (const dnnl::error& error) {
    throw std::runtime_error("attention: oneDNN " + std::string(error.what()));
  }
}

Attention::~Attention() = default;
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;

void Attention::forward(Stream& q, View<const float> query, View<const float> key, View<const float> value,
                        View<const float> bias, View<float> y, View<float> largest, View<float> inverse) const {
  impl_->forward(q, query.data, key.data, value.data, bias.data, y.data, largest.data, inverse.data, nullptr);
}

void Attention::forwardDropped(Stream& q, Draw draw, View<const float> query, View<const float> key,
                               View<const float> value, View<const float> bias, View<float> y, View<float> largest,
                               View<float> inverse, View<std::uint8_t> mask) const {
  const Options& o = impl_->o;
  drawMask(o.batch * o.heads * o.queries * o.keys, {o.run, o.members, q.member()}, o.op, o.ratio, draw, mask.data);
  impl_->forward(q, query.data, key.data, value.data, bias.data, y.data, largest.data, inverse.data, mask.data);
}

void Attention::inputGradient(Stream& q, View<const float> dy, View<const float> query, View<const float> key,
                              View<const float> value, View<const float> bias, View<const float> largest,
                              View<const float> inverse, View<const std::uint8_t> mask, View<float> dquery,
                              View<float> dkey, View<float> dvalue) const {
  const Impl& self = *impl_;
  const Options& o = self.o;
  const float scale = static_cast<float>(o.scale);
  if (dkey) std::fill_n(dkey.data, o.batch * o.groups * o.keys * o.size, 0.0f);
  if (dvalue) std::fill_n(dvalue.data, o.batch * o.groups * o.keys * o.valueSize, 0.0f);
  self.forEachBlock(q, bias.data, [&](Stream& mine, const Impl::Block& at) {
    float *const p = self.ownFloats(mine), *const ds = p + self.block * o.keys;
    const Products& products = at.products;
    const float *const rowsOfY = dy.data + at.firstRow * o.valueSize, *const queries = self.queries(at, query.data),
                       *const keys = key.data + self.keyOffset(at), *const values = value.data + self.valueOffset(at);
    products.scores.run(mine, queries, keys, p);
    products.dweights.run(mine, rowsOfY, values, ds);
    for (std::int64_t i = 0; i < at.count; ++i) {
      const Row r = self.row(at, i, mask.data);
      float *const weights = p + i * at.seen, *const gradient = ds + i * at.seen;
      scaleRow(r, scale, weights);
      weightsAgain(r, largest[at.firstRow + i], inverse[at.firstRow + i], weights);
      if (r.mask) drop(r.seen, r.mask, r.kept, gradient);
      scoresGradient(r, scale, weights, gradient);
      if (o.hides && r.bias) hide(r.seen, r.bias, gradient);
      if (r.mask) drop(r.seen, r.mask, r.kept, weights);
    }
    if (dquery) products.dquery.run(mine, ds, keys, dquery.data + at.firstRow * o.size);
    if (dkey) products.dkey.run(mine, ds, queries, dkey.data + self.keyOffset(at));
    if (dvalue) products.dvalue.run(mine, p, rowsOfY, dvalue.data + self.valueOffset(at));
  });
}

} // namespace pdcrt
