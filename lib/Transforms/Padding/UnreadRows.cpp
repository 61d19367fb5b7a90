#include "Padding/UnreadRows.h"

#include "pdc/IR/Elementwise.h"
#include "pdc/IR/Loops.h"
#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>

using namespace pdc;

/// Added to a score of f32, it makes its weight 0, whatever the score, if another key has no less than `seen`.
static constexpr double hidden = -1e30, seen = -1e29;

bool UnreadRows::of(const Value& value, Axes axes) {
  const auto [known, isNew] = known_.try_emplace({&value, axes}, false);
  if (!isNew) return known->second;
  if (graph_.isOutput(&value)) return false;
  for (const Operation* user : value.users()) {
    if (!isForward(*user)) continue; // it multiplies the row by a gradient, which is 0
    for (std::size_t i = 0; i < user->operands().size(); ++i)
      if (user->operand(i) == &value && !isUnreadBy(*user, i, axes)) return false;
  }
  return known_[{&value, axes}] = true;
}

/// The axis of a result along which an index of a loop runs in one block; -1: there is none.
static int axisOf(const std::vector<LoopRun>& runs, int index) {
  for (const LoopRun& run : runs)
    if (run.index == index && run.blocks == 1) return run.axis;
  return -1;
}

static int indexOf(const std::vector<LoopRun>& runs, int axis) {
  for (const LoopRun& run : runs)
    if (run.axis == axis && run.blocks == 1) return run.index;
  return -1;
}

/// Whether no finite numbers make another one, but by overflow.
static bool staysFinite(const Expression& e) {
  static const std::set<std::string> others = {"log", "log1p", "sqrt", "rsqrt", "reciprocal", "pow", "exp", "expm1"};
  if (others.contains(e.symbol)) return false;
  if (e.kind == Expression::Kind::binary && e.symbol == "/") {
    const Expression& by = *e.arguments[1];
    if (by.kind != Expression::Kind::number || by.number == 0) return false;
  }
  return std::ranges::all_of(e.arguments, [](const ExpressionPtr& argument) { return staysFinite(*argument); });
}

static bool staysFinite(const Operation& operation, std::size_t result) {
  const OpDef& def = operation.def();
  if (def.kind == OpKind::elementwise) return staysFinite(*expressionsOf(operation)[result]);
  if (def.kind == OpKind::view || def.facts.moves) return true;
  return def.usage.staysFinite && def.usage.staysFinite(operation);
}

bool UnreadRows::isUnreadBy(const Operation& user, std::size_t operand, Axes axes) {
  if (hidesKeys(user, operand, axes)) return true;
  const Loops loops = loopsOf(user);
  const int position = operand < loops.operands.size() ? indexOf(loops.operands[operand], axes.position) : -1;
  const int sample = operand < loops.operands.size() ? indexOf(loops.operands[operand], axes.sample) : -1;
  for (std::size_t r = 0; r < user.results().size(); ++r) {
    const Value* result = user.result(r);
    if (!result || isZeroed(user, operand, r, axes)) continue;
    if (!staysFinite(user, r)) return false;
    const int to = position < 0 ? -1 : axisOf(loops.results[r], position);
    // An axis of one sample is no loop; it stays in front.
    const int samples = samples_ == 1 ? 0 : sample < 0 ? -1 : axisOf(loops.results[r], sample);
    if (to >= 0 && samples >= 0 && of(*result, {samples, to})) continue;
    if (!takesFew(user, operand, axes)) return false;
  }
  return true;
}

/// Attention adds to the scores of the key of each row what makes its weight 0 where the mask is.
bool UnreadRows::hidesKeys(const Operation& user, std::size_t operand, Axes axes) {
  const auto& hook = user.def().usage.addedScores;
  const std::optional<AddedScores> added = hook ? hook(user) : std::nullopt;
  if (!added || std::ranges::find(added->keys, operand) == added->keys.end()) return false;
  const Shape& keys = user.operand(operand)->type().shape;
  const auto rank = static_cast<int>(keys.size());
  if (axes.sample != 0 || axes.position != rank + added->axis) return false;
  const Value* scores = user.operand(added->scores);
  const MaskValues::Known* known = values_.of(scores);
  if (!known) return false;
  const Shape& shape = scores->type().shape;
  if (shape.empty() || shape.back() != positions_) return false;
  if (shape[0] != samples_) return false;
  const std::int64_t ofSample = scores->type().elements() / samples_;
  for (std::int64_t i = 0; i < scores->type().elements(); ++i) {
    const std::int64_t row = i / ofSample * positions_ + i % positions_;
    const std::int32_t at = known->of[static_cast<std::size_t>(i)];
    // Every query sees each key that counts: of hidden keys alone the weights would be equal.
    if (at != row || !(known->atZero.asDouble(i) <= hidden) || !(known->atOne.asDouble(i) >= seen)) return false;
  }
  return true;
}

