// adapters.json, and what PEFT writes beside adapters.
#include "pdc/Import/Adapters.h"

#include "pdc/IR/Graph.h"
#include "pdc/Support/NamePattern.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

using namespace pdc;
using Json = nlohmann::ordered_json;

AdapterRecord pdc::recordOf(const Module& module) {
  AdapterRecord record{module.adapters, {}};
  std::set<std::string> own;
  for (const Adapter& adapter : module.adapters) own.insert({adapter.nameOfA(), adapter.nameOfB()});
  for (const auto& parameter : module.parameters)
    if (parameter->role == ParameterRole::trained && !own.contains(parameter->name))
      record.trained.push_back(parameter->name);
  return record;
}

std::string pdc::toJson(const AdapterRecord& record) {
  Json adapters = Json::array();
  for (const Adapter& a : record.adapters)
    adapters.push_back({{"path", a.path},
                        {"weight", a.weight},
                        {"outputs_first", a.outputsFirst},
                        {"outputs_first_in_module", a.outputsFirstInModule},
                        {"inputs", a.inputs},
                        {"outputs", a.outputs},
                        {"rank", a.rank},
                        {"alpha", a.alpha},
                        {"dropout", a.dropout},
                        {"slice", a.slice},
                        {"slices", a.slices}});
  return Json{{"adapters", std::move(adapters)}, {"trained", record.trained}}.dump(1, ' ', false,
                                                                                   Json::error_handler_t::replace) +
         "\n";
}

Expected<AdapterRecord> pdc::adaptersFromJson(const std::string& text, const std::string& file, Diagnostics& diags) {
  AdapterRecord record;
  try {
    const Json json = Json::parse(text);
    for (const Json& one : json.at("adapters")) {
      Adapter& a = record.adapters.emplace_back();
      one.at("path").get_to(a.path);
      one.at("weight").get_to(a.weight);
      one.at("outputs_first").get_to(a.outputsFirst);
      one.at("outputs_first_in_module").get_to(a.outputsFirstInModule);
      one.at("inputs").get_to(a.inputs);
      one.at("outputs").get_to(a.outputs);
      one.at("rank").get_to(a.rank);
      one.at("alpha").get_to(a.alpha);
      one.at("dropout").get_to(a.dropout);
      one.at("slice").get_to(a.slice);
      one.at("slices").get_to(a.slices);
      // No sum of sizes overflows, and what an adapter needs can be allocated.
      constexpr std::int64_t most = std::int64_t{1} << 31;
      if (a.rank < 1 || a.inputs < 1 || a.outputs < 1 || a.rank > most / a.inputs || a.rank > most / a.outputs ||
          a.inputs > most * 8 / a.outputs || a.slices < 1 || a.outputs % a.slices != 0 || a.slice < 0 ||
          a.slice >= a.slices)
        throw std::runtime_error("the adapter of '" + a.path + "' has no such sizes");
    }
    json.at("trained").get_to(record.trained);
  } catch (const std::exception& error) {
    return diags.error({.file = file}).help("run pdc again") << "is no record of adapters: " << error.what();
  }
  return record;
}

double PeftConfig::scaleOf(const std::string& path, std::int64_t ownRank) const {
  double own = alpha;
  for (const auto& [key, value] : alphas)
    if (NamePattern("alpha_pattern", "^(.*[.])?(" + key + ")$").matches(path)) own = value;
  const auto divisor = static_cast<double>(ownRank);
  return own / (usesRoot ? std::sqrt(divisor) : divisor);
}

Expected<PeftConfig> pdc::peftConfigFromJson(const std::string& text, const std::string& file, Diagnostics& diags) {
  PeftConfig config;
  try {
    const Json json = Json::parse(text);
    if (json.at("peft_type") != "LORA" || json.value("use_dora", false) || json.value("bias", "none") != "none")
      return diags.error({.file = file}).exit(ExitCode::unsupported)
             << "is of adapters of another kind than LoRA without biases";
    json.at("r").get_to(config.rank);
    json.at("lora_alpha").get_to(config.alpha);
    config.usesRoot = json.value("use_rslora", false);
    if (const auto alphas = json.find("alpha_pattern"); alphas != json.end() && !alphas->is_null())
      alphas->get_to(config.alphas);
  } catch (const std::exception& error) {
    return diags.error({.file = file}).help("name a folder that PEFT's save_pretrained has written")
           << "is no configuration of LoRA: " << error.what();
  }
  return config;
}

std::pair<std::string, std::string> pdc::folderAndStrip(const std::string& text) {
  const std::string key = ",strip=";
  const std::size_t at = text.rfind(key);
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + key.size())};
}
