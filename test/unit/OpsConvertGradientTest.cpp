// LINK: pdcTransforms pdcOps
// Gradients through operators that are composed of several ops, against central differences in f64. (Those of single
// ops are tested for every op in the registry.)
#include "OpsNode.h"

#include "pdc/Transforms/Transforms.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

using Ints = std::vector<std::int64_t>;

/// A converted node whose float inputs are trained parameters, with the sum of output 0 times fixed numbers as loss.
class Trained {
public:
  explicit Trained(Node& node) : module_(node.module()), graph_(node.graph()) {
    Inputs random(2);
    inputs_ = random.of(graph_);
    for (std::size_t i = graph_.inputs.size(); i-- > 0;)
      if (isFloat(graph_.inputs[i].value->type().element)) makeParameter(i);
    addLoss(random);
  }

  void check() {
    std::map<std::string, Tensor> expected;
    for (const auto& [name, value] : std::map(parameters_)) expected.emplace(name, differences(name));
    Diagnostics diags(nullptr);
    PassContext context{module_, allOps(), diags, {}};
    ASSERT_TRUE(differentiate(context)) << messages(diags);
    ASSERT_TRUE(verify(module_, diags)) << messages(diags) << print(module_);
    const auto actual = interpret(graph_, inputs_, parameters_, Precision::f64, diags);
    ASSERT_TRUE(actual) << messages(diags);
    for (const auto& [name, tensor] : expected) {
      const auto found = actual->gradients.find(name);
      ASSERT_NE(found, actual->gradients.end()) << name;
      EXPECT_LT(errorOf(found->second, tensor), 1e-6) << "gradient of " << name << " in " << print(module_);
    }
  }

private:
  void makeParameter(std::size_t i) {
    Value* input = graph_.inputs[i].value;
    const std::string name = input->name();
    Parameter* parameter = module_.addParameter({.name = name, .type = input->type(), .reference = {}, .location = {}});
    graph_.replaceAllUses(input, graph_.parameterValue(*parameter));
    parameters_[name] = inputs_.at(name).convertedTo(ElementType::f64);
    inputs_.erase(name);
    graph_.inputs.erase(graph_.inputs.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void addLoss(Inputs& random) {
    Diagnostics diags(nullptr);
    Builder b(module_, graph_, allOps(), diags);
    Value* y = graph_.outputs.front().value;
    Ints axes;
    for (int axis = 0; axis < y->type().rank(); ++axis) axes.push_back(axis);
    Value* weighted = b.value("mul", {y, b.constant(random.make(y->type(), "weight"))});
    graph_.outputs = {{.kind = OutputKind::loss,
                       .value = b.value("reduce_sum", {weighted}, {{"axes", axes}}),
                       .name = {},
                       .parameter = nullptr}};
  }

  double loss() {
    Diagnostics diags(nullptr);
    const auto result = interpret(graph_, inputs_, parameters_, Precision::f64, diags);
    EXPECT_TRUE(result) << messages(diags);
    return result ? result->loss : 0;
  }

  Tensor differences(const std::string& name) {
    Tensor& values = parameters_.at(name);
    Tensor result(values.type());
    const double step = 1e-5;
    for (std::int64_t i = 0; i < values.elements(); ++i) {
      const double value = values.asDouble(i);
      values.set(i, value + step);
      const double above = loss();
      values.set(i, value - step);
      result.set(i, (above - loss()) / (2 * step));
      values.set(i, value);
    }
    return result;
  }

  Module& module_;
  Graph& graph_;
  std::map<std::string, Tensor> inputs_, parameters_;
};

void check(Node& node) {
  ASSERT_TRUE(node.convert()) << node.error();
  Trained(node).check();
}

} // namespace

TEST(GradientOfComposition, Normalisations) {
  Node group("GroupNormalization", 21), instance("InstanceNormalization", 6), local("LRN", 13),
      variance("MeanVarianceNormalization", 13);
  check(group.floats({2, 4, 3}).floats({4}).floats({4}).attribute("num_groups", std::int64_t{2}));
  check(instance.floats({2, 3, 2, 2}).floats({3}).floats({3}));
  check(local.floats({2, 5, 3}).attribute("size", std::int64_t{3}).attribute("alpha", 0.3));
  check(variance.floats({2, 2, 2, 2}));
}

TEST(GradientOfComposition, Convolutions) {
  Node volume("Conv", 11), line("ConvTranspose", 11), transposed("ConvTranspose", 11);
  check(volume.floats({1, 2, 3, 4, 3}).floats({2, 1, 2, 2, 3}).floats({2}).attribute("group", std::int64_t{2}));
  check(line.floats({2, 4, 3})
            .floats({4, 1, 3})
            .floats({2})
            .attribute("group", std::int64_t{2})
            .attribute("strides", Ints{2})
            .attribute("output_padding", Ints{1}));
  check(transposed.floats({1, 2, 2, 2, 2}).floats({2, 1, 2, 2, 2}).attribute("strides", Ints{2, 1, 2}));
}

TEST(GradientOfComposition, Poolings) {
  Node volume("MaxPool", 12), mean("AveragePool", 17), norm("LpPool", 17);
  check(volume.floats({1, 2, 3, 4, 4}).attribute("kernel_shape", Ints{2, 2, 2}));
  check(mean.floats({1, 2, 5, 5}).attribute("kernel_shape", Ints{2, 2}).attribute("dilations", Ints{2, 1}));
  check(norm.floats({1, 2, 5}).attribute("kernel_shape", Ints{2}).attribute("p", std::int64_t{3}));
}

TEST(GradientOfComposition, Resize) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    Node larger("Resize", 19), smaller("Resize", 19);
    check(larger.floats({1, 2, 3, 3})
              .constant(Tensor::ofFloats({0}, std::vector<double>{}))
              .constant(Tensor::ofFloats({4}, std::vector<double>{1, 1, 2, 1.7}))
              .attribute("mode", std::string(mode)));
    check(smaller.floats({1, 1, 5, 4})
              .constant(Tensor::ofFloats({0}, std::vector<double>{}))
              .constant(Tensor::ofFloats({0}, std::vector<double>{}))
              .integers({1, 1, 3, 2})
              .attribute("mode", std::string(mode))
              .attribute("antialias", std::int64_t{mode[0] != 'n'}));
  }
}

