// What the members of a team do together: they bring a value from one form into another (IR/Loops.h).
//
// What each sends and receives, as MPI and NCCL define it: an all-reduce adds everyone's terms, an all-gather joins the
// parts, a reduce-scatter adds the terms and leaves everyone a part of the sum, an all-to-all splits along another
// axis.
#include "Shared/Define.h"

using namespace pdc;
using namespace pdc::ops;

namespace {

AttributeDef members() {
  return integer("members", std::nullopt, "of the team, at least 2");
}
/// Where `prefix` is "from_", of the operand; else of the result.
std::vector<AttributeDef> place(const std::string& prefix, const char* what) {
  return {integer(prefix + "axis", std::nullopt, std::string("the axis along which ") + what + " is split"),
          integer(prefix + "blocks", 1,
                  "how many blocks of that axis are split, each in as many parts as there are members"),
          integer(prefix + "padded", 0, "of an axis without equal parts: its size; 0: the parts are equal")};
}

std::vector<AttributeDef> with(std::vector<AttributeDef> defs, const std::vector<AttributeDef>& more) {
  defs.insert(defs.end(), more.begin(), more.end());
  return defs;
}

Form formAt(const Attributes& attributes, const std::string& prefix) {
  return Form::split(static_cast<int>(attributes.getInt(prefix + "axis")), attributes.getInt(prefix + "blocks"),
                     attributes.getInt(prefix + "padded"));
}

/// Reports unless a team can have members `members`, and split `type` so.
Status requireSplit(const InferContext& c, const char* op, const Type& type, const Form& form, std::int64_t parts,
                    const char* what) {
  if (!form.isSplit()) return success;
  if (form.axis < 0 || form.axis >= type.rank())
    return c.error() << "'" << op << "' op names axis " << form.axis << " of " << toString(type);
  const std::int64_t size = type.shape[static_cast<std::size_t>(form.axis)];
  if (form.blocks < 1 || form.blocks > size || !canSplit(type, form, parts))
    return c.error() << "'" << op << "' op splits " << what << ", " << toString(type) << ", along axis " << form.axis
                     << " in " << form.blocks << " blocks of " << parts << " parts";
  return success;
}

/// Reports unless operand 1 can be added to a value of type `whole`.
Status requireAdded(const InferContext& c, const char* op, const Type& whole, const Reformed& reformed) {
  const Type& added = c.operand(1);
  const std::optional<int> axis = reformed.addedAlong;
  if (axis && (*axis < 0 || *axis >= whole.rank()))
    return c.error() << "'" << op << "' op adds along axis " << *axis << " of " << toString(whole);
  const Shape shape = axis ? Shape{whole.shape[static_cast<std::size_t>(*axis)]} : whole.shape;
  if (added.element != whole.element || added.shape != shape)
    return c.error() << "'" << op << "' op adds " << toString(added) << " to " << toString(whole);
  return success;
}

using FormsOf = std::function<Reformed(const Attributes&)>;

InferFn inferFrom(const char* op, FormsOf forms) {
  return [op, forms](const InferContext& c) -> Types {
    const std::int64_t members = integerOf(c, "members");
    if (members < 2 || members > mostMembers)
      return c.error() << "'" << op << "' op has a team of " << members << " members, and not of 2 to " << mostMembers;
    const Reformed reformed = forms(c.attributes);
    const Type& operand = c.operand(0);
    if (reformed.from.isSplit() && (reformed.from.axis < 0 || reformed.from.axis >= operand.rank()))
      return c.error() << "'" << op << "' op names axis " << reformed.from.axis << " of " << toString(operand);
    const Type whole = wholeOf(operand, reformed.from, members);
    if (whole.elements() < 0)
      return c.error() << "'" << op << "' op makes a tensor whose size does not fit into 63 bits";
    if (!requireSplit(c, op, whole, reformed.from, members, "its operand") ||
        !requireSplit(c, op, whole, reformed.to, members, "its result"))
      return failure;
    if (has(c, 1) && !requireAdded(c, op, whole, reformed)) return failure;
    return std::vector<Type>{partOf(whole, reformed.to, members)};
  };
}

OpDef define(const char* name, const char* summary, std::vector<OperandDef> operands,
             std::vector<AttributeDef> attributes, FormsOf forms, std::vector<std::string> examples) {
  OpDef def{.name = name,
            .summary = summary,
            .kind = OpKind::collective,
            .operands = std::move(operands),
            .results = {{"y"}},
            .attributes = std::move(attributes),
            .infer = inferFrom(name, forms),
            .examples = std::move(examples)};
  def.split.forms = [forms](const Operation& op) { return forms(op.attributes); };
  def.kernel.channelBlocks = everyPlane;
  def.kernel.filterBlocks = [](const Operation& op) -> std::vector<const Value*> {
    return {op.operand(0), op.result()};
  };
  return def;
}

} // namespace

