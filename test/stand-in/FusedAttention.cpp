// In place of kernels/cuda/FusedAttention.cu: fused attention by its definition, which takes times that are written
// here, for heads of at most 64 elements.
#include "kernels/cuda/FusedAttention.h"

#include "Numbers.h"
#include "kernels/cuda/AttentionBias.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>

namespace pdcrt::cuda {
namespace {

using stand_in::Numbers;

using Layout = MultiHeadAttention::Rows;
using Part = MultiHeadAttention::Part;

/// Of heads that lie apart.
Part apart(std::int64_t heads, std::int64_t positions, std::int64_t size) {
  return {1, heads * positions, size, 0, size};
}
Layout apart(const Attention::Options& o) {
  Layout layout{MultiHeadAttention::Options()};
  layout.query = apart(o.heads, o.queries, o.size), layout.key = apart(o.groups, o.keys, o.size);
  layout.value = apart(o.groups, o.keys, o.valueSize), layout.y = apart(o.heads, o.queries, o.valueSize);
  return layout;
}
/// The same elements, where operands point to the beginning of their part of a row.
Layout fromOwnBegin(Layout layout) {
  layout.key.begin = layout.value.begin = 0;
  return layout;
}

/// The rows of one call.
struct Rows {
  Attention::Options o;
  Layout layout;
  Numbers q, k, v, bias; ///< the bias as cuDNN's takes it: for each query

  /// Where an element of a row of queries is, or of keys: rows of all samples and heads are counted in one.
  std::int64_t ofQuery(const Part& part, std::int64_t row, std::int64_t e) const {
    return at(part, o.heads, o.queries, row, e);
  }
  std::int64_t ofKey(const Part& part, std::int64_t row, std::int64_t e) const {
    return at(part, o.groups, o.keys, row, e);
  }
  static std::int64_t at(const Part& part, std::int64_t heads, std::int64_t positions, std::int64_t row,
                         std::int64_t e) {
    const std::int64_t head = row / positions;
    if (part.heads == 1 && part.row == part.size) return row * part.size + e;
    return part.at(head / heads, head % heads, row % positions, e);
  }

  Numbers numbers(const void* data) const {
    return {o.element == Element::bf16 ? Numbers::Kind::bf16 : Numbers::Kind::f16, const_cast<void*>(data)};
  }
  std::int64_t count() const { return o.batch * o.heads * o.queries; }
  /// The first of the keys of a row of queries.
  std::int64_t keyOf(std::int64_t row) const {
    const std::int64_t head = row / o.queries;
    return (head / o.heads * o.groups + head % o.heads / (o.heads / o.groups)) * o.keys;
  }
  std::int64_t seen(std::int64_t row) const { return o.causal ? row % o.queries + 1 + o.keys - o.queries : o.keys; }
  double score(std::int64_t row, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t e = 0; e < o.size; ++e)
      sum += q[ofQuery(layout.query, row, e)] * k[ofKey(layout.key, keyOf(row) + j, e)];
    return sum * o.scale + (o.bias.rank > 0 ? bias[biasRow(row) * o.keys + j] : 0);
  }
  std::int64_t biasRow(std::int64_t row) const {
    const std::int64_t head = row / o.queries, b = head / o.heads % o.bias.dims[0], h = head % o.heads % o.bias.dims[1];
    return (b * o.bias.dims[1] + h) * o.queries + row % o.queries;
  }
  /// Writes the row's weights, and returns the logarithm of the sum of exp(score).
  double weigh(std::int64_t row, double* weights) const {
    double largest = -INFINITY, sum = 0;
    for (std::int64_t j = 0; j < seen(row); ++j) largest = std::max(largest, weights[j] = score(row, j));
    for (std::int64_t j = 0; j < seen(row); ++j) sum += std::exp(weights[j] - largest);
    for (std::int64_t j = 0; j < seen(row); ++j) weights[j] = std::exp(weights[j] - largest) / sum;
    return largest + std::log(sum);
  }
};

/// Numbers that begin at 0; not from malloc: tests watch it.
class Room {
public:
  explicit Room(std::int64_t count)
      : count_(count), bytes_(static_cast<std::size_t>(count) * sizeof(double)),
        memory_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) stand_in::misuse("no memory");
  }
  ~Room() { ::munmap(memory_, bytes_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  double* data() const { return static_cast<double*>(memory_); }
  double& operator[](std::int64_t i) const { return data()[i]; }
  /// In rows of so many elements, of which `place` says where they are.
  template <class Place>
  void copyTo(const Numbers& to, std::int64_t size, const Place& place) const {
    if (!to.data) return;
    for (std::int64_t i = 0; i < count_; ++i) to.set(place(i / size, i % size), data()[i]);
  }

private:
  std::int64_t count_;
  std::size_t bytes_;
  void* memory_;
};

template <class Work>
void put(Stream& q, std::uint64_t microseconds, const Work& work) {
  const auto stream = static_cast<cudaStream_t>(q.native());
  if (stand_in::immediate(stream)) return work();
  stand_in::enqueue(stream, [=] {
    work();
    stand_in::elapse(microseconds - 1);
  });
}

} // namespace

struct FusedAttention::Impl {
  Attention::Options options;
  Layout layout;
  bool gradient;

