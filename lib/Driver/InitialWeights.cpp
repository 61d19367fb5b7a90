// Points parameters at the tensors of safetensors files, which are read, and converted, when the output is written.
// Or has them drawn then.
#include "InitialWeights.h"

#include "InitialAdapters.h"
#include "OutputFolder.h"
#include "Renaming.h"
#include "WeightFiles.h"

#include "pdc/Import/StateDict.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Support/Names.h"
#include "pdc/Transforms/InitialValues.h"
#include "pdcrt/StoredTensor.h"
#include "pdcrt/Training.h"

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>

using namespace pdc;

namespace {

/// Values of `from` as `to`: exactly, rounded, or not at all.
enum class Conversion { none, exact, rounded, impossible };

Conversion conversionOf(ElementType from, ElementType to) {
  if (from == to) return Conversion::none;
  if (to != ElementType::f32) return Conversion::impossible;
  if (from == ElementType::bf16 || from == ElementType::f16) return Conversion::exact;
  return from == ElementType::f64 ? Conversion::rounded : Conversion::impossible;
}

bool isTransposeOf(const Shape& a, const Shape& b) {
  return a.size() == 2 && b.size() == 2 && a != b && a[0] == b[1] && a[1] == b[0];
}

/// "'a', 'b', 'c', …".
std::string listOf(const std::vector<std::string>& names) {
  constexpr std::size_t most = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) text += (i ? ", '" : "'") + names[i] + "'";
  return text + (names.size() > most ? ", …" : "");
}

/// Takes the tensors of all files that --init-from names.
class Taking {
public:
  Taking(Module& module, Diagnostics& diags) : module_(module), diags_(diags) {}

  Status run(const std::vector<std::string>& words) {
    for (const std::string& word : words)
      if (!read(word)) return failure;
    bool valid = true;
    for (const auto& [name, all] : tensors_) {
      if (all.size() > 1 && module_.findParameter(name))
        return diags_.error({.file = all[1].file->path(), .node = all[1].record->name})
               << "is in " << all[0].file->path() << ", too";
      if (!take(name, all[0])) valid = false;
    }
    if (!valid || !checkTaken()) return failure;
    tell();
    return success;
  }

private:
  struct Tensor {
    const pdcrt::SafetensorsFile* file;
    const pdcrt::TensorRecord* record;
    bool isTransposed = false; ///< the exporter has transposed the parameter
    /// Member 0's part of a divided tensor, which is in `file`; else null.
    const pdcrt::TensorRecord* part = nullptr;
  };

  /// "F[,strip=PREFIX][,add=PREFIX]".
  Status read(std::string word) {
    Renaming renaming = takeRenaming(word);
    const Expected<std::vector<std::string>> files = weightFiles(word, diags_);
    if (!files) return failure;
    std::vector<const pdcrt::SafetensorsFile*> opened;
    for (const std::string& path : *files) {
      if (!openWeights(path, files_.emplace_back(), diags_)) return failure;
      opened.push_back(&files_.back());
    }
    std::vector<pdcrt::StoredTensor> stored;
    if (pdcrt::Status status = pdcrt::readStored(opened, stored); !status) return reportFile(status, *files, diags_);
    std::vector<Tensor> tensors;
    for (const pdcrt::StoredTensor& tensor : stored) {
      tensors.push_back({&tensor.firstFile(), &tensor.firstRecord()});
      if (!tensor.isDivided()) continue;
      wholes_.push_back({tensor.name(), tensor.element(), tensor.shape(), {}});
      tensors.back().record = &wholes_.back();
      tensors.back().part = &tensor.firstRecord();
    }
    if (renaming == Renaming{}) {
      const Expected<Renaming> found = renamingOf(word, tensors);
      if (!found) return failure;
      renaming = *found;
    }
    for (const Tensor& tensor : tensors) {
      const std::string name = renaming(tensor.record->name);
      if (!name.empty() && module_.findParameter(name))
        tensors_[name].push_back(tensor);
      else
        unused_.push_back(tensor);
    }
    names_.push_back(word);
    return takeOtherNames(renaming);
  }

