// A decoder of one block, whose parts members of a team divide.
#pragma once

#include "pdc/IR/Graph.h"
#include "pdc/IR/OpDef.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace pdc::testing {

struct Sizes {
  std::int64_t batch = 1, positions = 12, heads = 4, groups = 4, size = 2; ///< features of a head
  bool causal = true, drops = false;
  std::string loss = "has_ignore_index = true, ignore_index = 1";
  std::int64_t width() const { return heads * size; }
};

inline std::string typed(const std::vector<std::int64_t>& shape) {
  return "f32" + toString(Shape(shape));
}

/// A block of a decoder between tied words, with learnt positions and dropout.
inline std::string decoder(const Sizes& z) {
  const std::int64_t b = z.batch, s = z.positions, h = z.width(), kv = z.groups * z.size, up = 2 * h;
  const std::string x = typed({b, s, h}), rows = typed({b, s});
  std::string count = "0";
  for (std::int64_t i = 1; i < s; ++i) count += ", " + std::to_string(i);
  std::string text = "module @m {\n  param %words : " + typed({10, h}) + "\n  param %table : " + typed({s + 3, h});
  for (const char* norm : {"first", "second"})
    for (const char* part : {"scale", "shift"})
      text += "\n  param %" + std::string(norm) + "." + part + " : " + typed({h});
  const auto weight = [&](const char* name, std::int64_t from, std::int64_t to) {
    text +=
        "\n  param %" + std::string(name) + " : " + typed({from, to}) + "\n  param %" + name + ".bias : " + typed({to});
  };
  weight("wq", h, h), weight("wk", h, kv), weight("wv", h, kv), weight("wo", h, h), weight("w1", h, up),
      weight("w2", up, h);
  text += "\n  graph @main(%tokens: i64[" + std::to_string(b) + ", " + std::to_string(s) + "], %label: i64[" +
          std::to_string(b) + ", " + std::to_string(s) + "] label) {\n";
  const auto add = [&](const std::string& line) { text += "    " + line + "\n"; };
  const auto norm = [&](const char* to, const char* from, const char* name) {
    add("%" + std::string(to) + ", %" + to + ".m, %" + to + ".d, _, _ = layer_norm %" + from + ", %" + name +
        ".scale, %" + name + ".shift {axis = 2} : " + x + ", " + rows + ", " + rows + ", _, _");
  };
  const auto linear = [&](const char* to, const char* from, const char* name, std::int64_t width) {
    add("%" + std::string(to) + " = linear %" + from + ", %" + name + ", %" + name + ".bias : " + typed({b, s, width}));
  };
  const auto heads = [&](const char* to, const char* from, std::int64_t n) {
    add("%" + std::string(to) + ".apart = reshape %" + from + " {shape = " + toString(Shape{b, s, n, z.size}) +
        "} : " + typed({b, s, n, z.size}));
    add("%" + std::string(to) + " = transpose %" + to +
        ".apart {permutation = [0, 2, 1, 3]} : " + typed({b, n, s, z.size}));
  };
  add("%word = gather %words, %tokens : " + x);
  add("%count = constant {value = dense<i64[" + std::to_string(s) + "], [" + count + "]>} : i64[" + std::to_string(s) +
      "]");
  add("%position = gather %table, %count : " + typed({s, h}));
  add("%sum = add %word, %position : " + x);
  if (z.drops)
    add("%x, %dropped = dropout %sum {op_number = 3, ratio = 0.25} : " + x + ", u8" + toString(Shape{b, s, h}));
  else
    add("%x = tanh %sum : " + x);
  norm("n", "x", "first");
  linear("q.rows", "n", "wq", h), linear("k.rows", "n", "wk", kv), linear("v.rows", "n", "wv", kv);
  heads("q", "q.rows", z.heads), heads("k", "k.rows", z.groups), heads("v", "v.rows", z.groups);
  const std::string y = typed({b, z.heads, s, z.size}), statistic = typed({b, z.heads, s});
  const std::string causal = z.causal ? "true" : "false";
  if (z.drops)
    add("%y, %largest, %inverse, %mask = dropout_attention %q, %k, %v {causal = " + causal +
        ", op_number = 5, ratio = 0.25} : " + y + ", " + statistic + ", " + statistic + ", u8" +
        toString(Shape{b, z.heads, s, s}));
  else
    add("%y, %largest, %inverse = dot_product_attention %q, %k, %v {causal = " + causal + "} : " + y + ", " +
        statistic + ", " + statistic);
  add("%y.turned = transpose %y {permutation = [0, 2, 1, 3]} : " + typed({b, s, z.heads, z.size}));
  add("%y.rows = reshape %y.turned {shape = " + toString(Shape{b, s, h}) + "} : " + x);
  linear("o", "y.rows", "wo", h);
  add("%middle = add %x, %o : " + x);
  norm("n2", "middle", "second");
  linear("up", "n2", "w1", up);
  add("%active = gelu %up : " + typed({b, s, up}));
  linear("down", "active", "w2", h);
  add("%last = add %middle, %down : " + x);
  add("%logits = linear %last, %words {transposed = true} : " + typed({b, s, 10}));
  add("%rows = reshape %logits {shape = " + toString(Shape{b * s, 10}) + "} : " + typed({b * s, 10}));
  add("%labels = reshape %label {shape = [" + std::to_string(b * s) + "]} : i64[" + std::to_string(b * s) + "]");
  add("%loss, %s = softmax_cross_entropy %rows, %labels" + (z.loss.empty() ? "" : " {" + z.loss + "}") + " : f32[], " +
      typed({b * s, 2}));
  return text + "    loss %loss\n  }\n}\n";
}

inline std::int64_t countOf(const Graph& graph, const std::string& op) {
  return std::count_if(graph.operations().begin(), graph.operations().end(),
                       [&](const auto& operation) { return operation->def().name == op; });
}

} // namespace pdc::testing