PDC_OPS(Collectives) {
  const std::vector<OperandDef> terms = {{"x"}, {"added", true}}, one = {{"x"}};
  auto of = [](const Attributes& a, Form from, Form to) { return Reformed{a.getInt("members"), from, to}; };
  const auto from = place("from_", "the operand"), to = place("", "the result");
  return {
      define("all_reduce", "The sum of the members' terms, for all of them", terms,
             {members(), integer("added_axis", -1, "the axis along which `added` is added; -1: it has the shape of x")},
             [](const Attributes& a) {
               Reformed reformed{a.getInt("members"), Form::partial(Combine::sum), {}};
               if (const std::int64_t axis = a.getInt("added_axis"); axis != -1)
                 reformed.addedAlong = static_cast<int>(axis);
               return reformed;
             },
             {example("%x: f32[2, 3], %b: f32[3]", "%y = all_reduce %x, %b {added_axis = 1, members = 2} : f32[2, 3]"),
              example("%x: f32[4]", "%y = all_reduce %x {members = 3} : f32[4]")}),
      define("all_reduce_max", "The largest of the members' numbers, for all of them", one, {members()},
             [of](const Attributes& a) { return of(a, Form::partial(Combine::max), {}); },
             {example("%x: f32[2, 3]", "%y = all_reduce_max %x {members = 2} : f32[2, 3]")}),
      define("all_reduce_min", "The smallest of the members' numbers, for all of them", one, {members()},
             [of](const Attributes& a) { return of(a, Form::partial(Combine::min), {}); },
             {example("%x: f32[2, 3]", "%y = all_reduce_min %x {members = 2} : f32[2, 3]")}),
      define("all_reduce_mean", "The mean of the members' numbers, for all of them", one, {members()},
             [of](const Attributes& a) { return of(a, Form::partial(Combine::mean), {}); },
             {example("%x: f32[2, 3]", "%y = all_reduce_mean %x {members = 2} : f32[2, 3]")}),
      define("reduce_scatter", "A part of the sum of the members' terms, for each of them", one, with({members()}, to),
             [of](const Attributes& a) { return of(a, Form::partial(Combine::sum), formAt(a, "")); },
             {example("%x: f32[2, 6]", "%y = reduce_scatter %x {axis = 1, members = 3} : f32[2, 2]")}),
      define(
          "all_gather", "The members' parts together, for all of them", one, with({members()}, from),
          [of](const Attributes& a) { return of(a, formAt(a, "from_"), {}); },
          {example("%x: f32[2, 6]", "%y = all_gather %x {from_axis = 1, from_blocks = 3, members = 2} : f32[2, 12]")}),
      define("own_part", "A member's part of what all members have", one, with({members()}, to),
             [of](const Attributes& a) { return of(a, {}, formAt(a, "")); },
             {example("%x: f32[2, 12]", "%y = own_part %x {axis = 1, blocks = 3, members = 2} : f32[2, 6]")}),
      define("all_to_all", "Parts along another axis", one, with(with({members()}, from), to),
             [of](const Attributes& a) { return of(a, formAt(a, "from_"), formAt(a, "")); },
             {example("%x: f32[2, 12]", "%y = all_to_all %x {axis = 0, from_axis = 1, members = 2} : f32[1, 24]")})};
}
