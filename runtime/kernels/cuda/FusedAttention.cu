// See FusedAttention.h. The one file that includes cudnn_frontend, where its headers are: option PDCRT_CUDNN_FRONTEND.
//
// cuDNN keeps one number per row, the logarithm of the sum of exp(score), and the gradient wants y beside it. Where
// nobody has kept y in this layout the gradient computes the forward again, two products more than its five.
#include "FusedAttention.h"

#ifdef PDCRT_CUDNN_FRONTEND

#include "AttentionBias.h"
#include "cuda/support/Libraries.h"
#include "pdcrt/CudaWorkspace.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

namespace pdcrt::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// The tensors' numbers in both graphs.
enum Uid : std::int64_t { query = 1, key, value, bias, y, statistics, dy, dquery, dkey, dvalue };

using Rows = MultiHeadAttention::Rows;
using Part = MultiHeadAttention::Part;

/// [batch, heads, positions, size], row-major, or in rows.
void describe(fe::graph::Tensor_attributes& tensor, Uid uid, std::int64_t batch, std::int64_t heads,
              std::int64_t positions, std::int64_t size, const Part* part) {
  tensor.set_uid(uid).set_dim({batch, heads, positions, size});
  if (part)
    tensor.set_stride({positions * part->row, size, part->row, 1});
  else
    tensor.set_stride({heads * positions * size, positions * size, size, 1});
}

/// What both graphs say alike of the sizes of `o`.
class Description {
public:
  Description(const Attention::Options& options, const std::optional<Rows>& where) : o(options), rows(where) {
    graph.set_io_data_type(o.element == Element::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  Tensor input(Uid uid) {
    fe::graph::Tensor_attributes tensor;
    shape(tensor, uid);
    return graph.tensor(tensor);
  }
  void output(const Tensor& tensor, Uid uid) {
    shape(*tensor, uid);
    tensor->set_output(true);
  }
  template <class Attributes>
  Attributes attributes() {
    Attributes a;
    a.set_name("attention").set_attn_scale(static_cast<float>(o.scale));
    if (o.bias.rank > 0) a.set_bias(input(bias));
    // Query i sees no key after i + keys - queries: the last query is at the last key.
    // (One query sees all keys.)
    if (o.causal && o.queries == o.keys && o.queries > 1)
      a.set_causal_mask(true);
    else if (o.causal && o.queries > 1)
      a.set_causal_mask_bottom_right(true);
    return a;
  }

  const Attention::Options& o;
  const std::optional<Rows>& rows;
  fe::graph::Graph graph;

private:
  void shape(fe::graph::Tensor_attributes& tensor, Uid uid) const {
    switch (uid) {
    case query:
    case dquery: return describe(tensor, uid, o.batch, o.heads, o.queries, o.size, rows ? &rows->query : nullptr);
    case key:
    case dkey: return describe(tensor, uid, o.batch, o.groups, o.keys, o.size, rows ? &rows->key : nullptr);
    case value:
    case dvalue: return describe(tensor, uid, o.batch, o.groups, o.keys, o.valueSize, rows ? &rows->value : nullptr);
    case bias: return describe(tensor, uid, o.bias.dims[0], o.bias.dims[1], o.queries, o.keys, nullptr);
    case y:
    case dy: return describe(tensor, uid, o.batch, o.heads, o.queries, o.valueSize, rows ? &rows->y : nullptr);
    case statistics:
      tensor.set_data_type(fe::DataType_t::FLOAT);
      return describe(tensor, uid, o.batch, o.heads, o.queries, 1, nullptr);
    }
  }
};

/// A graph that can be executed.
struct Built {
  std::unique_ptr<Description> description;
  std::size_t bytes = 0;

  /// False, with the reason: the device does not have it.
  bool build(std::string& why) {
    fe::graph::Graph& graph = description->graph;
    fe::error_t status = graph.build(dnn(), {fe::HeurMode_t::A});
    std::int64_t wanted = 0;
    if (status.is_good()) status = graph.get_workspace_size(wanted);
    if (status.is_bad()) why = "cuDNN: " + status.get_message();
    bytes = static_cast<std::size_t>(std::max<std::int64_t>(wanted, 0));
    return status.is_good();
  }
  void run(Stream& q, std::unordered_map<std::int64_t, void*> tensors, std::byte* workspace) const {
    check(cudnnSetStream(dnn(), streamOf(q)), "cudnnSetStream");
    fe::error_t status = description->graph.execute(dnn(), tensors, workspace);
    if (status.is_bad()) fail("fused attention of cuDNN", status.get_message().c_str());
  }
};

Built forwardOf(const Attention::Options& o, const std::optional<Rows>& rows) {
  Built built = {std::make_unique<Description>(o, rows)};
  Description& d = *built.description;
  const auto results = d.graph.sdpa(d.input(query), d.input(key), d.input(value),
                                    d.attributes<fe::graph::SDPA_attributes>().set_generate_stats(true));
  d.output(results[0], y);
  d.output(results[1], statistics);
  return built;
}

Built gradientOf(const Attention::Options& o, const std::optional<Rows>& rows) {
  Built built = {std::make_unique<Description>(o, rows)};
  Description& d = *built.description;
  const auto results =
      d.graph.sdpa_backward(d.input(query), d.input(key), d.input(value), d.input(y), d.input(dy), d.input(statistics),
                            d.attributes<fe::graph::SDPA_backward_attributes>().set_deterministic_algorithm(true));
  d.output(results[0], dquery);
  d.output(results[1], dkey);
  d.output(results[2], dvalue);
  return built;
}

/// What versions of cuDNN are known to compute wrongly; empty: nothing of this.
std::string knownError(const Attention::Options& o, bool gradient) {
  const std::size_t version = cudnnGetVersion();
  // The lengths of padded keys come from memory of the host that is gone when a recorded graph is launched.
  if (version < 91501) return "older than 9.15.1, which computes wrongly from recorded graphs";
  // Both give NaN where scores are far below zero (cudnn-frontend, issues 628 and 1072).
  if (gradient && o.queries == 1) return "the gradient of one query is not reliable";
  if (gradient && !o.causal && o.keys % 128 == 64 && version < 92600)
    return "older than 9.26, whose gradient is not reliable where 64 keys are left over 128";
  return "";
}

void* mutableOf(const void* operand) {
  return const_cast<void*>(operand);
}

} // namespace

/// The workspace has, from its beginning, the bias as the graphs want it, then what they want and the call does not
/// have: of the forward the statistics, of the gradient those, y and each of the three results. Then comes the
/// library's.
struct FusedAttention::Impl {
  Attention::Options options;
  std::optional<Rows> rows; ///< nothing: heads lie apart
  Built forward, gradient;

