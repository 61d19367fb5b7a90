// What the ops of softmax cross-entropy share: which positions count, the share of each class in the loss, and checks
// of operands and attributes.
#pragma once

#include "Shared/Define.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace pdc::ops {

/// Of every op that reads labels.
std::vector<AttributeDef> crossEntropyAttributes();

/// Whether the position with `label` counts.
bool countsInLoss(const Operation& op, std::int64_t label);

/// Reports unless operand i holds integers of such a shape. `of` says what they label.
Status requireLabels(const InferContext& c, const char* op, std::size_t i, const Shape& shape, const std::string& of);

/// Reports unless operand `weights` is absent or has a weight for each class, and the smoothing is a share.
Status requireLossOptions(const InferContext& c, const char* op, std::size_t weights, ElementType element,
                          std::int64_t classes);

/// Of the loss, the statistics and the weights of classes.
inline ElementType highOf(const Type& logits) {
  return isLowPrecision(logits.element) ? ElementType::f32 : logits.element;
}

/// The classes that a member of a team has: `count` of them from `first` on, in the order of the members. Each has room
/// for as many.
struct ClassesOfMember {
  std::int64_t first, count;
  ClassesOfMember(std::int64_t classes, std::int64_t room, std::int64_t member)
      : first(std::min(member * room, classes)), count(std::min(room, classes - first)) {}
};

/// The loss as its definition sees it: weights of classes and smoothing.
template <class T>
class LossDefinition {
public:
  /// `classes` are all of them.
  LossDefinition(ReferenceContext& c, std::size_t labels, std::size_t weights, std::int64_t classes)
      : labels_(labels), smoothing_(static_cast<T>(c.op.attributes.getFloat("label_smoothing"))), classes_(classes) {
    if (weights < c.operands.size() && c.operands[weights]) weights_ = c.in<T>(weights);
  }
  T weight(std::int64_t k) const { return weights_.empty() ? T(1) : weights_[static_cast<std::size_t>(k)]; }
  /// How much of -log softmax[k] a position with `label` has in the loss.
  T share(std::int64_t label, std::int64_t k) const {
    return weight(k) * ((k == label ? 1 - smoothing_ : T(0)) + smoothing_ / static_cast<T>(classes_));
  }
  /// The sum of the weights of the labels that count; reports a label that is none of the classes.
  double sumOfWeights(ReferenceContext& c) const {
    const Tensor& labels = *c.operands[labels_];
    double sum = 0;
    for (std::int64_t i = 0; i < labels.elements(); ++i) {
      const std::int64_t label = labels.asInt(i);
      if (!countsInLoss(c.op, label)) continue;
      if (label < 0 || label >= classes_)
        c.error = "label " + std::to_string(label) + " is none of the classes 0 to " + std::to_string(classes_ - 1) +
                  (label < 0 ? "; ignore_index=" + std::to_string(label) + " leaves it out" : "");
      else
        sum += weight(label);
    }
    return sum;
  }

private:
  std::size_t labels_;
  T smoothing_;
  std::int64_t classes_;
  std::span<const T> weights_;
};

} // namespace pdc::ops