  /// Puts the bias at the beginning of the workspace.
  Rows rows(Stream& stream, const void* query, const void* key, const void* value, const float* bias,
            std::byte*& workspace) const {
    Rows rows = {options, layout, {}, {}, {}, {}};
    rows.q = rows.numbers(query), rows.k = rows.numbers(key), rows.v = rows.numbers(value);
    rows.bias = rows.numbers(workspace);
    if (options.bias.rank > 0) spreadBias(stream, options, bias, workspace);
    workspace += spreadBiasBytes(options);
    return rows;
  }
};

FusedAttention::FusedAttention(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FusedAttention::~FusedAttention() = default;

std::shared_ptr<const FusedAttention> FusedAttention::make(const Attention::Options& options, const Layout* rows,
                                                           bool gradient, std::string& why) {
  if (options.size > 64 || options.valueSize > 64) {
    why = "heads of more than 64";
    return nullptr;
  }
  return std::shared_ptr<const FusedAttention>(
      new FusedAttention(std::make_unique<Impl>(Impl{options, rows ? fromOwnBegin(*rows) : apart(options), gradient})));
}

std::size_t FusedAttention::forwardBytes() const {
  return spreadBiasBytes(impl_->options) + stand_in::usedWorkspace;
}
std::size_t FusedAttention::gradientBytes() const {
  return impl_->gradient ? spreadBiasBytes(impl_->options) + 3 * stand_in::usedWorkspace : 0;
}

void FusedAttention::forward(Stream& q, const void* query, const void* key, const void* value, const float* bias,
                             void* y, float* statistics, std::byte* workspace) const {
  const Rows rows = impl_->rows(q, query, key, value, bias, workspace);
  put(q, 1, [=] {
    stand_in::scribble(workspace, stand_in::usedWorkspace);
    const Attention::Options& o = rows.o;
    const Room weights(o.keys), sums(rows.count() * o.valueSize);
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      const double statistic = rows.weigh(row, weights.data());
      if (statistics) statistics[row] = static_cast<float>(statistic);
      for (std::int64_t j = 0; j < rows.seen(row); ++j)
        for (std::int64_t e = 0; e < o.valueSize; ++e)
          sums[row * o.valueSize + e] += weights[j] * rows.v[rows.ofKey(rows.layout.value, rows.keyOf(row) + j, e)];
    }
    sums.copyTo(rows.numbers(y), o.valueSize,
                [&](std::int64_t row, std::int64_t e) { return rows.ofQuery(rows.layout.y, row, e); });
  });
}

void FusedAttention::inputGradient(Stream& q, const void* dy, const void* query, const void* key, const void* value,
                                   const float* bias, const void* y, const float* statistics, void* dquery, void* dkey,
                                   void* dvalue, std::byte* workspace) const {
  const Rows rows = impl_->rows(q, query, key, value, bias, workspace);
  put(q, impl_->options.causal ? 9 : 4, [=] {
    stand_in::scribble(workspace, 3 * stand_in::usedWorkspace);
    const Attention::Options& o = rows.o;
    const Layout& at = rows.layout;
    const Numbers dys = rows.numbers(dy), ys = rows.numbers(y);
    const std::int64_t keys = o.batch * o.groups * o.keys;
    const Room p(o.keys), dp(o.keys), dq(rows.count() * o.size), dk(keys * o.size), dv(keys * o.valueSize);
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      const double logarithm = rows.weigh(row, p.data());
      if (y && std::abs(statistics[row] - logarithm) > 1e-3) stand_in::misuse("statistics of another forward");
      double mean = 0;
      for (std::int64_t j = 0; j < rows.seen(row); ++j) {
        const std::int64_t other = rows.keyOf(row) + j;
        dp[j] = 0;
        for (std::int64_t e = 0; e < o.valueSize; ++e) {
          const double dyOf = dys[rows.ofQuery(at.y, row, e)];
          dp[j] += dyOf * rows.v[rows.ofKey(at.value, other, e)];
          dv[other * o.valueSize + e] += p[j] * dyOf;
        }
        mean += p[j] * dp[j];
      }
      if (y) { // as cuDNN, which sums over fewer products
        mean = 0;
        for (std::int64_t e = 0; e < o.valueSize; ++e)
          mean += dys[rows.ofQuery(at.y, row, e)] * ys[rows.ofQuery(at.y, row, e)];
      }
      for (std::int64_t j = 0; j < rows.seen(row); ++j) {
        const std::int64_t other = rows.keyOf(row) + j;
        const double score = p[j] * (dp[j] - mean) * o.scale;
        for (std::int64_t e = 0; e < o.size; ++e) {
          dq[row * o.size + e] += score * rows.k[rows.ofKey(at.key, other, e)];
          dk[other * o.size + e] += score * rows.q[rows.ofQuery(at.query, row, e)];
        }
      }
    }
    dq.copyTo(rows.numbers(dquery), o.size, [&](auto row, auto e) { return rows.ofQuery(at.query, row, e); });
    dk.copyTo(rows.numbers(dkey), o.size, [&](auto row, auto e) { return rows.ofKey(at.key, row, e); });
    dv.copyTo(rows.numbers(dvalue), o.valueSize, [&](auto row, auto e) { return rows.ofKey(at.value, row, e); });
  });
}

} // namespace pdcrt::cuda
