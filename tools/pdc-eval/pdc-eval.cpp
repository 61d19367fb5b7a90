// pdc-eval MODEL.onnx --inputs DIR --outputs DIR: runs a model once on .npy files, or ONNX's .pb.
#include "../CompilerFlags.h"
#include "../ConfigFile.h"
#include "../StandardFlags.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Driver/Evaluate.h"

#include <iostream>
#include <optional>

using namespace pdc;

int main(int argc, char** argv) {
  CLI::App app("Runs a model once, with its stored weights", "pdc-eval");
  addStandardFlags(app);
  EvaluateOptions options;
  options.model.version = PDC_VERSION;
  std::string precision = "f32";
  ModelFlags model;
  model.addTo(app, options.model);
  model.addProgramsTo(app, options.model, false);
  app.add_option(
         "--inputs", options.inputs,
         "folder with NAME.npy for each input and label\nOr with input_0.pb, input_1.pb, … as ONNX's tests have them.")
      ->type_name("DIR")
      ->required();
  app.add_option("--outputs", options.outputs, "folder to write")->type_name("DIR")->required();
  app.add_option("--engine", options.engine,
                 "what computes\ninterpreter: the definition of each op, slow. cpu: generated code.")
      ->check(CLI::IsMember({"interpreter", "cpu"}))
      ->type_name("interpreter|cpu")
      ->capture_default_str();
  app.add_option("--precision", precision, "element type of the interpreter")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->type_name("f32|f64")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "seed of random operators")->type_name("SEED");
  CLI::Option* const gradients =
      app.add_flag("--gradients", options.gradients, "write the loss and the gradient of each parameter too");
  app.add_flag("--unfused", options.unfused, "call a kernel for each operation, no fused ones")->needs(gradients);
  addConfigFlag(app);
  if (const std::optional<int> code = parsed(app, argc, argv)) return *code;
  options.inDouble = precision == "f64";
  Diagnostics diags(&std::cerr);
  if (model.apply(options.model, diags)) (void)evaluate(options, diags);
  return exitCodeOf(diags);
}
