// Reading trusts nothing of the header: every number is checked before it is used.
#include "pdcrt/Safetensors.h"

#include "pdcrt/Npy.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string_view>

namespace pdcrt {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t longestHeader = 100'000'000;

struct TypeName {
  std::string_view name;
  Element element;
};

constexpr TypeName typeNames[] = {{"F64", Element::f64},     {"F32", Element::f32}, {"F16", Element::f16},
                                  {"BF16", Element::bf16},   {"I64", Element::i64}, {"I32", Element::i32},
                                  {"I16", Element::i16},     {"I8", Element::i8},   {"U64", Element::u64},
                                  {"U32", Element::u32},     {"U16", Element::u16}, {"U8", Element::u8},
                                  {"BOOL", Element::boolean}};

/// Reads a header entry. Returns what is wrong with it; empty if nothing is.
std::string readEntry(const Json& entry, std::span<const std::byte> values, TensorRecord& record) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets"))
    return "needs 'dtype', 'shape' and 'data_offsets'";
  const Json &dtype = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
  const TypeName* type = nullptr;
  for (const TypeName& known : typeNames)
    if (dtype.is_string() && dtype.get_ref<const std::string&>() == known.name) type = &known;
  if (!type) return "has the unknown type " + dtype.dump();
  if (!shape.is_array()) return "has a shape that is not a list";
  std::size_t need = bytesOf(type->element);
  for (const Json& dim : shape) {
    if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > INT64_MAX ||
        __builtin_mul_overflow(need, dim.get<std::size_t>(), &need))
      return "has the shape " + shape.dump() + ", which is not one";
    record.shape.push_back(dim.get<std::int64_t>());
  }
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    return "has 'data_offsets' that are not two numbers";
  std::size_t begin = offsets[0].get<std::size_t>(), end = offsets[1].get<std::size_t>();
  if (begin > end || end > values.size())
    return "lies at bytes " + offsets.dump() + ", the file has " + std::to_string(values.size());
  if (end - begin != need)
    return "has " + std::to_string(end - begin) + " bytes, its type and shape need " + std::to_string(need);
  record.element = type->element;
  record.values = values.subspan(begin, need);
  return {};
}

} // namespace

Status SafetensorsFile::open(const std::string& path) {
  tensors_.clear();
  metadata_.clear();
  if (Status status = file_.open(path); !status) return status;
  auto bad = [&](const std::string& why) { return Status(Exit::badData, path + ": " + why); };
  std::span<const std::byte> bytes = file_.bytes();
  if (bytes.size() < 8) return bad("is not a safetensors file: it has " + std::to_string(bytes.size()) + " bytes");
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<std::uint64_t>(bytes[static_cast<std::size_t>(i)]);
  if (length > bytes.size() - 8)
    return bad("says its header has " + std::to_string(length) + " bytes, the file has " +
               std::to_string(bytes.size()));
  std::span<const std::byte> values = bytes.subspan(8 + length);
  const char* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  // What else such a file could be read as is nobody's intention: the format has this limit, and this beginning.
  if (length > longestHeader)
    return bad("says its header has " + std::to_string(length) + " bytes, a safetensors file has at most " +
               std::to_string(longestHeader));
  if (length == 0 || *text != '{') return bad("has a header that is not a JSON object");
  std::set<std::string> names;
  std::string twice;
  const Json::parser_callback_t look = [&](int depth, Json::parse_event_t event, Json& key) {
    if (depth == 1 && event == Json::parse_event_t::key && !names.insert(key.get<std::string>()).second)
      twice = key.get<std::string>();
    return true;
  };
  Json header = Json::parse(text, text + length, look, /*allow_exceptions=*/false);
  if (!header.is_object()) return bad("has a header that is not a JSON object");
  if (!twice.empty()) return bad("tensor '" + twice + "' appears twice");

  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return bad("has '__metadata__' that is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return bad("has metadata '" + key + "' that is not a string");
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    TensorRecord record;
    record.name = name;
    if (std::string problem = readEntry(entry, values, record); !problem.empty())
      return bad("tensor '" + name + "' " + problem);
    tensors_.emplace(name, std::move(record));
  }

  std::vector<const TensorRecord*> byPlace;
  for (const auto& [name, record] : tensors_)
    if (!record.values.empty()) byPlace.push_back(&record);
  std::sort(byPlace.begin(), byPlace.end(),
            [](const TensorRecord* a, const TensorRecord* b) { return a->values.data() < b->values.data(); });
  for (std::size_t i = 1; i < byPlace.size(); ++i)
    if (byPlace[i - 1]->values.data() + byPlace[i - 1]->values.size() > byPlace[i]->values.data())
      return bad("tensors '" + byPlace[i - 1]->name + "' and '" + byPlace[i]->name + "' overlap");
  return {};
}

const TensorRecord* SafetensorsFile::find(const std::string& name) const {
  auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

Status writeSafetensors(const std::string& path, std::span<const TensorRecord> tensors,
                        const std::map<std::string, std::string>& metadata, FileSum* sum) {
  const auto valuesOf = [&](std::size_t i, std::span<const std::byte>& values) {
    values = tensors[i].values;
    return Status();
  };
  return writeSafetensors(path, tensors, valuesOf, metadata, sum);
}

Status writeSafetensors(const std::string& path, std::span<const TensorRecord> tensors, const ValuesGiver& valuesOf,
                        const std::map<std::string, std::string>& metadata, FileSum* sum) {
  constexpr std::size_t alignment = 8;
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return bytesOf(tensors[a].element) > bytesOf(tensors[b].element);
  });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<std::size_t> needs;
  std::size_t offset = 0;
  for (std::size_t i : order) {
    const TensorRecord& tensor = tensors[i];
    std::size_t need = bytesOf(tensor.element);
    for (std::int64_t dim : tensor.shape) need *= static_cast<std::size_t>(dim);
    if (header.contains(tensor.name)) return {Exit::cannotWrite, path + ": tensor '" + tensor.name + "' appears twice"};
    for (const TypeName& known : typeNames)
      if (known.element == tensor.element)
        header[tensor.name] = {
            {"dtype", known.name}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + need}}};
    needs.push_back(need);
    offset += need;
  }
  std::string text = header.dump();
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  std::byte length[8];
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(text.size() >> (8 * i));
  const auto partOf = [&](std::size_t i, std::span<const std::byte>& part) -> Status {
    if (i < 2) { // length and header come first
      part = i == 0 ? std::span<const std::byte>(length) : std::as_bytes(std::span(text));
      return {};
    }
    const TensorRecord& tensor = tensors[order[i - 2]];
    if (Status status = valuesOf(order[i - 2], part); !status) return status;
    if (part.size() == needs[i - 2]) return {};
    return {Exit::cannotWrite, path + ": tensor '" + tensor.name + "' has " + std::to_string(part.size()) +
                                   " bytes, its shape " + toString(tensor.shape) + " needs " +
                                   std::to_string(needs[i - 2])};
  };
  return writeAtomically(path, order.size() + 2, partOf, sum);
}

} // namespace pdcrt
