#include "Weights/ExporterWarnings.h"

#include "Buffers.h"
#include "EqualInitializers.h"
#include "Operators.h"
#include "pdc/Support/Names.h"

#include <algorithm>
#include <map>
#include <set>

using namespace pdc;

namespace {

/// "'a', 'b', 'c' and 4 more".
std::string firstOf(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i)
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  if (names.size() > 3) text += " and " + std::to_string(names.size() - 3) + " more";
  return text;
}

bool isConvolution(const onnx::NodeProto& node) {
  return node.op_type() == "Conv" || node.op_type() == "ConvTranspose";
}

class ExporterWarnings {
public:
  ExporterWarnings(const OnnxFile& file, const ExportedProgram& program, const ValueUses& uses,
                   const std::vector<Initializer>& list, Diagnostics& diags)
      : file_(file), program_(program), uses_(uses), list_(list), diags_(diags) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].role == InitializerRole::trained) trained_.insert(nameOf(i));
  }

  void run() {
    warnOfRenamed();
    warnOfFoldedBatchNorms();
    warnOfIdentities();
    if (program_.isKnown()) {
      remarkOnOtherForms();
      warnOfComputed();
      warnOfLacking();
    }
    warnOfShared();
  }

private:
  const std::string& nameOf(std::size_t i) const { return file_.graph().initializer(static_cast<int>(i)).name(); }
  Diagnostics::Builder warning() const { return diags_.warning({.file = file_.path()}); }

  /// Whether all uses are weights or biases of products: then the number is another name of a parameter.
  bool isOfProduct(const std::string& name) const {
    const InitializerUses& uses = uses_.of(name);
    return std::all_of(uses.begin(), uses.end(), [](const InitializerUse& use) {
      const std::string& type = use.node->op_type();
      return isConvolution(*use.node) || type == "MatMul" || type == "Gemm" || type == "LSTM" || type == "GRU" ||
             type == "RNN" || type == "Gather" || type == "Identity";
    });
  }

  /// PyTorch's older exporter gives numbers to what constant folding computes.
  void warnOfRenamed() {
    std::vector<std::string> renamed, others;
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (trained_.contains(nameOf(i)) && nameOf(i).starts_with("onnx::"))
        (isOfProduct(nameOf(i)) ? renamed : others).push_back(nameOf(i));
    const auto& nodes = file_.graph().node();
    const bool dropout = std::any_of(nodes.begin(), nodes.end(), isDropout);
    if (!renamed.empty())
      warning().help(keepNamesInTraining)
          << "the exporter's constant folding has renamed " << counted(renamed.size(), "trained parameter") << ", '"
          << renamed.front() << "' among them"
          << (dropout ? "" : "; Dropout, where the network has it, was left out with them");
    if (!others.empty())
      warning().help(keepNamesInTraining).help("--freeze='" + patternOf(others) + "' keeps them as they are")
          << "the exporter computed " << counted(others.size(), "trained value") << " from parameters or buffers, '"
          << others.front() << "' among them: where these are parameters, the file lacks them";
  }

  void warnOfFoldedBatchNorms() {
    std::size_t convolutions = 0, others = 0;
    for (const onnx::NodeProto& node : file_.graph().node()) {
      if (!hasFoldedBatchNorm(node, program_.isKnown())) continue;
      ++(isConvolution(node) ? convolutions : others);
      batchNorms_.insert(scopeOf(node).path);
      isNew_ |= program_.isKnown() || !node.input(1).starts_with("onnx::");
    }
    if (convolutions + others == 0) return;
    const std::string where = convolutions == 0 ? counted(others, "linear layer")
                              : others == 0     ? counted(convolutions, "convolution")
                                                : counted(convolutions + others, "convolution") + " and linear layers";
    std::vector<std::string> gone;
    std::size_t parameters = 0;
    for (const std::string& name : program_.names()) {
      parameters += program_.isParameter(name);
      if (isLacking(name) && batchNorms_.contains(moduleOf(name))) gone.push_back(name);
    }
    Diagnostic diagnostic{.severity = Severity::warning, .location = {.file = file_.path()}};
    diagnostic.message = "the exporter folded BatchNormalization into " + where + ", trained without it";
    if (!gone.empty())
      diagnostic.notes = {std::to_string(gone.size()) + " of the module's " + counted(parameters, "parameter") +
                          (gone.size() == 1 ? " is gone: " : " are gone: ") + firstOf(gone)};
    diagnostic.helps = {isNew_ ? keepNamesWithoutOptimizer : keepNamesInTraining};
    diags_.report(std::move(diagnostic));
  }

  void warnOfIdentities() {
    std::vector<std::string> merged;
    for (const onnx::NodeProto& node : file_.graph().node())
      if (node.op_type() == "Identity" && node.input_size() == 1 && trained_.contains(node.input(0)))
        merged.push_back(node.input(0));
    if (!merged.empty())
      warning().help(keepNamesInTraining)
          << counted(merged.size(), "use") << " of trained parameters through Identity, '" << merged.front()
          << "' among them: they are trained as one, as a tied matrix is, or the weight of a "
             "module that is called again";
  }

  // What the default exporter says.

  bool isLacking(const std::string& name) const { return program_.isParameter(name) && !program_.isInFile(name); }

  std::vector<std::string> folded(bool layoutOnly) const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (trained_.contains(nameOf(i)) && program_.originOf(nameOf(i)) == ExportedProgram::Origin::folded &&
          (program_.isLayoutOnly(nameOf(i)) || isPackedForRecurrence(uses_.of(nameOf(i)))) == layoutOnly)
        names.push_back(nameOf(i));
    return names;
  }

  /// "'val_0' is 'fc.weight'", "'val_9' is made of 'rnn.weight_ih_l0' and 3 more".
  std::string describe(const std::string& name) const {
    const std::vector<std::string> sources = program_.sourcesOf(name);
    return "'" + name + "' " + (sources.size() == 1 ? "is " : "is made of ") + firstOf(sources);
  }

  void remarkOnOtherForms() {
    const std::vector<std::string> names = folded(/*layoutOnly=*/true);
    if (names.empty()) return;
    diags_.remark({.file = file_.path()}).help(keepNamesWithoutOptimizer)
        << counted(names.size(), "trained parameter")
        << " transposed or joined by the exporter, under other names (docs/FromPyTorch.md): " << describe(names.front())
        << (names.size() > 1 ? ", …" : "");
  }

  void warnOfComputed() {
    std::vector<std::string> normed, others;
    for (const std::string& name : folded(/*layoutOnly=*/false)) {
      const std::vector<std::string> sources = program_.sourcesOf(name);
      const bool isWeightNorm = std::any_of(sources.begin(), sources.end(), [](const std::string& source) {
        return source.ends_with(".original0") || source.ends_with("_g");
      });
      (isWeightNorm ? normed : others).push_back(name);
    }
    if (!normed.empty())
      warning().help(keepNamesWithoutOptimizer)
          << "the exporter folded the norm and the direction of " << counted(normed.size(), "weight")
          << " with weight normalisation into one, trained without it: " << describe(normed.front());
    if (others.empty()) return;
    Diagnostic diagnostic{.severity = Severity::warning, .location = {.file = file_.path()}};
    diagnostic.message = counted(others.size(), "value") + (others.size() == 1 ? " is" : " are") +
                         " computed from parameters, which the file lacks, and trained in their place";
    for (std::size_t i = 0; i < std::min<std::size_t>(others.size(), 5); ++i)
      diagnostic.notes.push_back("'" + others[i] + "' was computed from " + firstOf(program_.sourcesOf(others[i])));
    diagnostic.helps = {keepNamesWithoutOptimizer};
    diags_.report(std::move(diagnostic));
  }

  /// Names under which modules that share a parameter have it, too: the file has it once.
  std::set<std::string> tiedNames() const {
    std::set<std::string> tied;
    for (const onnx::NodeProto& node : file_.graph().node()) {
      const std::string path = scopeOf(node).path;
      for (const std::string& input : node.input()) {
        const std::vector<std::string> sources = program_.sourcesOf(input);
        const std::string own = sources.size() == 1 ? sources.front() : input;
        if (program_.isParameter(own)) tied.insert((path.empty() ? "" : path + ".") + leafOf(own));
      }
    }
    return tied;
  }

  void warnOfLacking() {
    const std::set<std::string> tied = tiedNames();
    std::vector<std::string> lacking;
    for (const std::string& name : program_.names())
      if (isLacking(name) && !tied.contains(name) && !batchNorms_.contains(moduleOf(name))) lacking.push_back(name);
    if (!lacking.empty())
      warning().help(keepNamesWithoutOptimizer)
          << counted(lacking.size(), "parameter") << " of the module " << (lacking.size() == 1 ? "is" : "are")
          << " not in the file and not trained: " << firstOf(lacking)
          << "; the exporter leaves out biases of zeros and what the output does not depend on";
  }

  /// Parameters that are equal may share an initializer without a trace. A parameter that has learned something is not
  /// one number throughout.
  void warnOfShared() {
    std::map<std::string, int> uses;
    for (const onnx::NodeProto& node : file_.graph().node()) {
      const std::string path = scopeOf(node).path;
      for (const std::string& input : std::set<std::string>(node.input().begin(), node.input().end())) {
        const bool isOwn = program_.isKnown() && program_.isParameter(input) && path.starts_with(moduleOf(input));
        if (node.op_type() != "Identity" && !isOwn) ++uses[input];
      }
    }
    std::vector<std::string> shared;
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (trained_.contains(nameOf(i)) && uses[nameOf(i)] > 1 && holdsOneNumber(file_, list_[i].tensor))
        shared.push_back(nameOf(i));
    if (!shared.empty())
      warning().help("export with optimize=False, or after a step of training, to have every parameter stored")
          << counted(shared.size(), "trained parameter") << " with the same number throughout and several uses, '"
          << shared.front()
          << "' among them: the exporter may have merged parameters that were equal, they are trained as one";
  }

  const OnnxFile& file_;
  const ExportedProgram& program_;
  const ValueUses& uses_;
  const std::vector<Initializer>& list_;
  Diagnostics& diags_;
  std::set<std::string> trained_, batchNorms_;
  bool isNew_ = false;
};

} // namespace

void pdc::warnOfExporter(const OnnxFile& file, const ExportedProgram& program, const ValueUses& uses,
                         const std::vector<Initializer>& list, Diagnostics& diags) {
  ExporterWarnings(file, program, uses, list, diags).run();
}
