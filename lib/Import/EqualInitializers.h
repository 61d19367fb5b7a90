// Initializers with equal elements: parameters that an exporter merged although they are several, and copies of one
// parameter that it made although it is one.
#pragma once

#include "TensorReader.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pdc {

/// A parameter that the exporter does not store because another one was equal when the model was exported: PyTorch
/// writes "name = Identity(initializer)" for it in inference mode (all biases that are zero become one).
struct MergedParameter {
  int node = 0;        ///< of the graph, the Identity
  int initializer = 0; ///< whose elements it has
  std::string name;
};

/// In the order of the nodes. Only floats of models that PyTorch wrote: elsewhere Identity can mean anything. Not among
/// them is the matrix of a classifier that equals the table of an embedding, unless `tie` is false: these are one.
std::vector<MergedParameter> mergedParameters(const OnnxFile& file, TensorReader& reader, bool tie);

/// Gives each of `merged` an initializer of its own, with the elements of the one that it was merged with, and removes
/// its node.
void separate(OnnxFile& file, const std::vector<MergedParameter>& merged);

/// Whether all elements are the same; false where they are not in one piece.
bool holdsOneNumber(const OnnxFile& file, const StoredTensor& tensor);

/// Whether two tensors are equal to the last bit; false where their elements are not in one piece.
bool haveEqualElements(const OnnxFile& file, const StoredTensor& a, const StoredTensor& b);

/// Whether `b` holds the elements of the matrix `a`, or those of its transpose. Elements that are all the same, such as
/// the zeros of a bias, say nothing: Equality::none.
enum class Equality { none, same, transposed };
Equality compareMatrices(const OnnxFile& file, const StoredTensor& a, const StoredTensor& b);

/// An initializer of a file that holds the elements of another matrix.
struct MatrixCopy {
  std::string original;
  bool transposed = false;
};

/// The first matrix among those of `file` whose names `isOriginal` says, that initializer i is a copy of.
std::optional<MatrixCopy> copiedMatrix(const OnnxFile& file, TensorReader& reader, int i,
                                       const std::function<bool(const std::string&)>& isOriginal);

/// The elements of the transpose of a matrix of this shape, with elements of `size` bytes.
std::vector<std::byte> transposed(std::span<const std::byte> elements, std::int64_t rows, std::int64_t columns,
                                  std::size_t size);

} // namespace pdc
