// What the members of a team do together: they bring a value from one form into another (IR/Loops.h).
//
// What each sends and receives, as MPI and NCCL define it: an all-reduce adds everyone's terms, an all-gather joins the
// parts, a reduce-scatter adds the terms and leaves everyone a part of the sum, an all-to-all splits along another
// axis.
//
// Each that communicates is also there as a pair: X_start sends, X_finish waits for what arrives. What a member
// computes between the two hides the communication (`hide-collectives`).
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"

namespace pdc::ops::Collectives {

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
Status requireSplit(const InferContext& c, const std::string& op, const Type& type, const Form& form,
                    std::int64_t parts, const char* what) {
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
Status requireAdded(const InferContext& c, const std::string& op, const Type& whole, const Reformed& reformed) {
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

InferFn inferFrom(std::string op, FormsOf forms) {
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

OpDef define(const std::string& name, const std::string& summary, std::vector<OperandDef> operands,
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

// Kernels know memory, not layouts: a value [N, C, H, W] with channels in blocks is [N, C / 16, H, W, 16] to them, one
// whose channels lie last [N, 1, H, W, C], a filter in blocks [O / 16, I / 16, H, W, 16, 16]. Parts have whole blocks.

pdcrt::TeamDivision divisionOf(const Type& type, const Form& form) {
  return {.axis = type.layout == channelsLast && form.axis == 1 ? 4 : form.axis,
          .blocks = form.blocks,
          .padded = form.padded};
}
pdcrt::Shape inMemory(const Type& type) {
  return toRuntime(memoryShape(type));
}

pdcrt::TeamReduce::Options reduceOptions(const Type& x, const Reformed& r) {
  using Combine = pdcrt::TeamReduce::Combine;
  static constexpr Combine combines[] = {Combine::sum, Combine::mean, Combine::max, Combine::min};
  // What is added along channels has as many elements as there are channels, not blocks of them.
  return {.operand = toRuntime(x.layout == filterInBlocks ? Shape{x.elements()} : x.shape),
          .members = static_cast<int>(r.members),
          .combine = combines[static_cast<int>(r.from.combine)],
          .addedAxis = r.addedAlong.value_or(-1),
          .lanes = r.addedAlong == 1 ? pdc::lanesOf(x) : 1,
          .element = x.element};
}
pdcrt::TeamScatter::Options scatterOptions(const Type& x, const Reformed& r) {
  return {
      .operand = inMemory(x), .members = static_cast<int>(r.members), .to = divisionOf(x, r.to), .element = x.element};
}
pdcrt::TeamGather::Options gatherOptions(const Type& x, const Reformed& r) {
  return {.operand = inMemory(x),
          .members = static_cast<int>(r.members),
          .from = divisionOf(x, r.from),
          .element = x.element};
}
pdcrt::TeamExchange::Options exchangeOptions(const Type& x, const Reformed& r) {
  return {.operand = inMemory(x),
          .members = static_cast<int>(r.members),
          .from = divisionOf(x, r.from),
          .to = divisionOf(x, r.to),
          .element = x.element};
}

/// Calls visit(className, kernel options) for the kernel that brings `x` from one form into another.
template <class Visit>
auto visitKernel(const Type& x, const Reformed& r, Visit visit) {
  if (r.from.isPartial() && !r.to.isSplit())
    return visit.template operator()<pdcrt::TeamReduce>("TeamReduce", reduceOptions(x, r));
  if (r.from.isPartial()) return visit.template operator()<pdcrt::TeamScatter>("TeamScatter", scatterOptions(x, r));
  if (r.to.isSplit()) return visit.template operator()<pdcrt::TeamExchange>("TeamExchange", exchangeOptions(x, r));
  return visit.template operator()<pdcrt::TeamGather>("TeamGather", gatherOptions(x, r));
}

/// The call of one half. Both halves share the kernel of the finish.
KernelUse halfUse(const Operation& op, const char* method) {
  KernelUse use = visitKernel(operandType(op, 0), op.def().split.forms(op),
                              [&]<class Kernel>(const char* name, const typename Kernel::Options& options) {
                                return kernelUse<Kernel>(name, method, options);
                              });
  use.owner = op.def().split.half == CollectiveHalf::start ? op.result()->users().front() : &op;
  return use;
}

/// Elements of the memory that a pair has from start to finish: what arrives from other members, and what was packed
/// for them.
std::int64_t arrivingElements(const Type& operand, const Reformed& reformed) {
  return visitKernel(operand, reformed, []<class Kernel>(const char*, const typename Kernel::Options& options) {
    return Kernel::arriving(options);
  });
}

/// Of what lies between the halves. An error where no kernel divides the value so, which has blocks of channels in more
/// than one part.
Types arrivingType(const InferContext& c, const Reformed& reformed) {
  try {
    return std::vector<Type>{{c.operand(0).element, {arrivingElements(c.operand(0), reformed)}}};
  } catch (const std::runtime_error& e) {
    return c.error() << "no kernel brings parts of a team together here: " << e.what();
  }
}

InferFn inferStart(InferFn whole, FormsOf forms) {
  return [whole, forms](const InferContext& c) -> Types {
    if (!whole(c)) return failure;
    return arrivingType(c, forms(c.attributes));
  };
}

/// The type of what `y` was before it was a pair, of operands without `arrived`, which is seen to be right.
InferFn inferFinish(const std::string& name, FormsOf forms) {
  return [name, forms](const InferContext& c) -> Types {
    InferContext together = c;
    together.operands.erase(together.operands.begin() + 1);
    Types types = inferFrom(name, forms)(together);
    if (!types) return failure;
    const Types arriving = arrivingType(c, forms(c.attributes));
    if (!arriving || !requireType(c, name.c_str(), 1, arriving->front(), "what was started")) return failure;
    return types;
  };
}

/// What a member has before and after; `attributes` are those of all halves.
struct Case {
  std::string inputs, added, attributes, staged, result;
};

/// A collective, and its two halves.
std::vector<OpDef> inHalves(const std::string& name, const std::string& summary, std::vector<OperandDef> operands,
                            const std::vector<AttributeDef>& attributes, const FormsOf& forms, const Case& c) {
  const std::string with = " {" + c.attributes + "} : ", y = c.added + with + c.result;
  const std::string starts = "%a = " + name + "_start %x" + with + c.staged;
  OpDef whole = define(name, summary, operands, attributes, forms, {example(c.inputs, "%y = " + name + " %x" + y)});

  whole.split.start = name + "_start";
  whole.split.finish = name + "_finish";

  OpDef start = define(whole.split.start, "Sends what " + name + " sends", {{"x"}}, attributes, forms,
                       {example(c.inputs, starts)});
  start.results = {{"arriving"}};
  start.infer = inferStart(whole.infer, forms);
  start.split.half = CollectiveHalf::start;
  start.cost = moveCost;
  start.kernel.use = [](const Operation& op) { return halfUse(op, "start"); };

  operands.insert(operands.begin() + 1, {"arriving"});
  OpDef finish = define(whole.split.finish, summary + ", which a start has sent", operands, attributes, forms,
                        {example(c.inputs, starts + "\n%y = " + name + "_finish %x, %a" + y)});
  finish.infer = inferFinish(finish.name, forms);
  finish.split.half = CollectiveHalf::finish;
  finish.cost = perElement(1);
  finish.kernel.use = [](const Operation& op) { return halfUse(op, "finish"); };
  if (operands.size() > 2) finish.kernel.replaceable = {{.operand = 0}, {.operand = 2}};
  return {std::move(whole), std::move(start), std::move(finish)};
}

} // namespace

std::vector<OpDef> define() {
  const std::vector<OperandDef> terms = {{"x"}, {"added", true}}, one = {{"x"}};
  const auto from = place("from_", "the operand"), to = place("", "the result");
  auto of = [](const Attributes& a, Form before, Form after) { return Reformed{a.getInt("members"), before, after}; };
  const FormsOf reduce = [](const Attributes& a) {
    Reformed reformed{a.getInt("members"), Form::partial(Combine::sum), {}};
    if (const std::int64_t axis = a.getInt("added_axis"); axis != -1) reformed.addedAlong = static_cast<int>(axis);
    return reformed;
  };
  std::vector<OpDef> defs;
  auto add = [&](std::vector<OpDef> more) {
    defs.insert(defs.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  add(inHalves(
      "all_reduce", "The sum of the members' terms, for all of them", terms,
      {members(), integer("added_axis", -1, "the axis along which `added` is added; -1: it has the shape of x")},
      reduce, {"%x: f32[2, 3], %b: f32[3]", ", %b", "added_axis = 1, members = 2", "f32[6]", "f32[2, 3]"}));
  add(inHalves("all_reduce_max", "The largest of the members' numbers, for all of them", one, {members()},
               [of](const Attributes& a) { return of(a, Form::partial(Combine::max), {}); },
               {"%x: f32[2, 3]", "", "members = 2", "f32[6]", "f32[2, 3]"}));
  add(inHalves("all_reduce_min", "The smallest of the members' numbers, for all of them", one, {members()},
               [of](const Attributes& a) { return of(a, Form::partial(Combine::min), {}); },
               {"%x: f32[2, 3]", "", "members = 4", "f32[8]", "f32[2, 3]"}));
  add(inHalves("all_reduce_mean", "The mean of the members' numbers, for all of them", one, {members()},
               [of](const Attributes& a) { return of(a, Form::partial(Combine::mean), {}); },
               {"%x: f32[2, 3]", "", "members = 2", "f32[6]", "f32[2, 3]"}));
  add(inHalves("reduce_scatter", "A part of the sum of the members' terms, for each of them", one,
               with({members()}, to),
               [of](const Attributes& a) { return of(a, Form::partial(Combine::sum), formAt(a, "")); },
               {"%x: f32[2, 6]", "", "axis = 1, members = 3", "f32[24]", "f32[2, 2]"}));
  add(inHalves("all_gather", "The members' parts together, for all of them", one, with({members()}, from),
               [of](const Attributes& a) { return of(a, formAt(a, "from_"), {}); },
               {"%x: f32[2, 6]", "", "from_axis = 1, from_blocks = 3, members = 2", "f32[24]", "f32[2, 12]"}));
  add(inHalves("all_to_all", "Parts along another axis", one, with(with({members()}, from), to),
               [of](const Attributes& a) { return of(a, formAt(a, "from_"), formAt(a, "")); },
               {"%x: f32[2, 12]", "", "axis = 0, from_axis = 1, members = 2", "f32[48]", "f32[1, 24]"}));
  OpDef ownPart =
      define("own_part", "A member's part of what all members have", one, with({members()}, to),
             [of](const Attributes& a) { return of(a, {}, formAt(a, "")); },
             {example("%x: f32[2, 12]", "%y = own_part %x {axis = 1, blocks = 3, members = 2} : f32[2, 6]")});
  ownPart.kernel.use = [](const Operation& op) {
    const Type& x = operandType(op, 0);
    const Reformed r = op.def().split.forms(op);
    return kernelUse<pdcrt::OwnPart>(
        "OwnPart", "forward",
        {.operand = inMemory(x), .members = static_cast<int>(r.members), .to = divisionOf(x, r.to)});
  };
  defs.push_back(std::move(ownPart));
  return defs;
}

} // namespace pdc::ops::Collectives
