#include "Initializers.h"

#include "Buffers.h"
#include "ControlFlow.h"
#include "EqualInitializers.h"
#include "Operators.h"

#include <map>
#include <regex.h>
#include <set>

using namespace pdc;

namespace {

/// Larger integers stay in the file.
constexpr std::int64_t largestConstant = 64 * 1024;
std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

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

/// Whether PyTorch has folded a BatchNormalization into `node`. Its old exporter computes the weights of a convolution
/// only to do that; its new one gives the weights' names to those that it computes, and a convolution without bias one
/// that is called after its input.
bool hasFoldedBatchNorm(const onnx::NodeProto& node) {
  if (node.op_type() != "Conv" || node.input_size() < 2) return false;
  return node.input(1).starts_with("onnx::Conv_") ||
         (node.input_size() > 2 && node.input(2) == node.input(0) + "_bias");
}

/// A POSIX extended regular expression from the command line. (std::regex recurses once per character of a name.)
class Pattern {
public:
  Pattern(const char* flag, const std::string& text) : flag_(flag), text_(text) {}
  ~Pattern() {
    if (compiled_) ::regfree(&expression_);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  Status compile(Diagnostics& diags) {
    compiled_ = ::regcomp(&expression_, text_.c_str(), REG_EXTENDED | REG_NOSUB) == 0;
    if (compiled_) return success;
    return diags.error({}).exit(ExitCode::usage) << flag_ << "='" << text_ << "' is not a regular expression";
  }
  bool matches(const std::string& name) {
    bool found = !text_.empty() && ::regexec(&expression_, name.c_str(), 0, nullptr, 0) == 0;
    used_ |= found;
    return found;
  }
  void warnIfUnused(const std::string& path, Diagnostics& diags) const {
    if (!text_.empty() && !used_)
      diags.warning({.file = path}).help("'pdc " + path + " --emit=ir' lists their names")
          << flag_ << "='" << text_ << "' matches no floating-point initializer";
  }

private:
  const char* flag_;
  std::string text_;
  regex_t expression_{};
  bool compiled_ = false, used_ = false;
};

class Classifier {
public:
  Classifier(const OnnxFile& file, const ImportOptions& options, TensorReader& reader, Diagnostics& diags)
      : file_(file), options_(options), reader_(reader), diags_(diags), freeze_("--freeze", options.freeze),
        train_("--train", options.train) {}

  Expected<std::vector<Initializer>> run() {
    if (!freeze_.compile(diags_) || !train_.compile(diags_) || !findUses()) return failure;
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
      initializer = {roleOf(name, *tensor), *std::move(tensor)};
      findTriangle(name, initializer);
      valid &= checkReference(name, initializer) && checkLack(name, initializer);
    }
    if (!valid) return failure;
    freeze_.warnIfUnused(file_.path(), diags_);
    train_.warnIfUnused(file_.path(), diags_);
    if (options_.tie) tieCopies(list);
    warnOfRenamed(list);
    warnOfBuffers();
    warnOfShared(list);
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
    return valid ? Status(success) : failure;
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
    bool trains = options_.batchNorm == BatchNormMode::exported ? isInTrainingMode(node, file_.opsetOf(node))
                                                                : options_.batchNorm == BatchNormMode::batch;
    for (RunningStatistic statistic : runningStatistics)
      if (statistic.input < node.input_size()) {
        InitializerRole role = trains ? InitializerRole::state : InitializerRole::frozen;
        auto [known, isNew] = statistics_.emplace(node.input(statistic.input), role);
        if (isNew || (!trains && known->second == role)) continue;
        return diags_.error({.file = file_.path(), .node = known->first}).exit(ExitCode::unsupported)
               << "holds the running statistics of several BatchNormalization nodes, one each is supported";
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
    if (auto statistic = statistics_.find(name); statistic != statistics_.end()) return statistic->second;
    bool frozen = freeze_.matches(name), trained = train_.matches(name);
    if (trained) return InitializerRole::trained;
    if (frozen || classWeights_.contains(name)) return InitializerRole::frozen;
    if (quantizationParameters_.contains(name))
      return type.rank() == 0 ? InitializerRole::constant : InitializerRole::frozen;
    if (type.rank() == 0 || (numbers_.contains(name) && !values_.contains(name))) return InitializerRole::constant;
    if (isAttentionMask(tensor, reader_, {.file = file_.path(), .node = name})) {
      masks_.push_back(name);
      return InitializerRole::frozen;
    }
    if (isNamedLikeBuffer(name)) tables_.push_back(name);
    return InitializerRole::trained;
  }