  std::size_t statisticsBytes() const {
    return roundedUp(bytesOfFloats(options.batch * options.heads * options.queries));
  }
  std::size_t bytesOf(std::int64_t heads, std::int64_t positions, std::int64_t size) const {
    return roundedUp(static_cast<std::size_t>(options.batch * heads * positions * size) * bytesOf16);
  }
  std::size_t queryBytes() const { return bytesOf(options.heads, options.queries, options.size); }
  std::size_t keyBytes() const { return bytesOf(options.groups, options.keys, options.size); }
  std::size_t valueBytes() const { return bytesOf(options.groups, options.keys, options.valueSize); }
  std::size_t yBytes() const { return bytesOf(options.heads, options.queries, options.valueSize); }

  /// What both graphs read.
  std::unordered_map<std::int64_t, void*> operands(Stream& q, const void* query, const void* key, const void* value,
                                                   const float* bias, std::byte*& workspace) const {
    std::unordered_map<std::int64_t, void*> tensors = {
        {Uid::query, mutableOf(query)}, {Uid::key, mutableOf(key)}, {Uid::value, mutableOf(value)}};
    if (options.bias.rank > 0) {
      spreadBias(q, options, bias, workspace);
      tensors[Uid::bias] = workspace;
      workspace += spreadBiasBytes(options);
    }
    return tensors;
  }

