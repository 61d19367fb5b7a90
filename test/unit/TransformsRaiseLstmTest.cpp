// LINK: pdcTransforms pdcOps
// LSTM cells in exporters' pieces, and layers that were unrolled: what `raise` makes one op of, and what it leaves
// alone. The interpreter computes every graph before and after, the result and the gradients of all parameters.
#include "TransformsTesting.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

constexpr int steps = 3;

/// How a model says an LSTM layer of 4 units over 3 steps of 2 rows, %x: f32[3, 2, 5].
struct Spelling {
  std::string blocks = "ifco"; ///< the gates' places
  bool activatedFirst = false; ///< the sigmoids of all gates at once, then their blocks
  bool projectedAtOnce = true; ///< the inputs' part of all steps, then its rows; else step by step
  bool turned = false;         ///< weights [inputs, outputs]
  bool reverse = false;        ///< from the last step to the first
  bool batchFirst = false;     ///< the result is [2, 3, 4]
  bool zeros = true;           ///< the states before the first step; else inputs
  bool usesLast = false;       ///< the last cells too, behind the layer
  bool feedsBack = false;      ///< a step's input depends on the state before
  bool usesState = false;      ///< something before the end reads a state in the middle
  std::string forget = "sigmoid";
  bool oneBlockTwice = false;
};

class Text {
public:
  explicit Text(const Spelling& s) : s_(s) {}

  std::string operator()() {
    if (s_.projectedAtOnce) line("p", linear("x", "w", "b"), "[3, 2, 16]");
    std::string h = "zero", c = "zero";
    if (s_.zeros)
      line("zero", "constant {value = dense<f32[1, 2, 4], [0, 0, 0, 0, 0, 0, 0, 0]>}", "[1, 2, 4]");
    else
      h = "first_h", c = "first_c";
    std::vector<std::string> states(steps);
    for (int n = 0; n < steps; ++n) {
      const int t = s_.reverse ? steps - 1 - n : n;
      step(t, h, c);
      h = "h" + std::to_string(n), c = "c" + std::to_string(n);
      line(c, "add " + at("keep", n) + ", " + at("add", n));
      line(at("squash", n).substr(1), "tanh %" + c);
      line(h, "mul " + at("o", n) + ", " + at("squash", n));
      if (n == 1 && s_.usesState) line("early", "neg %" + h);
      states[static_cast<std::size_t>(t)] = "%" + h;
    }
    finish(states, c);
    return head() + body_;
  }

private:
  static std::string at(const std::string& name, int n) { return "%" + name + std::to_string(n); }

  std::string head() const {
    std::string text = "module @m {\n  param %w : f32" + std::string(s_.turned ? "[5, 16]" : "[16, 5]") +
                       "\n  param %r : f32" + (s_.turned ? "[4, 16]" : "[16, 4]") +
                       "\n  param %b : f32[16]\n  param %rb : f32[16]\n" +
                       (s_.feedsBack ? "  param %u : f32[5, 4]\n" : "") + "  graph @main(";
    if (!s_.zeros) return text + "%x: f32[3, 2, 5], %first_h: f32[1, 2, 4], %first_c: f32[1, 2, 4]) {\n";
    return text + "%x: f32[3, 2, 5]) {\n";
  }

  void line(const std::string& result, const std::string& what, const std::string& shape = "[1, 2, 4]") {
    body_ += "    %" + result + " = " + what + " : f32" + shape + "\n";
  }
  std::string linear(const std::string& x, const std::string& weight, const std::string& bias) const {
    return "linear %" + x + ", %" + weight + ", %" + bias + (s_.turned ? "" : " {transposed = true}");
  }
  static std::string part(const std::string& of, int axis, int begin, const std::string& sizes) {
    const std::string starts = axis == 0 ? std::to_string(begin) + ", 0, 0" : "0, 0, " + std::to_string(begin);
    return "slice %" + of + " {sizes = " + sizes + ", starts = [" + starts + "], steps = [1, 1, 1]}";
  }

  /// %keepN, %addN and %oN of the step at position t.
  void step(int t, const std::string& h, const std::string& c) {
    const int n = count_++;
    const std::string number = std::to_string(n);
    std::string input = "in" + number;
    if (s_.projectedAtOnce) {
      line(input, part("p", 0, t, "[1, 2, 16]"), "[1, 2, 16]");
    } else {
      line("x" + number, part("x", 0, t, "[1, 2, 5]"), "[1, 2, 5]");
      std::string from = "x" + number;
      if (s_.feedsBack) {
        line("fed" + number, "linear %" + h + ", %u {transposed = true}", "[1, 2, 5]");
        line("sum" + number, "add %" + from + ", %fed" + number, "[1, 2, 5]");
        from = "sum" + number;
      }
      line(input, linear(from, "w", "b"), "[1, 2, 16]");
    }
    line("rec" + number, linear(h, "r", "rb"), "[1, 2, 16]");
    line("all" + number, "add %rec" + number + ", %" + input, "[1, 2, 16]");
    if (s_.activatedFirst) line("sig" + number, "sigmoid %all" + number, "[1, 2, 16]");
    for (char name : {'i', 'f', 'o'}) gate(name, n, name == 'f' ? s_.forget : "sigmoid");
    gate('g', n, "tanh");
    line("keep" + number, "mul %f" + number + ", %" + c);
    line("add" + number, "mul %i" + number + ", %g" + number);
  }