  /// A state_dict of the PyTorch module that the model was exported from has parameters under the module's names.
  Status takeOtherNames(const Renaming& renaming) {
    if (unused_.empty()) return success;
    if (!others_) {
      std::vector<std::string> names;
      for (const auto& parameter : module_.parameters) names.push_back(parameter->name);
      others_ = otherStateNames(module_.file, names);
    }
    for (const Tensor& tensor : std::exchange(unused_, {})) {
      const auto other = others_->find(renaming(tensor.record->name));
      if (other == others_->end()) {
        unused_.push_back(tensor);
        continue;
      }
      const StateName& parameter = other->second;
      if (parameter.isPart)
        return diags_.error({.file = tensor.file->path(), .node = tensor.record->name})
                   .exit(ExitCode::unsupported)
                   .help("export the model so that it keeps its names (docs/FromPyTorch.md)")
               << "is a part of the model's parameter '" << parameter.parameter
               << "', in which the exporter has packed a recurrent layer";
      // A tied parameter is in the file under each of its names.
      std::vector<Tensor>& taken = tensors_[parameter.parameter];
      if (!taken.empty()) continue;
      taken.push_back(tensor);
      taken.back().isTransposed = parameter.transposed;
    }
    return success;
  }

  /// Wrappers put one prefix before all names ('module.', 'model.'), and an export of a part leaves one out. Taken only
  /// where it leaves none of the parameters that lack a tensor without one.
  Expected<Renaming> renamingOf(const std::string& word, const std::vector<Tensor>& tensors) {
    std::map<std::string, const pdcrt::TensorRecord*> known;
    for (const Tensor& tensor : tensors) known[tensor.record->name] = tensor.record;
    std::vector<const Parameter*> lacking;
    for (const auto& parameter : module_.parameters)
      if (isFloat(parameter->type.element) && !parameter->drawn && !known.contains(parameter->name) &&
          !tensors_.contains(parameter->name))
        lacking.push_back(parameter.get());
    if (lacking.empty()) return Renaming{};
    std::set<Renaming> candidates;
    const std::string& first = lacking[0]->name;
    for (const auto& [name, record] : known) {
      if (module_.findParameter(name)) continue;
      if (name.ends_with("." + first)) candidates.insert({name.substr(0, name.size() - first.size()), ""});
      if (first.ends_with("." + name)) candidates.insert({"", first.substr(0, first.size() - name.size())});
    }
    std::vector<Renaming> whole;
    for (const Renaming& renaming : candidates)
      if (std::all_of(lacking.begin(), lacking.end(), [&](const Parameter* parameter) {
            const std::string& name = parameter->name;
            if (!name.starts_with(renaming.add)) return false;
            const auto tensor = known.find(renaming.strip + name.substr(renaming.add.size()));
            return tensor != known.end() && tensor->second->shape == parameter->type.shape;
          }))
        whole.push_back(renaming);
    if (whole.empty()) return Renaming{};
    if (whole.size() > 1)
      return diags_.error({.file = word})
                 .help("choose: --init-from=" + word + whole[0].flag() + ", or --init-from=" + word + whole[1].flag())
             << "has tensors for all parameters " << whole[0].str() << " and " << whole[1].str();
    diags_.remark({.file = word}) << "the names of its tensors are taken " << whole[0].str() << ": '"
                                  << renamed(whole[0], first) << "' as '" << first << "', and so on for all "
                                  << lacking.size();
    return whole[0];
  }

  static std::string renamed(const Renaming& renaming, const std::string& parameter) {
    return renaming.strip + parameter.substr(renaming.add.size());
  }

  Status take(const std::string& name, const Tensor& tensor) {
    Parameter& parameter = *module_.findParameter(name);
    const pdcrt::TensorRecord& record = *tensor.record;
    Conversion conversion = conversionOf(record.element, parameter.type.element);
    if (tensor.part && conversion != Conversion::none) conversion = Conversion::impossible; // runs keep the types
    Shape shape = record.shape;
    if (tensor.isTransposed) std::reverse(shape.begin(), shape.end());
    if (shape != parameter.type.shape || conversion == Conversion::impossible) {
      const bool transposed = isTransposeOf(shape, parameter.type.shape);
      return diags_.error({.file = tensor.file->path(), .node = record.name})
                 .help(transposed ? "give it transposed: in Python, tensor.t().contiguous()"
                                  : "give weights of this model, in its own layout")
             << "is " << toString(Type{record.element, record.shape}) << ", the parameter of the model is "
             << toString(parameter.type) << (transposed ? ", the transpose" : "");
    }
    if (conversion != Conversion::none) ++converted_[record.element];
    const pdcrt::TensorRecord& values = tensor.part ? *tensor.part : record;
    parameter.reference = {.file = tensor.file->path(),
                           .offset = static_cast<std::int64_t>(tensor.file->offsetOf(values)),
                           .length = static_cast<std::int64_t>(values.values.size()),
                           .stored = record.shape,
                           .permutation = {},
                           .origin = ReferenceOrigin::namedByUser};
    if (tensor.isTransposed) parameter.reference.permutation = {1, 0};
    parameter.drawn.reset();
    parameter.location.file = tensor.file->path(); // what is wrong with its values is reported there
    return success;
  }