// Of the image and of the grid, whose positions are no whole pixels.
TEST(GradientOfComposition, GridSample) {
  for (const char* mode : {"bilinear", "bicubic"})
    for (const char* padding : {"zeros", "reflection"}) {
      Node node("GridSample", 16);
      check(node.floats({1, 2, 3, 4})
                .floats({1, 2, 2, 2})
                .attribute("mode", std::string(mode))
                .attribute("padding_mode", std::string(padding)));
    }
}

TEST(GradientOfComposition, AttentionWhereAQuerySeesNoKey) {
  Node node("Attention", 23);
  check(node.floats({1, 4, 2, 3})
            .floats({1, 2, 3, 3})
            .floats({1, 2, 3, 3})
            .constant(Tensor::ofInts({2, 3}, Ints{0, 0, 0, 1, 0, 1}, ElementType::boolean))
            .attribute("softcap", 3.0));
}

TEST(GradientOfComposition, RotaryEmbeddingAndBlocks) {
  Node rotary("RotaryEmbedding", 23), depth("DepthToSpace", 13);
  check(rotary.floats({1, 2, 8})
            .floats({1, 2, 2})
            .floats({1, 2, 2})
            .attribute("num_heads", std::int64_t{2})
            .attribute("interleaved", std::int64_t{1}));
  check(depth.floats({1, 8, 1, 2}).attribute("blocksize", std::int64_t{2}));
}

TEST(GradientOfComposition, RunningProductsBlocksAndGrids) {
  Node products("CumProd", 26), blocks("Col2Im", 18), grid("AffineGrid", 20);
  check(products.floats({2, 5}).integers({1}).attribute("reverse", std::int64_t{1}));
  check(blocks.floats({1, 4, 4}).integers({3, 3}).integers({2, 2}));
  check(grid.floats({2, 2, 3}).integers({2, 1, 2, 3}));
}

TEST(GradientOfComposition, Determinants) {
  for (std::int64_t size : {1, 2, 3, 5}) {
    Node node("Det", 22);
    check(node.floats({2, size, size}));
  }
}
