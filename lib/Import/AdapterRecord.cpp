// adapters.json.
#include "pdc/Import/Adapters.h"

#include <nlohmann/json.hpp>

using namespace pdc;
using Json = nlohmann::ordered_json;

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
  return Json{{"adapters", std::move(adapters)}, {"trained", record.trained}}.dump(1) + "\n";
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
      if (a.rank < 1 || a.inputs < 1 || a.outputs < 1 || a.slices < 1 || a.outputs % a.slices != 0 || a.slice < 0 ||
          a.slice >= a.slices)
        throw std::runtime_error("the adapter of '" + a.path + "' has no such sizes");
    }
    json.at("trained").get_to(record.trained);
  } catch (const std::exception& error) {
    return diags.error({.file = file}).help("run pdc again") << "is no record of adapters: " << error.what();
  }
  return record;
}

std::pair<std::string, std::string> pdc::folderAndStrip(const std::string& text) {
  const std::string key = ",strip=";
  const std::size_t at = text.rfind(key);
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + key.size())};
}
