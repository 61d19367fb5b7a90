// Sums of products by Einstein's convention, as transposes, products of matrices and sums.
//
// Operands are combined from left to right. Of two, the labels in both that something later needs are a batch; those
// that nothing later needs are summed over, by the product if both have them; the others are rows and columns.
#include "Convert/Indices.h"
#include "Shared/Define.h"

#include <algorithm>
#include <map>
#include <set>

namespace pdc::ops::Einsum {

namespace {

/// A label is a letter, or 256 and more for the axes of an ellipsis, counted from the last.
using Labels = std::vector<int>;
constexpr int ellipsis = 256;

/// A tensor whose axes have labels.
struct Term {
  Value* value = nullptr;
  Labels labels;

  std::int64_t size(int label) const {
    const auto at = std::find(labels.begin(), labels.end(), label);
    return at == labels.end() ? 1 : value->type().shape[static_cast<std::size_t>(at - labels.begin())];
  }
  bool has(int label) const { return std::find(labels.begin(), labels.end(), label) != labels.end(); }
};

class Einsum {
public:
  explicit Einsum(OnnxReader& reader) : n(reader) {}

  Value* convert() {
    if (!parse()) return nullptr;
    Term all = diagonals(terms_[0]);
    for (std::size_t i = 1; all.value && i < terms_.size(); ++i) {
      std::set<int> later(output_.begin(), output_.end());
      for (std::size_t j = i + 1; j < terms_.size(); ++j)
        later.insert(terms_[j].labels.begin(), terms_[j].labels.end());
      all = product(all, diagonals(terms_[i]), later);
    }
    if (!all.value) return nullptr;
    all = summed(all, {output_.begin(), output_.end()});
    return arranged(all, output_);
  }

private:
  Value* fail(const std::string& what) {
    static_cast<void>(n.error() << "has equation '" << equation_ << "', " << what);
    return nullptr;
  }

  // Reading the equation.

  bool parse() {
    equation_ = n.text("equation", "");
    std::string text;
    for (char c : equation_)
      if (c != ' ') text += c;
    const std::size_t arrow = text.find("->");
    std::string inputs = text.substr(0, arrow);
    std::vector<std::string> parts(1);
    for (char c : inputs) {
      if (c == ',')
        parts.emplace_back();
      else
        parts.back() += c;
    }
    if (parts.size() != n.node.inputs.size())
      return fail("which has " + std::to_string(parts.size()) + " terms for " + std::to_string(n.node.inputs.size()) +
                  " inputs");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Value* value = n.input(i);
      if (!value) return fail("and lacks input " + std::to_string(i));
      const std::optional<Labels> labels = labelsOf(parts[i], value->type().rank());
      if (!labels) return false;
      terms_.push_back({value, *labels});
      if (!readSizes(terms_.back())) return false;
    }
    const std::optional<Labels> output =
        arrow == std::string::npos ? implicitOutput() : labelsOf(text.substr(arrow + 2), -1);
    if (!output) return false;
    output_ = *output;
    for (std::size_t i = 0; i < output_.size(); ++i)
      if (!sizes_.contains(output_[i]) || std::count(output_.begin(), output_.end(), output_[i]) > 1)
        return fail("whose result has a label twice, or one that no input has");
    return true;
  }

  /// `rank`: of the operand; -1 for the result, whose ellipsis has as many axes as any.
  std::optional<Labels> labelsOf(const std::string& part, int rank) {
    Labels labels;
    const std::size_t dots = part.find("...");
    const int letters = static_cast<int>(part.size()) - (dots == std::string::npos ? 0 : 3);
    const int hidden = rank < 0 ? widest_ : rank - letters;
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (i == dots) {
        for (int axis = hidden; axis-- > 0;) labels.push_back(ellipsis + axis);
        i += 2;
      } else if (std::isalpha(static_cast<unsigned char>(part[i]))) {
        labels.push_back(part[i]);
      } else {
        fail("which is not an equation");
        return std::nullopt;
      }
    }
    if (rank >= 0 && (hidden < 0 || static_cast<int>(labels.size()) != rank)) {
      fail("whose term '" + part + "' does not fit an input of rank " + std::to_string(rank));
      return std::nullopt;
    }
    if (rank >= 0 && dots != std::string::npos) widest_ = std::max(widest_, hidden);
    return labels;
  }

  /// A size of 1 broadcasts.
  bool readSizes(const Term& term) {
    for (std::size_t axis = 0; axis < term.labels.size(); ++axis) {
      const std::int64_t size = term.value->type().shape[axis];
      std::int64_t& known = sizes_.emplace(term.labels[axis], size).first->second;
      if (known != size && known != 1 && size != 1)
        return fail("in which a label has " + std::to_string(known) + " and " + std::to_string(size) + " elements");
      known = known == 1 ? size : known;
    }
    return true;
  }

  /// Without an arrow: the axes of the ellipsis, then all letters that occur once, in alphabetical order.
  std::optional<Labels> implicitOutput() {
    std::map<int, int> counts;
    for (const Term& term : terms_)
      for (int label : term.labels) ++counts[label];
    Labels labels;
    for (int axis = widest_; axis-- > 0;) labels.push_back(ellipsis + axis);
    for (const auto& [label, count] : counts)
      if (label < ellipsis && count == 1) labels.push_back(label);
    return labels;
  }

  // Computing.

