// pdc-eval MODEL.onnx --inputs DIR --outputs DIR: runs a model once on .npy files, or ONNX's .pb.
#include "../CompilerFlags.h"
#include "../StandardFlags.h"
#include "pdc/Driver/CommandLine.h"
#include "pdc/Driver/Evaluate.h"

#include <iostream>

using namespace pdc;

int main(int argc, char** argv) {
  CLI::App app("Runs a model once, with its stored weights", "pdc-eval");
  addStandardFlags(app);
  EvaluateOptions options;
  options.model.version = PDC_VERSION;
  std::string precision = "f32";
  ModelFlags model;
  model.addTo(app, options.model);
  app.add_option("--inputs", options.inputs,
                 "folder with NAME.npy for each input (and label), or input_0.pb, … of ONNX's tests")
      ->type_name("DIR")
      ->required();
  app.add_option("--outputs", options.outputs, "folder to write")->type_name("DIR")->required();
  app.add_option("--engine", options.engine, "the slow, obvious one, or generated code")
      ->check(CLI::IsMember({"interpreter", "cpu"}))
      ->type_name("interpreter|cpu")
      ->capture_default_str();
  app.add_option("--precision", precision, "of the interpreter")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->type_name("f32|f64")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of random operators");
  CLI::Option* const gradients =
      app.add_flag("--gradients", options.gradients, "also the loss, and one gradient per parameter");
  app.add_flag("--unfused", options.unfused, "with one kernel for each operation, none for several")->needs(gradients);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  options.inDouble = precision == "f64";
  Diagnostics diags(&std::cerr);
  if (model.apply(options.model, diags)) (void)evaluate(options, diags);
  return exitCodeOf(diags);
}
