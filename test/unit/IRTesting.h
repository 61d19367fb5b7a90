// A few ops for tests of the IR itself, which knows none.
#pragma once

#include "pdc/IR/Builder.h"
#include "pdc/IR/Elementwise.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"

#include <gtest/gtest.h>

#include <sstream>

namespace pdc {

/// constant; view; elementwise add, exp, scale (with a number), greater, elementwise (generic); total (kernel: sum of
/// all elements, with an optional second operand and an optional second result, the count); pick (an integer must be
/// below 3).
inline void registerTestOps(OpRegistry& registry) {
  registry.add({.name = "constant",
                .summary = "The attribute",
                .kind = OpKind::constant,
                .results = {{"Y"}},
                .attributes = {{"value", Tensor::scalar(1), std::nullopt, "the tensor"}},
                .infer = [](const InferContext& c) -> Expected<std::vector<Type>> {
                  return std::vector<Type>{c.attributes.get<Tensor>("value").type()};
                }});
  registry.add({.name = "view",
                .summary = "Another shape",
                .kind = OpKind::view,
                .operands = {{"X"}},
                .results = {{"Y"}},
                .attributes = {{"shape", std::vector<std::int64_t>{2}, std::nullopt, "of the result"}},
                .infer = [](const InferContext& c) -> Expected<std::vector<Type>> {
                  const Type type{c.operand(0).element, c.attributes.getInts("shape")};
                  if (type.elements() != c.operand(0).elements()) return c.error() << "other number of elements";
                  return std::vector<Type>{type};
                }});
  auto elementwise = [](std::string name, std::vector<OperandDef> operands, std::string expression) {
    return OpDef{.name = std::move(name),
                 .summary = "Elementwise",
                 .kind = OpKind::elementwise,
                 .operands = std::move(operands),
                 .results = {{"Y"}},
                 .expressions = {std::move(expression)}};
  };
  registry.add(elementwise("add", {{"A"}, {"B"}}, "A + B"));
  registry.add(elementwise("exp", {{"X"}}, "exp(X)"));
  registry.add(elementwise("greater", {{"A"}, {"B"}}, "A > B"));
  OpDef scale = elementwise("scale", {{"X"}}, "alpha * X");
  scale.attributes = {{"alpha", 2.0, 2.0, "the factor"},
                      {"names", std::vector<std::string>{"a"}, std::vector<std::string>{}, "unused"},
                      {"numbers", std::vector<double>{1.5}, std::vector<double>{}, "unused"},
                      {"flag", false, false, "unused"},
                      {"text", std::string("a"), std::string(), "unused"},
                      {"count", std::int64_t{3}, std::int64_t{0}, "unused"}};
  registry.add(scale);
  registry.add({.name = "elementwise",
                .summary = "Any expressions",
                .kind = OpKind::elementwise,
                .operands = {{.name = "a", .variadic = true}},
                .results = {{.name = "y", .variadic = true}},
                .attributes = {{"expressions", std::vector<std::string>{"a0"}, std::nullopt, "one per result"}}});
  registry.add({.name = "total",
                .summary = "Sum of all elements, and their count",
                .operands = {{"X"}, {.name = "start", .optional = true}},
                .results = {{"Y"}, {.name = "count", .optional = true}},
                .infer = [](const InferContext& c) -> Expected<std::vector<Type>> {
                  return std::vector<Type>{{c.operand(0).element, {}}, {ElementType::i64, {}}};
                },
                .reference = reference([]<class T>(ReferenceContext& c) {
                  T sum = c.operands.size() > 1 && c.operands[1] ? c.in<T>(1)[0] : T(0);
                  for (T x : c.in<T>(0)) sum += x;
                  c.out<T>(0)[0] = sum;
                  if (c.results[1]) c.out<std::int64_t>(1)[0] = c.operands[0]->elements();
                })});
  registry.add(
      {.name = "pick",
       .summary = "Its operand, an integer below 3",
       .operands = {{"X"}},
       .results = {{"Y"}},
       .infer = [](const InferContext& c) -> Expected<std::vector<Type>> { return std::vector<Type>{c.operand(0)}; },
       .reference = reference([]<class T>(ReferenceContext& c) {
         const std::int64_t x = c.in<std::int64_t>(0)[0];
         if (x >= 3) c.error = "label " + std::to_string(x) + " is not below 3, the number of classes";
         c.out<std::int64_t>(0)[0] = x;
       })});
}

/// Ops, silent diagnostics, and a parse that must succeed.
class IRTest : public testing::Test {
protected:
  IRTest() { registerTestOps(registry); }

  std::unique_ptr<Module> parse(const std::string& text) {
    Expected<std::unique_ptr<Module>> parsed = parseModule(text, "test.pdir", registry, diags);
    if (!parsed) {
      ADD_FAILURE() << messages();
      return std::make_unique<Module>();
    }
    return std::move(*parsed);
  }
  std::string messages() const {
    std::string text;
    for (const Diagnostic& diagnostic : diags.all()) text += toString(diagnostic);
    return text;
  }

  OpRegistry registry;
  Diagnostics diags{nullptr};
};

} // namespace pdc
