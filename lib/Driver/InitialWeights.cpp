// Points parameters at the tensors of safetensors files; nothing is copied.
#include "InitialWeights.h"

#include "OutputFolder.h"

#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdcrt/Safetensors.h"

#include <map>

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