  /// Every file must be of use.
  Status checkTaken() {
    std::set<const pdcrt::SafetensorsFile*> used;
    for (const auto& [name, all] : tensors_) used.insert(all[0].file);
    if (!used.empty() && (files_.size() > names_.size() || used.size() == files_.size())) return success;
    for (const pdcrt::SafetensorsFile& file : files_) {
      if (used.contains(&file)) continue;
      std::vector<std::string> own, parameters;
      for (const auto& [name, record] : file.tensors()) own.push_back(name);
      for (const auto& parameter : module_.parameters) parameters.push_back(parameter->name);
      const std::string renaming = helpfulRenaming(file.path(), own, parameters);
      return diags_.error({.file = file.path()})
                 .help(renaming.empty() ? "'pdc " + module_.file + " --emit=ir' lists the parameters" : renaming)
                 .note("its tensors are " + listOf(own))
                 .note("the model's parameters are " + listOf(parameters))
             << "none of its " << file.tensors().size() << " tensors has the name of a parameter of the model";
    }
    return success;
  }

  /// What to type so that most of `tensors`, of which none is a parameter, are some of `parameters`; empty: nothing.
  static std::string helpfulRenaming(const std::string& word, const std::vector<std::string>& tensors,
                                     const std::vector<std::string>& parameters) {
    std::map<Renaming, std::size_t> counts;
    for (const std::string& tensor : tensors)
      for (const std::string& parameter : parameters) {
        if (tensor.ends_with("." + parameter)) ++counts[{tensor.substr(0, tensor.size() - parameter.size()), ""}];
        if (parameter.ends_with("." + tensor)) ++counts[{"", parameter.substr(0, parameter.size() - tensor.size())}];
      }
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == counts.end()) return "";
    return std::to_string(most->second) + " of " + std::to_string(tensors.size()) + " are " + most->first.str() +
           ": --init-from=" + word + most->first.flag();
  }

  void tell() {
    for (const auto& [element, count] : converted_)
      diags_.remark({.file = names_[0]}) << count << (count == 1 ? " tensor in " : " tensors in ") << nameOf(element)
                                         << (element == ElementType::f64 ? " are rounded to f32"
                                                                         : " are taken as f32, exactly");
    std::vector<std::string> kept, unused;
    for (const auto& parameter : module_.parameters)
      if (!tensors_.contains(parameter->name) && !parameter->drawn) kept.push_back(parameter->name);
    for (const Tensor& tensor : unused_) unused.push_back(tensor.record->name);
    if (kept.empty() && unused.empty()) return;
    Diagnostic remark{.severity = Severity::remark, .location = {.file = module_.file}};
    remark.message = std::to_string(tensors_.size()) + " of " + std::to_string(module_.parameters.size()) +
                     " parameters start with other values";
    if (!kept.empty()) {
      remark.message += "; '" + kept[0] + "' is the first that keeps the model's";
      remark.notes.push_back(std::to_string(kept.size()) + " keep the model's: " + listOf(kept));
    }
    if (!unused.empty())
      remark.notes.push_back(std::to_string(unused.size()) + " of the tensors are no parameters: " + listOf(unused));
    if (names_.size() == 1)
      if (const std::string renaming = helpfulRenaming(names_[0], unused, kept); !renaming.empty())
        remark.helps.push_back(renaming);
    noteTransposed(remark);
    diags_.report(remark);
  }

  /// Exporters fold the transpose of a linear layer's weight into it, and name the result anew ('onnx::MatMul_12').
  void noteTransposed(Diagnostic& remark) const {
    for (const auto& parameter : module_.parameters) {
      if (tensors_.contains(parameter->name) || parameter->type.rank() != 2) continue;
      const Tensor* only = nullptr;
      int count = 0;
      for (const Tensor& tensor : unused_)
        if (isTransposeOf(tensor.record->shape, parameter->type.shape)) {
          only = &tensor;
          ++count;
        }
      if (count != 1) continue;
      remark.notes.push_back("'" + parameter->name + "' may be the transpose of '" + only->record->name + "', " +
                             toString(Type{only->record->element, only->record->shape}));
      remark.helps.push_back("export the model so that it keeps its names (docs/Training.md), or give '" +
                             parameter->name + "' in the file: in Python, tensor.t().contiguous()");
      return;
    }
  }

  Module& module_;
  Diagnostics& diags_;
  std::list<pdcrt::SafetensorsFile> files_;
  std::list<pdcrt::TensorRecord> wholes_;              ///< of tensors that are in parts, without values
  std::vector<std::string> names_;                     ///< as typed
  std::map<std::string, std::vector<Tensor>> tensors_; ///< by parameter
  std::vector<Tensor> unused_;
  std::optional<std::map<std::string, StateName>> others_; ///< of parameters, once they were wanted
  std::map<ElementType, int> converted_;
};

} // namespace

