#include "Split/Sums.h"
#include "pdc/IR/OpDef.h"
#include "pdc/Transforms/Split.h"

using namespace pdc;

namespace {

class SplitVerifier {
public:
  SplitVerifier(const Graph& whole, const Graph& member, Diagnostics& diags)
      : whole_(whole), member_(member), diags_(diags) {}

  Status run() {
    if (!operations() || !inputs() || !outputs()) return failure;
    return collectives();
  }

private:
  Diagnostics::Builder wrong() { return diags_.error({.node = "@" + member_.name()}).exit(ExitCode::internal); }

  /// The member's value for one of the whole graph: it, or its part.
  const Value* here(const Value& value) const {
    const Value* same = member_.find(value.name());
    return same ? same : member_.find(value.name() + std::string(partSuffix));
  }

  Status operations();
  Status operation(const Value& value, const Value& own);
  Status inputs();
  Status outputs();
  Status collectives();

  const Graph& whole_;
  const Graph& member_;
  Diagnostics& diags_;
};

Status SplitVerifier::operations() {
  for (const auto& operation : whole_.operations())
    for (const Value* result : operation->results()) {
      if (!result) continue;
      const Value* own = here(*result);
      if (!own && addsOperands(*operation)) continue; // a sum of one term, so far, is that term
      if (!own || !own->definer()) return wrong() << "the division has lost '%" << result->name() << "'";
      if (!this->operation(*result, *own)) return failure;
    }
  return success;
}

Status SplitVerifier::operation(const Value& value, const Value& own) {
  const Operation &before = *value.definer(), &after = *own.definer();
  if (after.group != before.group || after.phase != before.phase || after.again != before.again)
    return wrong() << "the division has moved '%" << value.name() << "' from group " << before.group << ", phase "
                   << nameOf(before.phase) << ", to group " << after.group << ", phase " << nameOf(after.phase);
  if ((before.origin() == nullptr) != (after.origin() == nullptr))
    return wrong() << "the division has changed the origin of '%" << value.name() << "'";
  if (own.name() == value.name() && own.type().shape != value.type().shape)
    return wrong() << "'%" << value.name() << "' is " << toString(value.type()) << ", and " << toString(own.type())
                   << " in a member";
  return success;
}

Status SplitVerifier::inputs() {
  if (member_.inputs.size() != whole_.inputs.size())
    return wrong() << "the graph has " << whole_.inputs.size() << " inputs, a member " << member_.inputs.size();
  for (std::size_t i = 0; i < whole_.inputs.size(); ++i) {
    const Value &before = *whole_.inputs[i].value, &after = *member_.inputs[i].value;
    if (after.name() != before.name() || after.type() != before.type())
      return wrong() << "input " << i << " is '%" << before.name() << "', " << toString(before.type()) << ", and '%"
                     << after.name() << "', " << toString(after.type()) << ", in a member";
  }
  return success;
}

Status SplitVerifier::outputs() {
  if (member_.outputs.size() != whole_.outputs.size())
    return wrong() << "the graph has " << whole_.outputs.size() << " outputs, a member " << member_.outputs.size();
  for (std::size_t i = 0; i < whole_.outputs.size(); ++i) {
    const GraphOutput &before = whole_.outputs[i], &after = member_.outputs[i];
    const Type expected = partOf(before.value->type(), member_.team.formOf(after), member_.team.members);
    if (after.kind != before.kind || after.parameter != before.parameter || after.value->type().shape != expected.shape)
      return wrong() << "output " << i << " is '%" << before.value->name() << "', of which a member has "
                     << toString(expected) << ", and not " << toString(after.value->type());
  }
  return success;
}

Status SplitVerifier::collectives() {
  for (const auto& operation : member_.operations()) {
    if (operation->def().kind != OpKind::collective) continue;
    const std::int64_t members = operation->def().split.forms(*operation).members;
    if (members != member_.team.members)
      return wrong() << "'" << operation->def().name << "' is of " << members << " members, the team has "
                     << member_.team.members;
    const Operation* maker = operation->operand(0)->definer();
    // What is taken of a whole value is taken where it is read.
    const bool brings = !operation->def().split.forms(*operation).from.isWhole();
    if (brings && maker && maker->phase > operation->phase)
      return wrong() << "'" << operation->def().name << "' of '%" << operation->operand(0)->name() << "' is in phase "
                     << nameOf(operation->phase) << ", before what it brings together";
  }
  return success;
}

} // namespace

Status pdc::verifySplit(const Graph& whole, const Graph& member, Diagnostics& diags) {
  return SplitVerifier(whole, member, diags).run();
}
