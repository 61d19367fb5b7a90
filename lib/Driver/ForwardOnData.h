// A forward on data, before there is a plan: what flags ask of a model that only data tells.
#pragma once

#include "pdc/Driver/Compile.h"
#include "pdc/IR/Graph.h"
#include "pdc/IR/Interpreter.h"
#include "pdcrt/Npy.h"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace pdc {

class ForwardOnData {
public:
  /// `flag` names the data in messages: "--calibrate=DATA".
  ForwardOnData(const Module& module, const OpRegistry& registry, const BatchAxes& batch, std::string flag,
                std::string data, std::int64_t batches, Diagnostics& diags)
      : original_(module), registry_(registry), batch_(batch), flag_(std::move(flag)), data_(std::move(data)),
        batches_(batches), diags_(diags) {}

  /// A copy of the module, whose @main gets outputs of its own; null, with an error reported, where that failed.
  Module* copy();
  /// Runs the copy's @main in a program of one stage on each of the first minibatches. Errors: the data cannot be read,
  /// or has too few samples.
  Status run(const std::function<void(const InterpreterResult&)>& look);

private:
  Graph& graph() { return *module_->findGraph("main"); }
  Status readParameters();
  Status openInputs();
  int axisOf(const Value& input) const;
  std::map<std::string, Tensor> inputsOf(std::int64_t minibatch);

  const Module& original_;
  const OpRegistry& registry_;
  const BatchAxes& batch_;
  const std::string flag_, data_;
  const std::int64_t batches_;
  Diagnostics& diags_;
  std::unique_ptr<Module> module_;
  std::map<std::string, Tensor> parameters_;
  std::map<std::string, pdcrt::NpyFile> files_;
};

} // namespace pdc