Status pdc::takeInitialWeights(Module& module, const std::vector<std::string>& files, Diagnostics& diags) {
  std::vector<std::string> weights, adapters;
  for (const std::string& word : files) (isAdapterFolder(word) ? adapters : weights).push_back(word);
  if (!weights.empty() && !Taking(module, diags).run(weights)) return failure;
  for (const std::string& word : adapters)
    if (!takeAdapter(module, word, diags)) return failure;
  return success;
}

/// What of `names` looks like `text`: a name, or a part of one between dots.
static std::string nearTo(const std::string& text, const std::vector<std::string>& names) {
  std::vector<std::string_view> known(names.begin(), names.end());
  for (const std::string_view name : std::vector<std::string_view>(known))
    for (std::size_t begin = 0, end = 0; begin < name.size(); begin = end + 1) {
      end = std::min(name.find('.', begin), name.size());
      known.push_back(name.substr(begin, end - begin));
    }
  return nearestName(text, known);
}

/// The parameters of `graph` that --reset means.
static Expected<std::set<const Parameter*>> resetOf(const Graph& graph, const std::string& reset, const Module& module,
                                                    Diagnostics& diags) {
  std::set<const Parameter*> chosen;
  if (reset.empty()) return chosen;
  if (!pdcrt::isParameterMatch(reset))
    return diags.error({}).exit(ExitCode::usage) << "--reset='" << reset << "' is not a regular expression";
  std::vector<std::string> names;
  for (const Value* value : graph.parameterValues()) {
    const Parameter* parameter = value->parameter();
    if (!isFloat(parameter->type.element)) continue;
    names.push_back(parameter->name);
    if (pdcrt::matches({.match = reset, .learningRate = {}, .weightDecay = {}}, parameter->name,
                       parameter->type.rank()))
      chosen.insert(parameter);
  }
  if (!chosen.empty()) return chosen;
  const std::string near = nearTo(reset, names);
  return diags.error({.file = module.file})
             .help(near.empty() ? "'pdc " + module.file + " --emit=ir' lists their names"
                                : "did you mean '" + near + "'?")
         << "--reset='" << reset << "' matches none of the model's " << names.size() << " parameters";
}

Status pdc::drawInitialWeights(Module& module, const DrawnWeights& wanted, Diagnostics& diags) {
  const Graph& graph = *module.findGraph("main");
  const auto reset = resetOf(graph, wanted.reset, module, diags);
  if (!reset) return failure;
  const std::map<const Parameter*, InitialValues> usual = usualValues(graph);
  std::vector<std::string> drawn;
  bool valid = true;
  for (const Value* value : graph.parameterValues()) {
    Parameter& parameter = *value->parameter();
    if (parameter.drawn) continue; // of an adapter
    const bool lacks = parameter.reference.file.empty() && !parameter.given;
    if (!lacks && !reset->contains(&parameter)) continue;
    const auto values = usual.find(&parameter);
    if ((lacks && !wanted.seed && !reset->contains(&parameter)) || values == usual.end()) {
      valid = false;
      diags.error(parameter.location)
              .help(values == usual.end() ? "give its values: --init-from=F.safetensors" : "draw them: --init=SEED")
          << "is a parameter of " << toString(parameter.type)
          << (values == usual.end() ? " for which no op that uses it has a usual initialisation" : " without values");
      continue;
    }
    parameter.drawn = {values->second, wanted.seed.value_or(0)};
    drawn.push_back("'" + parameter.name + "' with " + toString(values->second));
  }
  if (!valid) return failure;
  const Location where{.file = module.file};
  if (!drawn.empty())
    diags.remark(where) << drawn.size() << (drawn.size() == 1 ? " parameter starts" : " parameters start")
                        << " with the usual initialisation, seed " << wanted.seed.value_or(0) << ": " << drawn[0]
                        << (drawn.size() > 1 ? ", " + drawn[1] : "") << (drawn.size() > 2 ? ", …" : "");
  else if (wanted.seed)
    diags.warning(where).help("--reset=. starts all of them anew")
        << "--init=" << *wanted.seed << " has nothing to do: every parameter has values";
  return success;
}