/// Another operand is 0 in each row where the mask is, and makes the result 0.
bool UnreadRows::isZeroed(const Operation& user, std::size_t operand, std::size_t result, Axes axes) {
  if (user.def().kind != OpKind::elementwise) return false;
  const std::size_t rank = user.result(result)->type().shape.size();
  const std::size_t own = user.operand(operand)->type().shape.size();
  for (std::size_t i = 0; i < user.operands().size(); ++i) {
    const Value* other = user.operand(i);
    if (!other || i == operand || other->type().shape.size() > rank) continue;
    const MaskValues::Known* known = values_.of(other);
    if (!known) continue;
    // Its elements by row; axes count from the end.
    const Shape& shape = other->type().shape;
    const auto axisHere = [&](int axis) {
      return static_cast<std::int64_t>(shape.size()) - static_cast<std::int64_t>(own) + axis;
    };
    const std::int64_t sample = axisHere(axes.sample), position = axisHere(axes.position);
    if (position < 0 || shape[static_cast<std::size_t>(position)] != positions_) continue;
    if (samples_ > 1 && (sample < 0 || shape[static_cast<std::size_t>(sample)] != samples_)) continue;
    const auto strideOf = [&](std::int64_t axis) {
      std::int64_t stride = 1;
      for (auto j = static_cast<std::size_t>(axis) + 1; j < shape.size(); ++j) stride *= shape[j];
      return stride;
    };
    bool isZero = true;
    for (std::int64_t e = 0; isZero && e < other->type().elements(); ++e) {
      const std::int64_t b = samples_ > 1 ? e / strideOf(sample) % samples_ : 0;
      const std::int64_t row = b * positions_ + e / strideOf(position) % positions_;
      const std::int32_t at = known->of[static_cast<std::size_t>(e)];
      isZero = (at < 0 || at == row) && known->atZero.asDouble(e) == 0;
    }
    if (!isZero) continue;
    const std::string name = operandNameInExpressions(user.def(), i);
    const ExpressionPtr rest = simplify(substitute(expressionsOf(user)[result], [&](const std::string& symbol) {
      return symbol == name ? numberExpression(0) : ExpressionPtr();
    }));
    if (rest->kind == Expression::Kind::number && rest->number == 0) return true;
  }
  return false;
}

/// Moves rows of some positions alone, which are then read.
bool UnreadRows::takesFew(const Operation& user, std::size_t operand, Axes axes) {
  const Value& value = *user.operand(operand);
  if (operand != 0 || value.type().elements() > (std::int64_t{1} << 24)) return false;
  // Others are not followed element by element: that takes long.
  if (!user.def().facts.moves && !user.def().facts.picks) return false;
  for (std::size_t r = 0; r < user.results().size(); ++r)
    if (user.result(r) && user.result(r)->type().elements() > value.type().elements() / 4) return false;
  std::int64_t inner = 1;
  for (auto i = static_cast<std::size_t>(axes.position) + 1; i < value.type().shape.size(); ++i)
    inner *= value.type().shape[i];
  std::vector<std::int64_t> positions(static_cast<std::size_t>(value.type().elements()));
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int64_t>(i) / inner % positions_;
  const std::optional<std::vector<std::int64_t>> taken = values_.moved(user, positions);
  if (!taken) return false;
  const std::set<std::int64_t> few(taken->begin(), taken->end());
  if (static_cast<std::int64_t>(few.size()) > positions_ / 4) return false;
  read_.insert(few.begin(), few.end());
  return true;
}
