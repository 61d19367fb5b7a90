#include "Initializers.h"

#include "Buffers.h"
#include "ControlFlow.h"
#include "EqualInitializers.h"
#include "Operators.h"
#include "ProgramOrder.h"
#include "Weights/ExportedProgram.h"
#include "Weights/ExporterWarnings.h"
#include "Weights/InitializerRules.h"
#include "pdc/Support/NamePattern.h"
#include "pdc/Support/Names.h"

#include <algorithm>
#include <map>
#include <set>

using namespace pdc;

namespace {

/// Larger integers stay in the file.
constexpr std::int64_t largestConstant = 64 * 1024;
/// No parameter.
bool isComputed(InitializerRole role) {
  return role == InitializerRole::constant || role == InitializerRole::triangle;
}

/// Whether `node` is a loss, with class weights as its third input.
bool isLoss(const onnx::NodeProto& node) {
  return node.op_type() == "SoftmaxCrossEntropyLoss" || node.op_type() == "NegativeLogLikelihoodLoss";
}

/// Whether `node` gives its input in another shape, or as it is.
bool givesInput(const onnx::NodeProto& node) {
  static const std::set<std::string> operators = {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"};
  return isDefaultDomain(node.domain()) && operators.contains(node.op_type());
}

class Classifier {
public:
  Classifier(const OnnxFile& file, const ImportOptions& options, TensorReader& reader, Diagnostics& diags)
      : file_(file), options_(options), reader_(reader), diags_(diags), program_(file), uses_(file.graph()),
        freeze_("--freeze", options.freeze), train_("--train", options.train) {
    for (const onnx::TensorProto& tensor : file.graph().initializer()) {
      if (std::none_of(tensor.dims().begin(), tensor.dims().end(), [](std::int64_t dim) { return dim > 1; })) continue;
      ofMany_.insert(tensor.name());
      for (const std::string& source : program_.sourcesOf(tensor.name())) ofMany_.insert(source);
    }
  }

  Expected<std::vector<Initializer>> run() {
    if (!freeze_.check(diags_) || !train_.check(diags_) || !findUses()) return failure;
    std::vector<Initializer> list;
    bool valid = true;
    for (int i = 0; i < file_.graph().initializer_size(); ++i) {
      Initializer& initializer = list.emplace_back();
      const std::string& name = file_.graph().initializer(i).name();
      if (!used_.contains(name)) continue;
      Expected<StoredTensor> tensor = reader_.initializer(i);
      if (!tensor) {
        valid = false;
        continue;
      }
      reason_.clear();
      const InitializerRole role = roleOf(name, *tensor);
      initializer = {.role = role, .tensor = *std::move(tensor), .reason = reason_};
      findTriangle(name, initializer);
      valid &= checkReference(name, initializer) && checkLack(name, initializer);
    }
    if (!valid) return failure;
    freeze_.warnIfUnused(file_.path(), diags_);
    train_.warnIfUnused(file_.path(), diags_);
    if (options_.tie) tieCopies(list);
    warnOfExporter(file_, program_, uses_, list, diags_);
    warnOfBuffers();
    warnOfRules();
    return list;
  }

private:
  /// In bodies, too: names of their own that are those of initializers do no harm.
  Status findUses() {
    bool valid = true;
    forEachNode(file_.graph(), [&](const onnx::NodeProto& node) {
      for (const onnx::GraphProto* body : bodiesOf(node))
        for (const onnx::ValueInfoProto& output : body->output()) used_.insert(output.name());
      valid = valid && findUses(node);
    });
    for (const onnx::ValueInfoProto& output : file_.graph().output()) used_.insert(output.name());
    // A scale may be put into shape before it is used.
    for (int i = file_.graph().node_size(); i-- > 0;)
      if (const onnx::NodeProto& node = file_.graph().node(i); node.input_size() > 0 && node.output_size() == 1 &&
                                                               quantizationParameters_.contains(node.output(0)) &&
                                                               givesInput(node))
        quantizationParameters_.insert(node.input(0));
    return valid && checkScales() ? Status(success) : failure;
  }

  /// In functions and bodies, equal initializers of BatchNormalization that were merged are not parted.
  Status checkScales() {
    for (const std::string& name : scalesAndShifts_)
      if (const auto found = statistics_.find(name); found != statistics_.end())
        return diags_.error({.file = file_.path(), .node = name})
                   .exit(ExitCode::unsupported)
                   .help("export it with initializers of their own: torch.onnx.export(…, optimize=False)")
               << "is a running statistic of BatchNormalization '" << found->second.node
               << "', and a scale or shift, too";
    return success;
  }

  Status findUses(const onnx::NodeProto& node) {
    for (int i = 0; i < node.input_size(); ++i) {
      used_.insert(node.input(i));
      (isListOfNumbers(node, i) ? numbers_ : values_).insert(node.input(i));
    }
    if (isLoss(node) && node.input_size() > 2) classWeights_.insert(node.input(2));
    for (int i = 0; i < node.input_size(); ++i) {
      if (isQuantizationParameter(node, i)) quantizationParameters_.insert(node.input(i));
      if (isQuantizedWeight(node, i)) quantizedWeights_.insert(node.input(i));
    }
    if (!isBatchNormalization(node)) return success;
    return findStatistics(node);
  }

  /// Several nodes may move the same statistics, one after the other, as a layer that is applied several times does.
  Status findStatistics(const onnx::NodeProto& node) {
    for (int i = 1; i < std::min(node.input_size(), 3); ++i) scalesAndShifts_.insert(node.input(i));
    const bool trains = options_.batchNorm == BatchNormMode::exported ? isInTrainingMode(node, file_.opsetOf(node))
                                                                      : options_.batchNorm != BatchNormMode::frozen;
    for (RunningStatistic statistic : runningStatistics) {
      if (statistic.input >= node.input_size()) continue;
      const Statistic found{trains ? InitializerRole::state : InitializerRole::frozen, statistic.input,
                            nameOfNode(node)};
      const auto [known, isNew] = statistics_.emplace(node.input(statistic.input), found);
      const Statistic& former = known->second;
      if (isNew || (former.role == found.role && (former.input == found.input || !trains))) continue;
      const auto error = [&] {
        return diags_.error({.file = file_.path(), .node = known->first}).exit(ExitCode::unsupported);
      };
      if (former.input != found.input)
        return error().help("export it with two initializers: torch.onnx.export(…, optimize=False)")
               << "is a running mean of '" << (former.input == 3 ? former.node : found.node)
               << "' and a running variance of '" << (former.input == 3 ? found.node : former.node) << "'";
      return error().help("--bn=batch trains both with the statistics of each minibatch, --bn=frozen neither")
             << "holds the running statistics of '" << (trains ? former.node : found.node)
             << "', which is in inference mode, and of '" << (trains ? found.node : former.node)
             << "', which replaces them in training mode";
    }
    return success;
  }

  InitializerRole roleOf(const std::string& name, const StoredTensor& tensor) {
    const Type& type = tensor.type;
    if (!isFloat(type.element)) {
      const bool isWeight = quantizedWeights_.contains(name) && pdcrt::bytesOf(type.element) == 1 && type.rank() > 0;
      if (isWeight) integerWeights_.push_back(name);
      // A parameter keeps its name, and what learns nothing can be told.
      if (isWeight && !tensor.value) return InitializerRole::frozen;
      return type.bytes() <= largestConstant ? InitializerRole::constant : InitializerRole::frozen;
    }
    if (auto statistic = statistics_.find(name); statistic != statistics_.end())
      return as(statistic->second.role, "running statistics of BatchNormalization");
    bool frozen = freeze_.matches(name), trained = train_.matches(name);
    if (trained) return as(InitializerRole::trained, "named by --train");
    if (frozen) return as(InitializerRole::frozen, "named by --freeze");
    if (classWeights_.contains(name)) return as(InitializerRole::frozen, "class weights of a loss");
    if (quantizationParameters_.contains(name))
      return as(type.rank() == 0 ? InitializerRole::constant : InitializerRole::frozen, "scales of quantisation");
    if (numbers_.contains(name) && !values_.contains(name)) return as(InitializerRole::constant, "lists of numbers");
    return program_.isKnown() ? statedRole(name, tensor) : ruledRole(name, tensor);
  }

  InitializerRole as(InitializerRole role, const std::string& reason) {
    reason_ = reason;
    return role;
  }

  /// What is computed with, but never learned.
  InitializerRole constant(const Type& type, const std::string& reason) {
    return as(type.bytes() <= largestConstant ? InitializerRole::constant : InitializerRole::frozen, reason);
  }

  /// The file says what its values are.
  InitializerRole statedRole(const std::string& name, const StoredTensor& tensor) {
    using Origin = ExportedProgram::Origin;
    const Origin origin = program_.originOf(name);
    if (origin == Origin::parameter) return as(InitializerRole::trained, "parameters of the module");
    if (origin == Origin::buffer)
      return tensor.type.rank() == 0 ? as(InitializerRole::constant, "buffers of the module")
                                     : as(InitializerRole::frozen, "buffers of the module");
    if (origin == Origin::folded) {
      // One number that was folded from many is computed from their shape, such as the scale of attention.
      const std::vector<std::string> sources = program_.sourcesOf(name);
      const bool isOfMany = tensor.type.elements() == 1 &&
                            std::any_of(sources.begin(), sources.end(),
                                        [&](const std::string& source) { return ofMany_.contains(source); });
      if (isOfMany) return constant(tensor.type, "computed from the shapes of parameters");
      return as(InitializerRole::trained, "computed from parameters of the module");
    }
    if (origin == Origin::unstated && mayBeMade(name, tensor))
      return as(InitializerRole::trained, "made of parameters");
    if (origin == Origin::unstated) return constant(tensor.type, "no parameters of the module, which the file lists");
    return constant(tensor.type, "constants of the module");
  }

  /// Whether a rule of the exporter's optimizer may have made `name` of parameters: then nothing is said of it.
  bool mayBeMade(const std::string& name, const StoredTensor& tensor) {
    if (tensor.type.elements() < 2) return false;
    const InitializerUses& uses = uses_.of(name);
    return std::any_of(uses.begin(), uses.end(), [](const InitializerUse& use) {
      return use.input > 0 && rewriteRulesOf(*use.node).find("Fuse") != std::string::npos;
    });
  }

  /// The file says nothing.
  InitializerRole ruledRole(const std::string& name, const StoredTensor& tensor) {
    const Type& type = tensor.type;
    const InitializerUses& uses = uses_.of(name);
    if (type.rank() == 0) {
      if (isScalarParameter(name, uses_, file_.model().producer_name() == "pytorch")) {
        scalars_.push_back(name);
        return as(InitializerRole::trained, "single numbers with names of parameters");
      }
      if (!isSetting(uses) && !isAddedUnderRoot(name, uses_)) plainScalars_.push_back(name);
      return as(InitializerRole::constant, "single numbers");
    }
    if (isAttentionMask(tensor, reader_, {.file = file_.path(), .node = name})) {
      masks_.push_back(name);
      return as(InitializerRole::frozen, "masks, with -inf");
    }
    if (const std::string why = whyConstant(name, uses_, file_, tensor, reader_); !why.empty()) {
      ruled_[why].push_back(name);
      return constant(type, why);
    }
    if (isNamedLikeBuffer(name))
      tables_.push_back(name);
    else if (file_.model().producer_name() == "pytorch" && !isNamedByExporter(name) && !isNamedLikeLearned(name))
      perhapsBuffers_.push_back(name);
    return as(InitializerRole::trained, "");
  }

  /// A causal mask for attention says itself that it is one only if its elements are known.
  void findTriangle(const std::string& name, Initializer& initializer) {
    const Type& type = initializer.tensor.type;
    if (initializer.role != InitializerRole::frozen || type.bytes() <= largestConstant) return;
    if (type.element != ElementType::boolean &&
        !isAttentionMask(initializer.tensor, reader_, {.file = file_.path(), .node = name}))
      return;
    const auto triangle = triangleOf(initializer.tensor, reader_, {.file = file_.path(), .node = name});
    if (!triangle) return;
    initializer.role = InitializerRole::triangle;
    initializer.triangle = *triangle;
  }

  /// Parameters are references into a file.
  bool checkReference(const std::string& name, const Initializer& initializer) {
    if (isComputed(initializer.role) || !initializer.tensor.value) return true;
    diags_.error({.file = file_.path(), .node = name}).help("store it as raw_data: onnx.numpy_helper.from_array does")
        << "is a parameter of " << toString(initializer.tensor.type)
        << " that the file stores number by number, pdc needs its bytes";
    return false;
  }

  /// Only float parameters can start with other values than the model's.
  bool checkLack(const std::string& name, const Initializer& initializer) {
    const Type& type = initializer.tensor.type;
    if (!initializer.tensor.lacksElements()) return true;
    if (!isComputed(initializer.role) && isFloat(type.element)) return true;
    diags_.error({.file = file_.path(), .node = name}).help("export the model with its constants; --init draws weights")
        << "is a constant of " << toString(type) << " of which the model has no elements";
    return false;
  }

  void warnOfBuffers() {
    if (!integerWeights_.empty())
      diags_.warning({.file = file_.path()})
              .help("export the model before it is quantized, or one of quantisation-aware training, whose weights are "
                    "floats behind QuantizeLinear and DequantizeLinear")
          << counted(integerWeights_.size(), "weight") << (integerWeights_.size() == 1 ? " is" : " are")
          << " stored as 8-bit integers, '" << integerWeights_.front() << "' first: integers do not learn";
    if (!masks_.empty())
      diags_.warning({.file = file_.path()}).help("--train='" + patternOf(masks_) + "' trains them")
          << counted(masks_.size(), "initializer") << " with -inf or numbers like it, '" << masks_.front()
          << "' among them: masks, which do not learn";
    if (!tables_.empty())
      diags_.warning({.file = file_.path()}).help("--freeze='" + patternOf(tables_) + "' keeps them as they are")
          << counted(tables_.size(), "trained parameter") << " with the name of a buffer, '" << tables_.front()
          << "' among them";
    if (!perhapsBuffers_.empty())
      diags_.remark({.file = file_.path()}).help("--freeze='" + patternOf(perhapsBuffers_) + "' keeps them as they are")
          << counted(perhapsBuffers_.size(), "trained initializer")
          << (perhapsBuffers_.size() == 1 ? " is a parameter or a buffer" : " are parameters or buffers")
          << " of the module, which this exporter does not tell apart: '" << perhapsBuffers_.front() << "'"
          << (perhapsBuffers_.size() > 1 ? " first" : "");
  }

  const std::string& nameOf(std::size_t i) const { return file_.graph().initializer(static_cast<int>(i)).name(); }

  /// The one parameter of the module that an initializer holds, as it is or in another order; empty: it is none.
  std::string parameterIn(std::size_t i) const {
    const std::string& name = nameOf(i);
    if (program_.isParameter(name)) return name;
    const std::vector<std::string> sources = program_.sourcesOf(name);
    return sources.size() == 1 && program_.isLayoutOnly(name) ? sources.front() : "";
  }

  /// An exporter that folds constants stores the table of an embedding once more, transposed, for the classifier that
  /// uses it, and the weight of a module that is called several times once for each call. Two matrices that are trained
  /// apart are not equal to the last bit.
  void tieCopies(std::vector<Initializer>& list) {
    std::set<std::string> tables;
    for (const onnx::NodeProto& node : file_.graph().node())
      if (node.op_type() == "Gather" && node.input_size() > 0) tables.insert(node.input(0));
    std::vector<std::size_t> firsts, others;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].role == InitializerRole::trained && list[i].tensor.type.rank() == 2)
        (tables.contains(nameOf(i)) ? firsts : others).push_back(i);
    const std::size_t embeddings = firsts.size();
    if (program_.isKnown()) firsts.insert(firsts.end(), others.begin(), others.end());
    std::vector<std::string> tied;
    bool areEmbeddings = true;
    for (std::size_t k = 0; k < firsts.size(); ++k)
      for (std::size_t other : others) {
        const std::size_t first = firsts[k];
        const bool isTied = list[first].role == InitializerRole::tied || list[other].role == InitializerRole::tied;
        const bool mayBe = k < embeddings ||
                           (first < other && !parameterIn(first).empty() && parameterIn(first) == parameterIn(other));
        if (isTied || !mayBe) continue;
        const Equality equality = compareMatrices(file_, list[first].tensor, list[other].tensor);
        if (equality == Equality::none) continue;
        list[other].role = InitializerRole::tied;
        list[other].tiedTo = static_cast<int>(first);
        list[other].transposed = equality == Equality::transposed;
        areEmbeddings = areEmbeddings && k < embeddings;
        tied.push_back("'" + nameOf(other) + "' is '" + nameOf(first) + "'" +
                       (list[other].transposed ? " transposed" : ""));
      }
    if (!tied.empty())
      diags_.warning({.file = file_.path()}).help("--tie=off trains them apart")
          << "the exporter stored " << counted(tied.size(), areEmbeddings ? "embedding" : "parameter")
          << " twice: " << tied.front() << (tied.size() > 1 ? ", …" : "") << "; they are trained as one";
  }