  static constexpr std::size_t bytesOf16 = 2;
};

FusedAttention::FusedAttention(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FusedAttention::~FusedAttention() = default;

std::shared_ptr<const FusedAttention> FusedAttention::make(const Attention::Options& options, const Rows* rows,
                                                           bool gradient, std::string& why) {
  using Sizes = std::tuple<std::string, double, std::int64_t, bool>;
  thread_local std::map<Sizes, std::weak_ptr<const FusedAttention>> made;
  std::weak_ptr<const FusedAttention>& known =
      made[{Attention::profileName(options), options.scale, rows ? rows->key.row : 0, gradient}];
  if (std::shared_ptr<const FusedAttention> shared = known.lock()) return shared;
  if (const std::string error = knownError(options, gradient); !error.empty()) {
    why = "cuDNN: " + error;
    return nullptr;
  }
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  if (rows) impl->rows = *rows;
  impl->forward = forwardOf(impl->options, impl->rows);
  if (!impl->forward.build(why)) return nullptr;
  if (gradient) {
    impl->gradient = gradientOf(impl->options, impl->rows);
    if (!impl->gradient.build(why)) return nullptr;
  }
  std::shared_ptr<const FusedAttention> fused(new FusedAttention(std::move(impl)));
  known = fused;
  return fused;
}

std::size_t FusedAttention::forwardBytes() const {
  return spreadBiasBytes(impl_->options) + impl_->statisticsBytes() + roundedUp(impl_->forward.bytes);
}
std::size_t FusedAttention::gradientBytes() const {
  const Impl& i = *impl_;
  if (!i.gradient.description) return 0;
  return spreadBiasBytes(i.options) + i.statisticsBytes() + i.yBytes() + i.queryBytes() + i.keyBytes() +
         i.valueBytes() + roundedUp(std::max(i.forward.bytes, i.gradient.bytes));
}

void FusedAttention::forward(Stream& q, const void* query, const void* key, const void* value, const float* bias,
                             void* y, float* statistics, std::byte* workspace) const {
  std::unordered_map<std::int64_t, void*> tensors = impl_->operands(q, query, key, value, bias, workspace);
  tensors[Uid::y] = y;
  tensors[Uid::statistics] = statistics ? static_cast<void*>(statistics) : workspace;
  workspace += impl_->statisticsBytes();
  impl_->forward.run(q, std::move(tensors), workspace);
}

void FusedAttention::inputGradient(Stream& q, const void* dy, const void* query, const void* key, const void* value,
                                   const float* bias, const void* y, const float* statistics, void* dquery, void* dkey,
                                   void* dvalue, std::byte* workspace) const {
  std::unordered_map<std::int64_t, void*> tensors = impl_->operands(q, query, key, value, bias, workspace);
  const auto take = [&](std::size_t bytes) {
    void* const place = workspace;
    workspace += bytes;
    return place;
  };
  void* const ownStatistics = take(impl_->statisticsBytes());
  void* const ownY = take(impl_->yBytes());
  void* const queryRoom = take(impl_->queryBytes());
  void* const keyRoom = take(impl_->keyBytes());
  void* const valueRoom = take(impl_->valueBytes());
  tensors[Uid::y] = y ? mutableOf(y) : ownY;
  tensors[Uid::statistics] = y ? mutableOf(statistics) : ownStatistics;
  if (!y) impl_->forward.run(q, tensors, workspace);
  tensors[Uid::dy] = mutableOf(dy);
  tensors[Uid::dquery] = dquery ? dquery : queryRoom;
  tensors[Uid::dkey] = dkey ? dkey : keyRoom;
  tensors[Uid::dvalue] = dvalue ? dvalue : valueRoom;
  impl_->gradient.run(q, std::move(tensors), workspace);
}

} // namespace pdcrt::cuda

#else

namespace pdcrt::cuda {

struct FusedAttention::Impl {};

FusedAttention::FusedAttention(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FusedAttention::~FusedAttention() = default;

std::shared_ptr<const FusedAttention> FusedAttention::make(const Attention::Options&, const MultiHeadAttention::Rows*,
                                                           bool, std::string& why) {
  why = "this runtime was built without the headers of cudnn_frontend";
  return nullptr;
}
std::size_t FusedAttention::forwardBytes() const {
  return 0;
}
std::size_t FusedAttention::gradientBytes() const {
  return 0;
}
void FusedAttention::forward(Stream&, const void*, const void*, const void*, const float*, void*, float*,
                             std::byte*) const {}
void FusedAttention::inputGradient(Stream&, const void*, const void*, const void*, const void*, const float*,
                                   const void*, const float*, void*, void*, void*, std::byte*) const {}

} // namespace pdcrt::cuda

#endif
