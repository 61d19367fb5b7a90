// What oneDNN's post-ops would save: a convolution and a pass for the ReLU behind it, against both in one primitive.
// The shapes are VGG-16's (minibatch 4), one thread. For docs/decisions/0005-cpu-kernels.md.
#include <benchmark/benchmark.h>

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using dnnl::memory;

/// Memory of this layout, aligned, of values of both signs.
class Tensor {
public:
  explicit Tensor(const memory::desc& layout)
      : lines_(layout.get_size() / sizeof(Line) + 1), memory_(layout, engine(), lines_.data()) {
    float value = -1;
    for (Line& line : lines_)
      for (float& element : line.elements) element = value = value > 1 ? -1 : value + 0.01f;
  }
  static const dnnl::engine& engine() {
    static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
    return instance;
  }
  operator const memory&() const { return memory_; }

private:
  struct alignas(64) Line {
    std::array<float, 16> elements;
  };
  std::vector<Line> lines_;
  memory memory_;
};

void convolve(benchmark::State& state, std::int64_t inputs, std::int64_t outputs, std::int64_t size, bool asPostOp) {
  const auto blocked = [&](std::int64_t channels) {
    return memory::desc({4, channels, size, size}, memory::data_type::f32, memory::format_tag::nChw16c);
  };
  const memory::desc w({outputs, inputs, 3, 3}, memory::data_type::f32, memory::format_tag::any),
      b({outputs}, memory::data_type::f32, memory::format_tag::a);
  dnnl::primitive_attr attributes;
  if (asPostOp) {
    dnnl::post_ops behind;
    behind.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(behind);
  }
  const dnnl::convolution_forward::primitive_desc descriptor({dnnl::prop_kind::forward_training,
                                                              dnnl::algorithm::convolution_winograd,
                                                              blocked(inputs),
                                                              w,
                                                              b,
                                                              blocked(outputs),
                                                              {1, 1},
                                                              {1, 1},
                                                              {1, 1}},
                                                             attributes, Tensor::engine());
  const dnnl::convolution_forward primitive(descriptor);
  const dnnl::eltwise_forward relu(
      {{dnnl::prop_kind::forward_training, dnnl::algorithm::eltwise_relu, descriptor.dst_desc(), 0, 0},
       Tensor::engine()});
  const Tensor x(descriptor.src_desc()), filter(descriptor.weights_desc()), bias(b);
  const Tensor y(descriptor.dst_desc()), activated(descriptor.dst_desc());
  dnnl::stream stream(Tensor::engine());
  for (auto iteration : state) {
    primitive.execute(stream,
                      {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, filter}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, y}});
    if (asPostOp) continue;
    relu.execute(stream, {{DNNL_ARG_SRC, y}, {DNNL_ARG_DST, activated}});
  }
}

} // namespace

int main(int argc, char** argv) {
  struct {
    std::int64_t inputs, outputs, size;
  } const layers[] = {{64, 64, 224}, {128, 128, 112}, {256, 256, 56}, {512, 512, 28}, {512, 512, 14}};
  for (const auto& [inputs, outputs, size] : layers)
    for (const bool asPostOp : {false, true})
      benchmark::RegisterBenchmark(
          (std::to_string(outputs) + "x" + std::to_string(size) + (asPostOp ? "/postOp" : "/pass")).c_str(),
          [=, inputs = inputs, outputs = outputs, size = size](benchmark::State& state) {
            convolve(state, inputs, outputs, size, asPostOp);
          })
          ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
