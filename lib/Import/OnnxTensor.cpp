// TensorProto to types and values.
#include "pdc/Import/OnnxTensor.h"

#include "OnnxProto.h"
#include "TensorReader.h"
#include "pdc/IR/OpDef.h"

#include <fstream>

using namespace pdc;

std::string pdc::onnxTypeName(int dataType) {
  bool known = dataType > 0 && onnx::TensorProto::DataType_IsValid(dataType);
  return known ? onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(dataType))
               : "type " + std::to_string(dataType);
}

Expected<Type> pdc::typeFromOnnx(const onnx::TensorProto& proto, const Location& where, Diagnostics& diags) {
  std::optional<ElementType> element = elementTypeFromOnnx(proto.data_type());
  if (!element)
    return diags.error(where).exit(ExitCode::unsupported)
           << "tensors of " << onnxTypeName(proto.data_type()) << " are not supported";
  Type type{*element, Shape(proto.dims().begin(), proto.dims().end())};
  for (std::int64_t dim : type.shape)
    if (dim < 0) return diags.error(where) << "has the shape " << toString(type.shape) << ", dimensions are at least 0";
  std::int64_t elements = elementsOf(type.shape);
  if (elements < 0 || elements > INT64_MAX / 8)
    return diags.error(where) << "has the shape " << toString(type.shape) << ", which has too many elements";
  return type;
}

/// Elements of type T from the numbers of `field`.
template <class T, class Field>
static void copyElements(Tensor& tensor, const Field& field) {
  std::span<T> out = tensor.mutableData<T>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(field.Get(static_cast<int>(i)));
}

static Expected<Tensor> fromFields(const onnx::TensorProto& proto, const Type& type, const Location& where,
                                   Diagnostics& diags) {
  // Which field holds which type: onnx.proto, TensorProto. f16 and bf16 are bits in int32_data.
  const ElementType element = type.element;
  const bool unsignedField = element == ElementType::u64 || element == ElementType::u32;
  std::int64_t stored = element == ElementType::f32   ? proto.float_data_size()
                        : element == ElementType::f64 ? proto.double_data_size()
                        : element == ElementType::i64 ? proto.int64_data_size()
                        : unsignedField               ? proto.uint64_data_size()
                                                      : proto.int32_data_size();
  if (stored != type.elements())
    return diags.error(where) << "has " << stored << (stored == 1 ? " element, " : " elements, ") << toString(type)
                              << " needs " << type.elements();
  Tensor tensor(type);
  if (stored == 0) return tensor;
  switch (element) {
  case ElementType::f32: copyElements<float>(tensor, proto.float_data()); break;
  case ElementType::f64: copyElements<double>(tensor, proto.double_data()); break;
  case ElementType::i64: copyElements<std::int64_t>(tensor, proto.int64_data()); break;
  case ElementType::i32: copyElements<std::int32_t>(tensor, proto.int32_data()); break;
  case ElementType::i16: copyElements<std::int16_t>(tensor, proto.int32_data()); break;
  case ElementType::i8: copyElements<std::int8_t>(tensor, proto.int32_data()); break;
  case ElementType::u64: copyElements<std::uint64_t>(tensor, proto.uint64_data()); break;
  case ElementType::u32: copyElements<std::uint32_t>(tensor, proto.uint64_data()); break;
  case ElementType::u8: copyElements<std::uint8_t>(tensor, proto.int32_data()); break;
  case ElementType::boolean: {
    std::span<std::uint8_t> out = tensor.mutableData<std::uint8_t>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = proto.int32_data(static_cast<int>(i)) != 0;
    break;
  }
  case ElementType::u16:
  case ElementType::f16:
  case ElementType::bf16: copyElements<std::uint16_t>(tensor, proto.int32_data()); break;
  }
  return tensor;
}

Expected<Tensor> pdc::tensorFromOnnx(const onnx::TensorProto& proto, const Location& where, Diagnostics& diags) {
  Expected<Type> type = typeFromOnnx(proto, where, diags);
  if (!type) return failure;
  if (!proto.has_raw_data()) return fromFields(proto, *type, where, diags);
  const std::string& raw = proto.raw_data();
  if (static_cast<std::int64_t>(raw.size()) != type->bytes())
    return diags.error(where) << "has a tensor with " << raw.size() << " bytes of elements, " << toString(*type)
                              << " needs " << type->bytes();
  return Tensor(*type, std::as_bytes(std::span(raw)));
}

Expected<Tensor> pdc::readOnnxTensor(const std::string& path, Diagnostics& diags) {
  std::ifstream stream(path, std::ios::binary);
  onnx::TensorProto proto;
  if (!stream) return diags.error({.file = path}) << "cannot be read";
  if (!proto.ParseFromIstream(&stream)) return diags.error({.file = path}) << "is no tensor of ONNX";
  return tensorFromOnnx(proto, {.file = path}, diags);
}
