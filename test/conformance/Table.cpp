#include "Table.h"

#include <map>
#include <sstream>

using namespace pdc;
using namespace pdc::conformance;

namespace {

constexpr int goal = 650; ///< of ONNX 1.12's 932 tests

const Verdict& verdictOf(const TestResult& result, Engine engine) {
  return engine == Engine::interpreter ? result.interpreter : result.cpu;
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

std::string pdc::conformance::page(const std::vector<TestResult>& results, const std::string& tests) {
  std::map<std::string, std::vector<const TestResult*>> operators;
  for (const TestResult& result : results) operators[result.opType].push_back(&result);
  std::ostringstream out;
  out << "# Conformance\n\n"
         "Written by `utils/onnx-conformance`, which runs "
      << tests
      << " through\nthe interpreter and through generated CPU code. Inputs that must be known when a model is compiled "
         "(shapes, axes, sizes) are\nconstants of the model; all others are data. Outputs agree as in ONNX's own "
         "runner: integers "
         "exactly, floats within 10⁻⁷\nand 10⁻³ of the value, f16 and bf16 within two units in the last place. Models "
         "of opsets before 7 are read as opset 7. Of each "
         "operator, what does not pass says why; what\npasses in the interpreter only says so.\n\n"
         "| | passed | failed | unsupported |\n|---|---|---|---|\n";
  for (const Engine engine : {Engine::interpreter, Engine::cpu}) {
    const Counts c = countsOf(results, engine);
    out << "| " << (engine == Engine::interpreter ? "interpreter" : "generated CPU code") << " | " << c.passed << " | "
        << c.failed << " | " << c.unsupported << " |\n";
  }
  out << "\n## Per operator\n\nA test of the body of a function counts for the function.\n\n"
         "| operator | tests | interpreter | CPU | not passed |\n|---|---|---|---|---|\n";
  for (const auto& [opType, list] : operators) {
    int interpreter = 0, cpu = 0;
    for (const TestResult* result : list) {
      interpreter += result->interpreter.outcome == Outcome::passed;
      cpu += result->cpu.outcome == Outcome::passed;
    }
    out << "| " << opType << " | " << list.size() << " | " << interpreter << " | " << cpu << " | " << reasonsOf(list)
        << " |\n";
  }
  return out.str();
}

std::string pdc::conformance::rows(const std::vector<TestResult>& results) {
  const auto row = [&](const char* name, Engine engine) {
    const int passed = countsOf(results, engine).passed;
    return std::string(" {\"name\": \"") + name + "\", \"value\": " + std::to_string(passed) +
           ", \"unit\": \"tests\", \"goal\": \">= " + std::to_string(goal) +
           "\", \"holds\": " + (passed >= goal ? "true" : "false") + "}";
  };
  return "[\n" + row("interpreter_passed", Engine::interpreter) + ",\n" + row("cpu_passed", Engine::cpu) + "\n]\n";
}
