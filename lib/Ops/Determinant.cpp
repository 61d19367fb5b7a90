// Determinants of small matrices, expanded by Laplace's formula: exact at singular matrices too, and differentiable as
// it stands, which elimination with pivots is not.
#include "Convert/Indices.h"
#include "Shared/Define.h"

#include <bit>
#include <map>

namespace pdc::ops::Determinant {

namespace {

/// Minors double in number with each row.
constexpr std::int64_t largest = 6;

class Expansion {
public:
  Expansion(OnnxReader& reader, std::int64_t size) : n(reader), size_(size) {
    const Shape& x = n.type(0).shape;
    batch_ = {x.begin(), x.end() - 2};
    flat_ = n.reshape(n.input(0), {elementsOf(batch_), size * size});
  }

  Value* determinant() { return size_ == 0 ? nullptr : minor((1u << size_) - 1); }

private:
  /// Of the last rows and the columns whose bits `columns` has, as many.
  Value* minor(unsigned columns) {
    if (const auto known = minors_.find(columns); known != minors_.end()) return known->second;
    const auto row = size_ - std::popcount(columns);
    std::vector<Value*> factors;
    std::string sum;
    for (std::int64_t column = 0; column < size_; ++column) {
      const unsigned bit = 1u << column;
      if (!(columns & bit)) continue;
      const std::string a = "a" + std::to_string(factors.size()), b = "a" + std::to_string(factors.size() + 1);
      const bool negative = factors.size() % 4 == 2;
      factors.push_back(element(row, column));
      if (columns == bit) return minors_[columns] = factors[0];
      factors.push_back(minor(columns & ~bit));
      sum += sum.empty() ? a + " * " + b : (negative ? " - " : " + ") + a + " * " + b;
    }
    return minors_[columns] = compute(n, factors, sum);
  }

  /// One element of every matrix.
  Value* element(std::int64_t row, std::int64_t column) {
    if (!flat_) return nullptr;
    const Shape all = flat_->type().shape;
    Value* one =
        n.value("slice", {flat_},
                {{"starts", Shape{0, row * size_ + column}}, {"sizes", Shape{all[0], 1}}, {"steps", Shape{1, 1}}});
    return n.reshape(one, batch_);
  }

  OnnxReader& n;
  const std::int64_t size_;
  Shape batch_;
  Value* flat_ = nullptr;
  std::map<unsigned, Value*> minors_;
};

Value* convert(OnnxReader& n) {
  const Type& x = n.type(0);
  const int rank = x.rank();
  if (rank < 2 || x.shape.back() != x.shape[static_cast<std::size_t>(rank) - 2] || !isFloat(x.element)) {
    static_cast<void>(n.error() << "needs square matrices of floats, its input is " << toString(x));
    return nullptr;
  }
  if (x.shape.back() < 1 || x.shape.back() > largest) {
    static_cast<void>(n.unsupported() << "has matrices of " << x.shape.back() << " rows, pdc takes 1 to " << largest);
    return nullptr;
  }
  return Expansion(n, x.shape.back()).determinant();
}

} // namespace

std::vector<OpDef> define() {
  return {composed("det", "Determinants of matrices of up to 6 rows: sums of products of elements",
                   {onnx("Det", 1, convert, 11)})};
}

} // namespace pdc::ops::Determinant