  void gate(char name, int n, const std::string& activation) {
    const std::string number = std::to_string(n), result = name + number;
    int block = static_cast<int>(s_.blocks.find(name == 'g' ? 'c' : name));
    if (s_.oneBlockTwice && name == 'o') block = static_cast<int>(s_.blocks.find('i'));
    if (s_.activatedFirst && activation == "sigmoid") {
      line(result, part("sig" + number, 2, 4 * block, "[1, 2, 4]"));
      return;
    }
    line("cut" + result, part("all" + number, 2, 4 * block, "[1, 2, 4]"));
    line(result, activation + " %cut" + result);
  }

  void finish(const std::vector<std::string>& states, const std::string& cells) {
    std::string list;
    for (std::size_t i = 0; i < states.size(); ++i) {
      std::string state = states[i];
      if (s_.batchFirst) {
        line("b" + std::to_string(i), "reshape " + state + " {shape = [2, 1, 4]}", "[2, 1, 4]");
        state = "%b" + std::to_string(i);
      }
      list += (list.empty() ? "" : ", ") + state;
    }
    const std::string shape = s_.batchFirst ? "[2, 3, 4]" : "[3, 2, 4]";
    line("states", "concat " + list + " {axis = " + (s_.batchFirst ? "1" : "0") + "}", shape);
    std::string y = "states";
    if (s_.usesLast) line(y = "y", "mul %states, %" + cells, shape);
    if (s_.usesState) line(y = "z", "add %states, %early", shape);
    body_ += "    result \"y\" = %" + y + "\n  }\n}\n";
  }

  const Spelling& s_;
  std::string body_;
  int count_ = 0;
};

/// "linear lstm": the ops that are left, of those that say what was recognised.
std::string opsOf(const Graph& graph) {
  std::string names;
  for (const auto& operation : graph.operations()) {
    const std::string& name = operation->def().name;
    if (name == "lstm" || name == "sigmoid" || name == "linear" || name == "concat")
      names += (names.empty() ? "" : " ") + name +
               (name == "lstm" && operation->attributes.get<bool>("reverse") ? " in reverse" : "");
  }
  return names;
}

/// Raises the graph, whose result and gradients must stay, and returns what is left.
std::string raised(const Spelling& spelling) {
  const std::string text = Text(spelling)();
  Model model(text);
  if (!model.module) return "does not parse";
  const Tensors inputs = randomInputs(model.main(), 3), parameters = randomParameters(*model.module, 4);
  const Tensors before = squaresOf(text, false, inputs, parameters), after = squaresOf(text, true, inputs, parameters);
  EXPECT_EQ(before.size(), after.size());
  EXPECT_GE(before.size(), 5u); // y and the gradients of four weights
  for (const auto& [name, tensor] : before) {
    if (!after.contains(name)) return name + " is lost";
    EXPECT_EQ(tensor.type(), after.at(name).type());
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      EXPECT_NEAR(after.at(name).asDouble(i), tensor.asDouble(i), 1e-12) << name << "\n" << text;
  }
  model.run(pdc::raise);
  return opsOf(model.main());
}

const char* const pieces = "sigmoid sigmoid sigmoid";

} // namespace

TEST(RaiseLstm, AnUnrolledLayerBecomesOne) {
  EXPECT_EQ(raised({}), "linear lstm");
  EXPECT_EQ(raised({.zeros = false}), "linear lstm");
  EXPECT_EQ(raised({.turned = true}), "linear lstm");
  EXPECT_EQ(raised({.batchFirst = true}), "linear lstm");
}

TEST(RaiseLstm, InWhicheverOrderTheGatesAre) {
  for (const char* blocks : {"ifco", "iofc", "cfoi", "fico"}) {
    EXPECT_EQ(raised({.blocks = blocks}), "linear lstm") << blocks;
    EXPECT_EQ(raised({.blocks = blocks, .activatedFirst = true}), "linear lstm") << blocks;
  }
}

TEST(RaiseLstm, ProductsOfTheInputsBecomeOne) {
  EXPECT_EQ(raised({.projectedAtOnce = false}), "linear lstm");
  EXPECT_EQ(raised({.projectedAtOnce = false, .turned = true, .reverse = true}), "linear lstm in reverse");
}

TEST(RaiseLstm, FromTheLastStepToTheFirst) {
  EXPECT_EQ(raised({.reverse = true}), "linear lstm in reverse");
  EXPECT_EQ(raised({.reverse = true, .batchFirst = true, .zeros = false}), "linear lstm in reverse");
}

TEST(RaiseLstm, LastCellsMayBeUsedBehindTheLayer) {
  EXPECT_EQ(raised({.usesLast = true}), "linear lstm");
  EXPECT_EQ(raised({.reverse = true, .usesLast = true}), "linear lstm in reverse");
}

TEST(RaiseLstm, AStepWhoseInputDependsOnTheStateIsALayerOfOneStep) {
  EXPECT_EQ(raised({.projectedAtOnce = false, .feedsBack = true}),
            "linear linear lstm linear linear lstm linear linear lstm concat");
}

TEST(RaiseLstm, StepsWhoseStatesAreReadOnTheWayStayApart) {
  EXPECT_EQ(raised({.usesState = true}), "linear lstm lstm lstm concat");
}

TEST(RaiseLstm, NotFromNearMisses) {
  EXPECT_TRUE(raised({.forget = "tanh"}).find("lstm") == std::string::npos);
  EXPECT_TRUE(raised({.oneBlockTwice = true}).find(pieces) != std::string::npos);
  EXPECT_TRUE(raised({.oneBlockTwice = true}).find("lstm") == std::string::npos);
}
