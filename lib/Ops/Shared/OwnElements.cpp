#include "Shared/OwnElements.h"

namespace pdc::ops {

std::vector<AttributeDef> ownElementsAttributes() {
  return {integer("run", 0,
                  "neighbours in the whole that are one member's, where it has a part of the elements, so that they "
                  "draw as in the whole; 0: they are all"),
          integer("members", 1, "of the team that divides the elements")};
}

Status requireOwnElements(const InferContext& c, const char* op, const Type& part) {
  const std::int64_t run = integerOf(c, "run"), members = integerOf(c, "members");
  if (members < 1 || members > mostMembers)
    return c.error() << "'" << op << "' op has " << members << " members, they must be 1 to " << mostMembers;
  if (run == 0 || (run > 0 && part.elements() % run == 0)) return success;
  return c.error() << "'" << op << "' op has run " << run << ", which does not divide the elements of "
                   << toString(part);
}

pdcrt::OwnElements ownElementsOf(const Attributes& attributes, std::int64_t member) {
  return {.run = attributes.getInt("run"), .members = attributes.getInt("members"), .member = member};
}

Loops loopsOfWhole(const Operation& op, Loops loops) {
  return op.attributes.getInt("run") > 0 ? Loops(op) : std::move(loops);
}

std::vector<Value*> divideDrawn(const Operation& op, std::size_t drawn, const Loops& loops, const Division& division,
                                const std::vector<Value*>& operands, Builder& b) {
  const Form form = formOfResult(loops, drawn, division);
  const Shape part = partOf(op.result(drawn)->type(), form, division.parts).shape;
  const std::int64_t run = product(part, static_cast<std::size_t>(form.axis), part.size()) / form.blocks;
  return sameWith(op, loops, division, operands, {{"run", run}, {"members", division.parts}}, b);
}

} // namespace pdc::ops
