// LINK: pdcImport pdcOps
// Mutates texts of the IR and checks that the parser, the verifier and the printer stand it: no crash, an error for
// what does not parse, and for what does parse a text that reads back to the same bytes. Built and run with sanitizers:
//
//   ir_text 100000 [seed]
//
// Exits 1, with the text on standard error, when the round trip fails.
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Ops/AllOps.h"

#include <cstdio>
#include <cstdlib>
#include <random>

using namespace pdc;

namespace {
/// One change: a byte, a stretch left out, doubled, or taken from another text.
std::string mutated(std::string text, const std::vector<std::string>& seeds, std::mt19937_64& random) {
  auto below = [&](std::size_t n) { return n ? random() % n : 0; };
  const std::size_t at = below(text.size()), length = below(std::min<std::size_t>(text.size() - at, 40));
  switch (below(6)) {
  case 0: text[at] = static_cast<char>(random()); break;
  case 1: text.erase(at, length); break;
  case 2: text.insert(at, text.substr(at, length)); break;
  case 3: {
    const std::string& other = seeds[below(seeds.size())];
    text.insert(at, other.substr(below(other.size()), length));
    break;
  }
  case 4: {
    static const char* const pieces[] = {"-1",     "9223372036854775807",
                                         "1e999",  "nan(0x1)",
                                         "\"",     "%",
                                         "[",      "<",
                                         "dense<", "_",
                                         "f32[",   "inf",
                                         "\\x",    "}",
                                         "{",      "(",
                                         "@",      "loc("};
    text.insert(at, pieces[below(std::size(pieces))]);
    break;
  }
  case 5:
    if (text[at] >= '0' && text[at] <= '9') text[at] = static_cast<char>('0' + below(10));
    break;
  }
  return text.empty() ? " " : text;
}
} // namespace

int main(int argc, char** argv) {
  const long iterations = argc > 1 ? std::atol(argv[1]) : 20000;
  std::mt19937_64 random(argc > 2 ? static_cast<std::uint64_t>(std::atol(argv[2])) : 1);
  OpRegistry ops;
  registerAllOps(ops);

  std::vector<std::string> seeds = {
      "module @m from \"a.onnx\" { param %w : f32[2, 3] frozen from \"a.onnx\" at 1 length 24 stored [3, 2] "
      "permutation [1, "
      "0] loc(\"w\") graph @g(%x: f32[3] label, %g: f32[2] gradient from 2) { %y = relu %x : f32[3] <group 1, stage 2> "
      "loc(\"r\") %z = exp %y : f32[3] <W of %y> result \"o\" = %y send gradient %z to 1 } }"};
  for (const OpDef* def : ops.all())
    for (const std::string& example : def->examples) seeds.push_back("module @m { graph @main" + example + " }");

  long parsed = 0;
  for (long i = 0; i < iterations; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (std::uint64_t changes = random() % 4; changes > 0; --changes) text = mutated(std::move(text), seeds, random);
    Diagnostics diags(nullptr);
    const Expected<std::unique_ptr<Module>> module = parseModule(text, "fuzz", ops, diags);
    if (static_cast<bool>(module) == diags.hasErrors()) {
      std::fprintf(stderr, "success and errors disagree:\n%s\n", text.c_str());
      return 1;
    }
    if (!module || !verify(**module, diags)) continue;
    ++parsed;
    const std::string printed = print(**module);
    const Expected<std::unique_ptr<Module>> again = parseModule(printed, "fuzz", ops, diags);
    if (!again || print(**again) != printed) {
      std::fprintf(stderr, "does not read back:\n%s\n", printed.c_str());
      return 1;
    }
  }
  std::printf("%ld of %ld texts parsed\n", parsed, iterations);
  return 0;
}