  /// What was decided by rules, since the file does not say what is a parameter.
  void warnOfRules() {
    std::vector<std::string> names;
    Diagnostic diagnostic{.severity = Severity::warning, .location = {.file = file_.path()}};
    for (const auto& [why, some] : ruled_) {
      diagnostic.notes.push_back(counted(some.size(), "initializer") + ", '" + some.front() + "' first: " + why);
      names.insert(names.end(), some.begin(), some.end());
    }
    if (!names.empty()) {
      diagnostic.message = counted(names.size(), "float initializer") + (names.size() == 1 ? " does" : " do") +
                           " not learn, '" + names.front() + "' first, taken for no parameter";
      diagnostic.helps = {"--train='" + patternOf(names) + "' trains " + (names.size() == 1 ? "it" : "them")};
      diags_.report(std::move(diagnostic));
    }
    if (!scalars_.empty())
      diags_.remark({.file = file_.path()})
              .help("--freeze='" + patternOf(scalars_) + "' keeps " + (scalars_.size() == 1 ? "it" : "them"))
          << counted(scalars_.size(), "float") << " without dimensions learn" << (scalars_.size() == 1 ? "s" : "")
          << ", '" << scalars_.front() << "' first, by name or use a parameter";
    if (!plainScalars_.empty())
      diags_.remark({.file = file_.path()})
              .help("--train='" + patternOf(plainScalars_) + "' trains " + (plainScalars_.size() == 1 ? "it" : "them"))
          << counted(plainScalars_.size(), "float") << " without dimensions "
          << (plainScalars_.size() == 1 ? "is a" : "are") << " constant" << (plainScalars_.size() == 1 ? "" : "s")
          << ", '" << plainScalars_.front() << "' first";
  }

