// Points parameters at the tensors of safetensors files; nothing is copied. Or has them drawn when they are written.
#include "InitialWeights.h"

#include "OutputFolder.h"

#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Support/Names.h"
#include "pdc/Transforms/InitialValues.h"
#include "pdcrt/Safetensors.h"
#include "pdcrt/Training.h"

#include <algorithm>
#include <map>
#include <set>

using namespace pdc;

static Status take(Parameter& parameter, const pdcrt::SafetensorsFile& file, const pdcrt::TensorRecord& record,
                   Diagnostics& diags) {
  const Type type{record.element, record.shape};
  if (type != parameter.type)
    return diags.error({.file = file.path(), .node = parameter.name})
               .help("give weights of this model, in its own layout")
           << "is " << toString(type) << ", the parameter of the model is " << toString(parameter.type);
  parameter.reference = {.file = file.path(),
                         .offset = static_cast<std::int64_t>(file.offsetOf(record)),
                         .length = static_cast<std::int64_t>(record.values.size()),
                         .stored = record.shape,
                         .permutation = {}};
  parameter.location.file = file.path(); // which a person has named, other than external data
  return success;
}

Status pdc::takeInitialWeights(Module& module, const std::vector<std::string>& files, Diagnostics& diags) {
  if (files.empty()) return success;
  std::map<std::string, std::string> fileOf; // by parameter
  bool valid = true;
  for (const std::string& path : files) {
    pdcrt::SafetensorsFile file;
    if (pdcrt::Status status = file.open(path); !status) return reportFile(status, path, diags);
    std::size_t taken = 0;
    for (const auto& [name, record] : file.tensors()) {
      Parameter* parameter = module.findParameter(name);
      if (!parameter) continue;
      ++taken;
      const auto [known, isNew] = fileOf.emplace(name, path);
      if (!isNew) return diags.error({.file = path, .node = name}) << "is in " << known->second << ", too";
      if (!take(*parameter, file, record, diags)) valid = false;
    }
    if (taken == 0)
      return diags.error({.file = path}).help("'pdc " + module.file + " --emit=ir' lists the parameters")
             << "none of its " << file.tensors().size() << " tensors has the name of a parameter of the model";
  }
  if (!valid) return failure;
  for (const auto& parameter : module.parameters)
    if (!fileOf.contains(parameter->name)) {
      diags.remark({.file = module.file})
          << fileOf.size() << " of " << module.parameters.size() << " parameters start with other values; '"
          << parameter->name << "' is the first that keeps the model's";
      break;
    }
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
    const bool lacks = parameter.reference.file.empty();
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