  /// A causal mask for attention says itself that it is one only if its elements are known.
  void findTriangle(const std::string& name, Initializer& initializer) {
    const Type& type = initializer.tensor.type;
    const bool isMask = type.element == ElementType::boolean || (!masks_.empty() && masks_.back() == name);
    if (initializer.role != InitializerRole::frozen || !isMask || type.bytes() <= largestConstant) return;
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

  /// PyTorch's newer exporter lets parameters that are equal share an initializer and leaves no trace of it. A
  /// parameter that has learned something is not one number throughout.
  void warnOfShared(const std::vector<Initializer>& list) {
    std::map<std::string, int> uses;
    for (const onnx::NodeProto& node : file_.graph().node())
      for (const std::string& input : std::set<std::string>(node.input().begin(), node.input().end()))
        if (node.op_type() != "Identity") ++uses[input];
    std::vector<std::string> shared;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].role == InitializerRole::trained && uses[nameOf(i)] > 1 &&
          !quantizationParameters_.contains(nameOf(i)) && holdsOneNumber(file_, list[i].tensor))
        shared.push_back(nameOf(i));
    if (!shared.empty())
      diags_.warning({.file = file_.path()})
              .help("export with optimize=False, or after a step of training, to have every parameter stored")
          << counted(shared.size(), "trained parameter") << " with the same number throughout and several uses, '"
          << shared.front()
          << "' among them: the exporter may have merged parameters that were equal, they will be trained as one";
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
  }

  const std::string& nameOf(std::size_t i) const { return file_.graph().initializer(static_cast<int>(i)).name(); }

  /// An exporter that folds constants stores the table of an embedding once more, transposed, for the classifier that
  /// uses it. Two matrices that are trained apart are not equal to the last bit.
  void tieCopies(std::vector<Initializer>& list) {
    std::set<std::string> tables;
    for (const onnx::NodeProto& node : file_.graph().node())
      if (node.op_type() == "Gather" && node.input_size() > 0) tables.insert(node.input(0));
    std::vector<std::size_t> embeddings, others;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].role == InitializerRole::trained && list[i].tensor.type.rank() == 2)
        (tables.contains(nameOf(i)) ? embeddings : others).push_back(i);
    std::vector<std::string> tied;
    for (std::size_t table : embeddings)
      for (std::size_t other : others) {
        const Equality equality = compareMatrices(file_, list[table].tensor, list[other].tensor);
        if (equality == Equality::none || list[other].role == InitializerRole::tied) continue;
        list[other].role = InitializerRole::tied;
        list[other].tiedTo = static_cast<int>(table);
        list[other].transposed = equality == Equality::transposed;
        tied.push_back("'" + nameOf(other) + "' is '" + nameOf(table) + "'" +
                       (list[other].transposed ? " transposed" : ""));
      }
    if (!tied.empty())
      diags_.warning({.file = file_.path()}).help("--tie=off trains them apart")
          << "the exporter stored " << counted(tied.size(), "embedding") << " twice: " << tied.front()
          << (tied.size() > 1 ? ", …" : "") << "; they are trained as one";
  }

  void warnOfRenamed(const std::vector<Initializer>& list) {
    std::set<std::string> trained;
    std::vector<std::string> renamed, merged;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (const std::string& name = file_.graph().initializer(static_cast<int>(i)).name();
          list[i].role == InitializerRole::trained) {
        trained.insert(name);
        if (name.starts_with("onnx::")) renamed.push_back(name); // PyTorch's name for a folded constant
      }
    int folded = 0;
    bool dropout = false;
    for (const onnx::NodeProto& node : file_.graph().node()) {
      folded += hasFoldedBatchNorm(node);
      dropout |= isDropout(node);
    }
    for (const onnx::NodeProto& node : file_.graph().node())
      if (node.op_type() == "Identity" && node.input_size() == 1 && trained.contains(node.input(0)))
        merged.push_back(node.input(0));
    const char* help = "export with training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False";
    if (!renamed.empty())
      diags_.warning({.file = file_.path()}).help(help)
          << "the exporter's constant folding has renamed " << counted(renamed.size(), "trained parameter") << ", '"
          << renamed.front() << "' among them"
          << (dropout ? "" : "; Dropout, where the network has it, was left out with them");
    if (folded > 0)
      diags_.warning({.file = file_.path()}).help(help)
          << "the exporter folded BatchNormalization into " << counted(static_cast<std::size_t>(folded), "convolution")
          << ", trained without it";
    if (!merged.empty())
      diags_.warning({.file = file_.path()}).help(help)
          << counted(merged.size(), "use") << " of trained parameters through Identity, '" << merged.front()
          << "' among them: the exporter merged parameters that were equal, they will be trained as one";
  }

  const OnnxFile& file_;
  const ImportOptions& options_;
  TensorReader& reader_;
  Diagnostics& diags_;
  Pattern freeze_, train_;
  std::set<std::string> used_;
  std::vector<std::string> masks_, tables_; ///< buffers: by their values, and perhaps, by their names
  /// Of quantized weights; scales and zero points, which observers set and no gradient; 8-bit weights that are there.
  std::set<std::string> quantizedWeights_, quantizationParameters_;
  std::vector<std::string> integerWeights_;
  std::set<std::string> classWeights_; ///< of losses: they look like biases, and learning them would minimise the loss
  std::set<std::string> numbers_, values_; ///< what is read as a list of numbers, and as anything else
  std::map<std::string, InitializerRole> statistics_;
};

} // namespace

Expected<std::vector<Initializer>> pdc::readInitializers(const OnnxFile& file, const ImportOptions& options,
                                                         TensorReader& reader, Diagnostics& diags) {
  return Classifier(file, options, reader, diags).run();
}
