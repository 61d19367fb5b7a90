// What a run of ONNX's tests found, per operator, as a page of docs/ and as rows of numbers.
#pragma once

#include "NodeTest.h"

#include <string>
#include <vector>

namespace pdc::conformance {

struct TestResult {
  std::string test, opType;
  Verdict interpreter, cpu, gradient;
};

struct Counts {
  int passed = 0, failed = 0, unsupported = 0;
};
enum class Engine { interpreter, cpu, gradient };
Counts countsOf(const std::vector<TestResult>& results, Engine engine);

/// docs/Conformance.md. `tests` says which tests these are.
std::string page(const std::vector<TestResult>& results, const std::string& title, const std::string& tests);
/// [{"name": "interpreter_passed", "value": 700, …}, …]. `goal`: how many should pass; 0: none is stated.
std::string rows(const std::vector<TestResult>& results, int goal);

} // namespace pdc::conformance
