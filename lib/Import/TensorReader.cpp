// The three ways in which ONNX stores elements: as bytes in the file, as bytes in another file, one by one in fields.
#include "TensorReader.h"

#include <charconv>
#include <map>

using namespace pdc;

/// How many elements the fields of numbers have, together.
static int storedOneByOne(const onnx::TensorProto& proto) {
  return proto.float_data_size() + proto.double_data_size() + proto.int64_data_size() + proto.int32_data_size() +
         proto.uint64_data_size();
}

Expected<StoredTensor> TensorReader::initializer(int i) {
  const onnx::TensorProto& proto = file_.graph().initializer(i);
  const ElementRange& range = file_.elements(i);
  Location where{.file = file_.path(), .node = proto.name()};
  Expected<Type> type = typeFromOnnx(proto, where, diags_);
  if (!type) return failure;
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) return external(proto, *type, where);
  if (range.scattered)
    return diags_.error(where).help("load the model with Python's onnx package and save it again")
           << "its elements lie in several pieces of the file, pdc needs them in one";
  if (range.field == 0 && elementsMayLack_ && type->elements() > 0 && storedOneByOne(proto) == 0)
    return StoredTensor{*std::move(type), std::nullopt, std::nullopt, {}};
  if (range.field == 0) {
    Expected<Tensor> value = tensorFromOnnx(proto, where, diags_);
    if (!value) return failure;
    return StoredTensor{*type, std::nullopt, *std::move(value), {}};
  }
  bool fits = range.field == onnx::TensorProto::kRawDataFieldNumber ||
              (range.field == onnx::TensorProto::kFloatDataFieldNumber && type->element == ElementType::f32) ||
              (range.field == onnx::TensorProto::kDoubleDataFieldNumber && type->element == ElementType::f64);
  if (!fits) return diags_.error(where) << "its elements are in a field for another type than " << toString(*type);
  if (static_cast<std::int64_t>(range.length) != type->bytes())
    return diags_.error(where) << "has " << range.length << " bytes of elements, " << toString(*type) << " needs "
                               << type->bytes();
  Reference reference{.file = file_.path(),
                      .offset = static_cast<std::int64_t>(range.offset),
                      .length = static_cast<std::int64_t>(range.length),
                      .stored = type->shape,
                      .origin = ReferenceOrigin::namedByUser};
  return StoredTensor{*type, std::move(reference), std::nullopt, {}};
}

std::pair<std::string, int> TensorReader::lackingData() const {
  std::map<std::string, int> users;
  for (const onnx::TensorProto& proto : file_.graph().initializer())
    for (const onnx::StringStringEntryProto& entry : proto.external_data())
      if (proto.data_location() == onnx::TensorProto::EXTERNAL && entry.key() == "location") ++users[entry.value()];
  for (const auto& [location, count] : users)
    if (external_.lacks(location)) return {location, count};
  return {"", 0};
}

Expected<StoredTensor> TensorReader::external(const onnx::TensorProto& proto, Type type, const Location& where) {
  std::string location;
  std::int64_t offset = 0, length = type.bytes();
  for (const onnx::StringStringEntryProto& entry : proto.external_data()) {
    const std::string& text = entry.value();
    if (entry.key() == "location") location = text;
    if (entry.key() != "offset" && entry.key() != "length") continue;
    std::int64_t& number = entry.key() == "offset" ? offset : length;
    auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc{} || end != text.data() + text.size() || number < 0)
      return diags_.error(where) << "the " << entry.key() << " '" << text << "' of its external data is not a number";
  }
  if (location.empty()) return diags_.error(where) << "its external data has no location";
  if (length != type.bytes())
    return diags_.error(where) << "has " << length << " bytes of external data, " << toString(type) << " needs "
                               << type.bytes();
  if (elementsMayLack_ && external_.lacks(location))
    return StoredTensor{std::move(type), std::nullopt, std::nullopt, location};
  Expected<ExternalData::Range> range = external_.locate(location, offset, length, where, diags_);
  if (!range) return failure;
  Reference reference{.file = range->file,
                      .offset = offset,
                      .length = length,
                      .stored = type.shape,
                      .origin = ReferenceOrigin::externalData,
                      .model = file_.path()};
  return StoredTensor{std::move(type), std::move(reference), std::nullopt, location};
}

Expected<Tensor> TensorReader::load(const StoredTensor& tensor, const Location& where) {
  if (tensor.value) return *tensor.value;
  if (tensor.lacksElements()) return diags_.error(where) << "has no elements, and is no weight that could be drawn";
  const Reference& reference = *tensor.reference;
  if (tensor.externalLocation.empty())
    return Tensor(tensor.type, file_.bytes().subspan(static_cast<std::size_t>(reference.offset),
                                                     static_cast<std::size_t>(reference.length)));
  ExternalData::Range range{reference.file, reference.offset, reference.length};
  Expected<std::vector<std::byte>> bytes = external_.read(tensor.externalLocation, range, where, diags_);
  if (!bytes) return failure;
  return Tensor(tensor.type, *bytes);
}

Expected<Tensor> TensorReader::attribute(const onnx::TensorProto& proto, const Location& where) {
  if (proto.data_location() != onnx::TensorProto::EXTERNAL) return tensorFromOnnx(proto, where, diags_);
  Expected<Type> type = typeFromOnnx(proto, where, diags_);
  if (!type) return failure;
  Expected<StoredTensor> stored = external(proto, *type, where);
  if (!stored) return failure;
  return load(*stored, where);
}
