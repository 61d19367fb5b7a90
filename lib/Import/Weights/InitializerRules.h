// What a float is, by its name, its elements and the inputs that it is, where the file does not say.
#pragma once

#include "TensorReader.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace pdc {

/// An input that an initializer is.
struct InitializerUse {
  const onnx::NodeProto* node = nullptr;
  int input = 0;
};
using InitializerUses = std::vector<InitializerUse>;

/// What reads each value of a graph and of the bodies in it, and which values a Reshape made.
struct ValueUses {
  explicit ValueUses(const onnx::GraphProto& graph);
  const InitializerUses& of(const std::string& name) const;

  std::map<std::string, InitializerUses> uses;
  std::set<std::string> reshaped;
};

/// Whether PyTorch's exporter made `node`, an InstanceNormalization, of a GroupNorm: then its scale of ones and its
/// shift of zeros are nobody's parameters.
bool isInsideGroupNorm(const onnx::NodeProto& node);

/// Whether all uses are exponents, bounds, ratios, numbers to pad with, and the like: no parameter is one.
bool isSetting(const InitializerUses& uses);

/// The same for what is computed from the value `name`, such as a size that is multiplied by a factor and cast.
bool leadsToSettings(const std::string& name, const ValueUses& uses);

/// Whether `name` says nothing of a module: "val_68", "onnx::Mul_12", "/attn/Constant_output_0", "1234".
bool isNamedByExporter(const std::string& name);

/// Whether a float without dimensions is a parameter: by its name, a path ("blocks.0.gate") or a word such as
/// "logit_scale", or because it is the slope of a PRelu. PyTorch stores nothing else as an initializer that has a name
/// of its own (`isOfPyTorch`).
bool isScalarParameter(const std::string& name, const ValueUses& values, bool isOfPyTorch);

/// Whether all uses are terms under a square root: the epsilon of a normalisation that is written out.
bool isAddedUnderRoot(const std::string& name, const ValueUses& values);

/// Whether all uses are the weights or the biases of LSTM, GRU or RNN.
bool isPackedForRecurrence(const InitializerUses& uses);

/// Whether PyTorch has folded a BatchNormalization into `node`. `isSaid`: the file says so of its nodes.
bool hasFoldedBatchNorm(const onnx::NodeProto& node, bool isSaid);

/// Why a float with dimensions is no parameter, although it is stored like one; empty: it may be one. These are zero
/// first states of recurrent layers, the scale and shift of an InstanceNormalization that is part of a GroupNorm, what
/// a scatter fills, single numbers with a name that an exporter made, frequencies and tables of sines and cosines.
std::string whyConstant(const std::string& name, const ValueUses& uses, const OnnxFile& file,
                        const StoredTensor& tensor, TensorReader& reader);

} // namespace pdc