  /// The diagonal of axes that have the same label.
  Term diagonals(Term term) {
    for (std::size_t first = 0; term.value && first < term.labels.size(); ++first) {
      const int label = term.labels[first];
      const auto again =
          std::find(term.labels.begin() + static_cast<std::ptrdiff_t>(first) + 1, term.labels.end(), label);
      if (again == term.labels.end()) continue;
      // As the last two axes, which become one, in which the diagonal is every (size + 1)-th element.
      const auto second = static_cast<std::size_t>(again - term.labels.begin());
      std::vector<std::int64_t> permutation;
      Labels labels;
      Shape rest;
      for (std::size_t axis = 0; axis < term.labels.size(); ++axis)
        if (axis != first && axis != second) {
          permutation.push_back(static_cast<std::int64_t>(axis));
          labels.push_back(term.labels[axis]);
          rest.push_back(term.value->type().shape[axis]);
        }
      const std::int64_t size = term.value->type().shape[first];
      if (size != term.value->type().shape[second]) return {fail("which takes the diagonal of unequal axes"), {}};
      permutation.push_back(static_cast<std::int64_t>(first));
      permutation.push_back(static_cast<std::int64_t>(second));
      Shape flat = {elementsOf(rest), size * size}, diagonal = {elementsOf(rest), size}, result = rest;
      result.push_back(size);
      Value* x = n.reshape(n.transpose(term.value, permutation), flat);
      x = x ? n.value("slice", {x},
                      {{"starts", std::vector<std::int64_t>{0, 0}},
                       {"sizes", diagonal},
                       {"steps", std::vector<std::int64_t>{1, size + 1}}})
            : nullptr;
      labels.push_back(label);
      term = {n.reshape(x, result), labels};
      first = static_cast<std::size_t>(-1); // from the beginning
    }
    return term;
  }

  /// Without the axes that nothing needs.
  Term summed(const Term& term, const std::set<int>& needed) {
    std::vector<std::int64_t> axes;
    Term result;
    for (std::size_t axis = 0; axis < term.labels.size(); ++axis)
      if (needed.contains(term.labels[axis]))
        result.labels.push_back(term.labels[axis]);
      else
        axes.push_back(static_cast<std::int64_t>(axis));
    if (axes.empty() || !term.value) return term;
    result.value = n.value("reduce_sum", {term.value}, {{"axes", axes}});
    return result;
  }

  /// The axes of `term` in the order of `labels`, all of which it has.
  Value* arranged(const Term& term, const Labels& labels) {
    std::vector<std::int64_t> permutation;
    for (int label : labels)
      permutation.push_back(std::find(term.labels.begin(), term.labels.end(), label) - term.labels.begin());
    return std::is_sorted(permutation.begin(), permutation.end()) ? term.value : n.transpose(term.value, permutation);
  }

  std::int64_t sizeOf(const Term& term, const Labels& labels) {
    std::int64_t size = 1;
    for (int label : labels) size *= term.size(label);
    return size;
  }

  /// Axes of size 1 repeated where the equation has more elements.
  Term broadcastTo(const Term& term, const std::set<int>& labels) {
    Shape shape = term.value->type().shape;
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      if (labels.contains(term.labels[axis])) shape[axis] = sizes_.at(term.labels[axis]);
    if (shape == term.value->type().shape) return term;
    return {n.value("broadcast", {term.value}, {{"shape", shape}}), term.labels};
  }

  Term product(Term a, Term b, const std::set<int>& later) {
    std::set<int> both, forA = later, forB = later;
    for (int label : a.labels)
      if (b.has(label)) both.insert(label);
    forA.insert(both.begin(), both.end());
    forB.insert(both.begin(), both.end());
    a = summed(a, forA);
    b = summed(b, forB);
    if (!a.value || !b.value) return {};
    a = broadcastTo(a, both);
    b = broadcastTo(b, both);
    if (!a.value || !b.value) return {};
    Labels batch, inner, rows, columns;
    for (int label : a.labels) (!both.contains(label) ? rows : later.contains(label) ? batch : inner).push_back(label);
    for (int label : b.labels)
      if (!both.contains(label)) columns.push_back(label);
    const auto order = [](Labels x, const Labels& y, const Labels& z) {
      x.insert(x.end(), y.begin(), y.end());
      x.insert(x.end(), z.begin(), z.end());
      return x;
    };
    const std::int64_t batches = sizeOf(a, batch), count = sizeOf(a, inner);
    const std::int64_t height = sizeOf(a, rows), width = sizeOf(b, columns);
    const Labels result = order(batch, rows, columns);
    Shape shape;
    for (int label : result) shape.push_back(a.has(label) ? a.size(label) : b.size(label));
    Value* left = n.reshape(arranged(a, order(batch, rows, inner)), {batches, height, count});
    Value* right = n.reshape(arranged(b, order(batch, inner, columns)), {batches, count, width});
    if (!left || !right) return {};
    return {n.reshape(n.value("matmul", {left, right}), shape), result};
  }

  OnnxReader& n;
  std::string equation_;
  std::vector<Term> terms_;
  Labels output_;
  std::map<int, std::int64_t> sizes_; ///< of labels
  int widest_ = 0;                    ///< axes of the widest ellipsis
};

} // namespace

std::vector<OpDef> define() {
  return {composed("einsum", "Sums of products by Einstein's convention: transpose, matmul, reduce_sum",
                   {onnx(
                       "Einsum", 1, [](OnnxReader& n) { return Einsum(n).convert(); }, 12)})};
}

} // namespace pdc::ops::Einsum
