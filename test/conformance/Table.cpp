#include "Table.h"

#include <map>
#include <sstream>

using namespace pdc;
using namespace pdc::conformance;

namespace {

const Verdict& verdictOf(const TestResult& result, Engine engine) {
  return engine == Engine::interpreter ? result.interpreter : engine == Engine::cpu ? result.cpu : result.gradient;
}

/// Text for a cell of a table.
std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) result += c == '|' ? std::string("\\|") : c == '\n' ? std::string(" ") : std::string(1, c);
  return result;
}

/// "computed otherwise (3), needs a constant … (1)": the reasons, the most frequent first.
std::string reasonsOf(const std::vector<const TestResult*>& results) {
  std::map<std::string, int> counts;
  for (const TestResult* result : results) {
    const Verdict& i = result->interpreter;
    const Verdict& c = result->cpu;
    if (i.outcome != Outcome::passed)
      ++counts[(i.outcome == Outcome::failed ? "FAILED: " : "") + i.reason];
    else if (c.outcome != Outcome::passed)
      ++counts[std::string(c.outcome == Outcome::failed ? "FAILED" : "generated code") + ": " + c.reason];
    if (result->gradient.outcome == Outcome::failed) ++counts["FAILED: gradient: " + result->gradient.reason];
  }
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [reason, count] : counts) order.emplace_back(-count, reason);
  std::sort(order.begin(), order.end());
  std::string text;
  for (const auto& [count, reason] : order)
    text += (text.empty() ? "" : "; ") + std::to_string(-count) + " × " + escaped(reason);
  return text;
}

} // namespace

Counts pdc::conformance::countsOf(const std::vector<TestResult>& results, Engine engine) {
  Counts counts;
  for (const TestResult& result : results) {
    const Outcome outcome = ::verdictOf(result, engine).outcome;
    ++(outcome == Outcome::passed ? counts.passed : outcome == Outcome::failed ? counts.failed : counts.unsupported);
  }
  return counts;
}

std::string pdc::conformance::page(const std::vector<TestResult>& results, const std::string& title,
                                   const std::string& tests) {
  std::map<std::string, std::vector<const TestResult*>> operators;
  for (const TestResult& result : results) operators[result.opType].push_back(&result);
  std::ostringstream out;
  out << "# " << title
      << "\n\n"
         "`utils/onnx-conformance` writes this page. It runs "
      << tests
      << "\nthrough the interpreter and through generated CPU code:\n\n"
         "- Inputs that must be known when a model is compiled (shapes, axes, sizes) are constants of the model; all\n"
         "  others are data. Models of opsets before 7 are read as opset 7.\n"
         "- Outputs agree as in ONNX's own runner: integers exactly, floats within 10⁻⁷ and 10⁻³ of the value, f16 "
         "and\n"
         "  bf16 within two units in the last place.\n"
         "- Gradients are compared with differences in f64, within 10⁻⁶ of how the outputs change along a random\n"
         "  direction of all inputs. A gradient counts as unsupported where the operator computes no float from "
         "floats,\n"
         "  is not smooth where the test looks at it, or has no gradient.\n"
         "- The last column says why a test does not pass; a test that passes in the interpreter only says so, too.\n\n"
         "| | passed | failed | unsupported |\n|---|---|---|---|\n";
  for (const auto& [engine, name] : {std::pair{Engine::interpreter, "interpreter"},
                                     {Engine::cpu, "generated CPU code"},
                                     {Engine::gradient, "gradients"}}) {
    const Counts c = countsOf(results, engine);
    out << "| " << name << " | " << c.passed << " | " << c.failed << " | " << c.unsupported << " |\n";
  }
  out << "\n## Per operator\n\nA test of the body of a function counts for the function.\n\n"
         "| operator | tests | interpreter | CPU | gradients | not passed |\n|---|---|---|---|---|---|\n";
  for (const auto& [opType, list] : operators) {
    int interpreter = 0, cpu = 0, gradient = 0;
    for (const TestResult* result : list) {
      interpreter += result->interpreter.outcome == Outcome::passed;
      cpu += result->cpu.outcome == Outcome::passed;
      gradient += result->gradient.outcome == Outcome::passed;
    }
    out << "| " << opType << " | " << list.size() << " | " << interpreter << " | " << cpu << " | " << gradient << " | "
        << reasonsOf(list) << " |\n";
  }
  return out.str();
}

std::string pdc::conformance::rows(const std::vector<TestResult>& results, int goal) {
  std::string text;
  const auto add = [&](const char* name, int value, const std::string& stated, const char* holds) {
    text += std::string(text.empty() ? "[" : ",") + "\n {\"name\": \"" + name +
            "\", \"value\": " + std::to_string(value) + ", \"unit\": \"tests\", \"goal\": \"" + stated +
            "\", \"holds\": " + holds + "}";
  };
  const auto passed = [&](const char* name, Engine engine) {
    const int count = countsOf(results, engine).passed;
    const bool hasGoal = goal > 0 && engine != Engine::gradient;
    add(name, count, hasGoal ? ">= " + std::to_string(goal) : "", !hasGoal ? "null" : count >= goal ? "true" : "false");
  };
  passed("interpreter_passed", Engine::interpreter);
  passed("cpu_passed", Engine::cpu);
  passed("gradients_compared", Engine::gradient);
  int wrong = 0;
  for (const Engine engine : {Engine::interpreter, Engine::cpu, Engine::gradient})
    wrong += countsOf(results, engine).failed;
  add("wrong", wrong, "0", wrong == 0 ? "true" : "false");
  return text + "\n]\n";
}