  const OnnxFile& file_;
  const ImportOptions& options_;
  TensorReader& reader_;
  Diagnostics& diags_;
  const ExportedProgram program_;
  const ValueUses uses_;
  NamePattern freeze_, train_;
  std::set<std::string> used_;
  std::vector<std::string> masks_, tables_; ///< buffers: by their values, and perhaps, by their names
  std::vector<std::string> perhapsBuffers_; ///< trained, with names that both parameters and buffers have
  /// Of quantized weights; scales and zero points, which observers set and no gradient; 8-bit weights that are there.
  std::set<std::string> quantizedWeights_, quantizationParameters_;
  std::vector<std::string> integerWeights_;
  std::set<std::string> classWeights_; ///< of losses: they look like biases, and learning them would minimise the loss
  std::set<std::string> numbers_, values_; ///< what is read as a list of numbers, and as anything else
  std::set<std::string> ofMany_; ///< parameters of several elements, as far as they or what was folded from them tell
  std::vector<std::string> scalars_, plainScalars_;       ///< without dimensions: taken for parameters, and not
  std::map<std::string, std::vector<std::string>> ruled_; ///< no parameters by a rule, with the rule's reason
  std::string reason_;                                    ///< of the initializer that is being classified
  struct Statistic {
    InitializerRole role;
    int input;
    std::string node; ///< the first with it
  };
  std::map<std::string, Statistic> statistics_;
  std::set<std::string> scalesAndShifts_; ///< of BatchNormalization
};

} // namespace

Expected<std::vector<Initializer>> pdc::readInitializers(const OnnxFile& file, const ImportOptions& options,
                                                         TensorReader& reader, Diagnostics& diags) {
  return Classifier(file, options, reader, diags).run();
}
