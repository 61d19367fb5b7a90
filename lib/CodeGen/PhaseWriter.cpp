// One call per operation. Views and constants need none.
#include "PhaseWriter.h"

#include "pdc/CodeGen/FusedKernel.h"
#include "pdc/IR/Elementwise.h"
#include "pdc/IR/Layouts.h"

#include <algorithm>
#include <cctype>
#include <set>

using namespace pdc;

std::string pdc::wrapped(const std::string& text, std::size_t column, std::size_t indent) {
  constexpr std::size_t limit = 118;
  std::string result;
  std::size_t begin = 0;
  while (column + text.size() - begin > limit) {
    std::size_t comma = text.rfind(", ", begin + limit - column);
    if (comma == std::string::npos || comma <= begin) break;
    result += text.substr(begin, comma + 1 - begin) + "\n" + std::string(indent, ' ');
    begin = comma + 2;
    column = indent;
  }
  return result + text.substr(begin);
}

std::string pdc::filled(const std::string& text, std::size_t column, const std::string& prefix) {
  std::string result;
  std::size_t begin = 0;
  while (column + text.size() - begin > 120) {
    const std::size_t space = text.rfind(' ', begin + 120 - column);
    if (space == std::string::npos || space <= begin) break;
    result += text.substr(begin, space - begin) + "\n" + prefix;
    begin = space + 1;
    column = prefix.size();
  }
  return result + text.substr(begin);
}

PhaseWriter::PhaseWriter(const StageProgram& program, const StageNames& names, Diagnostics& diags)
    : program_(program), names_(names), diags_(diags), finals_(finalBuckets(program)) {
  std::set<int> groups;
  for (const auto& operation : program.training->operations())
    if (operation->group >= 0) groups.insert(operation->group);
  groups_.assign(groups.begin(), groups.end());
}

Status PhaseWriter::run() {
  for (ProgramPhase phase :
       {ProgramPhase::forward, ProgramPhase::backwardInput, ProgramPhase::backwardWeight, ProgramPhase::evaluate})
    if (!writePhase(phase)) return failure;
  return success;
}

namespace {

/// The result of `operation` that a reader wants to know the type of.
const Value* mainResult(const Operation& operation) {
  for (const Value* result : operation.results())
    if (result) return result;
  return nullptr;
}

/// What a call is for: the node, which gradient of it, and the type of what it makes.
std::string commentOn(const Operation& operation) {
  std::string text = commentText(operation.forwardOperation().location.node);
  if (operation.again)
    text += ", again";
  else if (operation.phase != Phase::forward)
    text += operation.phase == Phase::inputGradient ? ", input gradient" : ", weight gradient";
  if (const Value* result = mainResult(operation)) text += " -> " + toString(result->type());
  return text;
}

/// How many of the first operations are conversions of parameters to the same type, in one group.
std::size_t conversions(std::span<const Operation* const> operations) {
  const Operation& first = *operations.front();
  const auto isAlike = [&](const Operation* operation) {
    if (!onlyConverts(*operation) || !operation->operand(0)->parameter() || operation->group != first.group)
      return false;
    const Type &from = operation->operand(0)->type(), &to = operation->result()->type();
    return from.element == ElementType::f32 && isLowPrecision(to.element) &&
           to.element == first.result()->type().element && memoryShape(from) == memoryShape(to);
  };
  const auto other = std::find_if_not(operations.begin(), operations.end(), isAlike);
  return std::max<std::size_t>(static_cast<std::size_t>(other - operations.begin()), 1);
}

/// Whether an identifier such as "s" or "q" occurs in `body`, followed by `next`.
bool uses(const std::string& body, const std::string& name, char next) {
  for (std::size_t at = body.find(name + next); at != std::string::npos; at = body.find(name + next, at + 1))
    if (at == 0 ||
        (!std::isalnum(static_cast<unsigned char>(body[at - 1])) && body[at - 1] != '_' && body[at - 1] != '.'))
      return true;
  return false;
}

} // namespace

Status PhaseWriter::writePhase(ProgramPhase phase) {
  const bool evaluate = phase == ProgramPhase::evaluate;
  const Graph* graph = evaluate ? program_.evaluation : program_.training;
  const GraphMemory& memory = evaluate ? program_.memory->evaluation : program_.memory->training;
  draws_ = false;
  std::string calls = copies(phase, nullptr, memory); // for parameters, see below
  std::vector<const Operation*> operations;
  if (graph)
    for (const auto& operation : graph->operations())
      if ((evaluate || program_.memory->phaseOf(*operation) == phase) && operation->def().kind != OpKind::view &&
          operation->def().kind != OpKind::constant)
        operations.push_back(operation.get());
  int group = -1;
  for (std::span<const Operation* const> rest = operations; !rest.empty();) {
    const Operation& operation = *rest.front();
    if (operation.group >= 0 && operation.group != group) {
      group = operation.group;
      calls += "\n  q.group(" + std::to_string(group) + ");\n";
    }
    const std::span<const Operation* const> together =
        rest.first(program_.target == Target::cuda ? conversions(rest) : 1);
    rest = rest.subspan(together.size());
    if (together.size() > 1) {
      calls += convertAll(together, memory);
    } else {
      calls += follower(operation, memory);
      Expected<std::string> line = call(operation, memory);
      if (!line) return failure;
      calls += "  // " + commentOn(operation) + "\n  " + wrapped(*line, 2, 6) + "\n";
      if (program_.debugNan) calls += looks(operation, memory);
    }
    for (const Operation* made : together) {
      calls += copies(phase, made, memory);
      if (!evaluate) calls += updates(*made) + finals(*made);
    }
  }

  // The signature names what the phase uses.
  auto argument = [&](const std::string& type, const char* name, bool used) {
    return type + (used ? std::string(" ") + name : "");
  };
  static const char* const phaseNames[] = {"forward", "backward_input", "backward_weight", "evaluate"};
  std::vector<std::string> arguments = {argument("const Kernels&", "k", uses(calls, "k", '.')),
                                        argument("const Weights&", "w", uses(calls, "w", '.'))};
  // A backward that computes the forward again may need what only the forward needs otherwise.
  const bool recomputes = phase == ProgramPhase::backwardInput && (draws_ || uses(calls, "r", '.'));
  if (phase == ProgramPhase::forward || evaluate || recomputes)
    arguments.push_back(argument("const State&", "r", uses(calls, "r", '.')));
  arguments.push_back(argument("const Slot&", "s", uses(calls, "s", '.')));
  if (phase == ProgramPhase::backwardInput || phase == ProgramPhase::backwardWeight) {
    arguments.push_back(argument("const Handover&", "h", uses(calls, "h", '.')));
    arguments.push_back(argument("const Gradients&", "g", uses(calls, "g", '.')));
  }
  arguments.push_back(argument("const Scratch&", "t", uses(calls, "t", '.')));
  if (phase == ProgramPhase::forward || recomputes) arguments.push_back(argument("pdcrt::Draw", "draw", draws_));
  arguments.push_back(argument("pdcrt::Stream&", "q", !calls.empty()));
  std::string head = std::string("void ") + phaseNames[static_cast<int>(phase)] + "(";
  const std::size_t column = head.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) head += (i ? ", " : "") + arguments[i];
  if (!calls.empty() && calls[0] == '\n') calls.erase(0, 1);
  text_ += "\n" + wrapped(head + ") {", 0, column) + (calls.empty() ? "}\n" : "\n" + calls + "}\n");
  return success;
}

Expected<std::string> PhaseWriter::call(const Operation& operation, const GraphMemory& memory) {
  auto reference = [&](const Value* value) { return value ? names_.reference(memory, value) : std::string("{}"); };
  const EarlyUpdate* const taker = program_.memory->takerOfParts(operation);
  std::vector<std::string> arguments;
  std::string callee;
  if (operation.def().kind == OpKind::elementwise) {
    Expected<FusedKernel> kernel = emitFusedKernel(operation, program_.target, program_.memory->threads, diags_);
    if (!kernel) return failure;
    callee = functionName(kernel->text, kernel->hint);
    arguments.push_back("q");
  } else {
    KernelUse use = operation.def().kernel.use(operation);
    if (taker) use.method = use.partsMethod;
    const auto workspace = memory.workspaces.find(&operation);
    const Buffer* needed = workspace == memory.workspaces.end() ? nullptr : &workspace->second;
    callee = "k." + kernelMember(operation, use, needed ? needed->bytes : 0) + "." + use.method;
    arguments.push_back(needed ? streamWith(*needed) : "q");
    if (use.draws) {
      arguments.push_back("draw");
      draws_ = true;
    }
  }
  const OpDef& def = operation.def();
  const bool isKernel = static_cast<bool>(def.kernel.use);
  // A kernel's method has a parameter for every operand and result of its op: absent ones are empty views.
  const bool variadic = isKernel && !def.operands.empty() && def.operands.back().variadic;
  const std::size_t single = def.operands.size() - (variadic ? 1 : 0);
  std::size_t i = 0;
  for (; i < (isKernel ? single : operation.operands().size()); ++i)
    arguments.push_back(reference(operation.operand(i)));
  if (variadic) {
    std::string list;
    for (; i < operation.operands().size(); ++i) list += (list.empty() ? "" : ", ") + reference(operation.operand(i));
    arguments.push_back("{" + list + "}");
  }
  if (isKernel)
    for (std::size_t r = 0; r < def.results.size(); ++r) arguments.push_back(reference(operation.result(r)));
  else
    for (const Value* result : operation.results())
      if (result) arguments.push_back(reference(result));
  if (taker) arguments.push_back("q.updater(" + std::to_string(taker->parameter) + ")");
  std::string text = callee + "(";
  for (std::size_t a = 0; a < arguments.size(); ++a) text += (a ? ", " : "") + arguments[a];
  return text + ");";
}

/// Before an operation whose result is sent in parts, while others are made: who sends them.
std::string PhaseWriter::follower(const Operation& operation, const GraphMemory& memory) {
  const auto found = memory.followed.find(&operation);
  if (found == memory.followed.end()) return {};
  const Operation& sender = *found->second;
  return "  // Parts of the next result are sent while others are made\n  k." +
         kernelMember(sender, sender.def().kernel.use(sender), 0) + ".follow(q, " +
         names_.reference(memory, sender.operand(0)) + ", " + names_.reference(memory, sender.result()) + ");\n";
}

/// One call of pdcrt::convertAll for several conversions.
std::string PhaseWriter::convertAll(std::span<const Operation* const> conversions, const GraphMemory& memory) {
  const Type& type = conversions.front()->result()->type();
  convertsAll_ = true;
  std::string text = "  // " + std::to_string(conversions.size()) + " parameters -> " + nameOf(type.element) +
                     "\n  pdcrt::convertAll<" + cppTypeOf(type.element) + ">(q, {\n";
  for (const Operation* conversion : conversions)
    text += "      {" + names_.reference(memory, conversion->operand(0)) + ", " +
            names_.reference(memory, conversion->result()) + ", " +
            std::to_string(conversion->result()->type().elements()) + "},\n";
  return text + "  });\n";
}

/// The stream with the workspace of a call: "q.work(s.frame.slot + 4096, 1024)".
std::string PhaseWriter::streamWith(const Buffer& workspace) {
  const std::string block = workspace.place.block == Block::slot ? "s.frame.slot" : "t.base";
  const std::string offset = workspace.place.offset > 0 ? " + " + std::to_string(workspace.place.offset) : "";
  return "q.work(" + block + offset + ", " + std::to_string(workspace.bytes) + ")";
}

/// The object for `operation`: forward, gradients and evaluation of one operation of the model share it.
std::string PhaseWriter::kernelMember(const Operation& operation, const KernelUse& use, std::int64_t workspaceBytes) {
  const Operation& forward = use.owner ? *use.owner : operation.forwardOperation();
  const Value* result = mainResult(forward);
  const std::string key =
      use.className + "\n" + use.options + "\n" + forward.location.node + "\n" + (result ? result->name() : "");
  auto [it, isNew] = kernelNames_.try_emplace(key, kernels_.size());
  if (isNew) {
    std::string name = use.className;
    name[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(name[0])));
    kernels_.push_back({.name = name + "_" + std::to_string(kernels_.size()),
                        .className = use.className,
                        .options = use.options,
                        .node = forward.location.node,
                        .byMethod = use.workspaceByMethod && program_.target == Target::cpu});
  }
  KernelMember& member = kernels_[it->second];
  member.workspace[use.method] = workspaceBytes;
  return member.name;
}

/// The function with this text; it is defined once.
std::string PhaseWriter::functionName(const std::string& text, const std::string& hint) {
  auto [it, isNew] = functionNames_.try_emplace(text);
  if (isNew) {
    Identifiers fresh;
    it->second = fresh.unique(hint) + "_" + std::to_string(functions_.size());
    std::string definition = text;
    const std::string placeholder = "$name$";
    for (std::size_t at = definition.find(placeholder); at != std::string::npos; at = definition.find(placeholder))
      definition.replace(at, placeholder.size(), it->second);
    functions_.push_back(definition);
  }
  return it->second;
}

/// Early updates that follow `operation`.
std::string PhaseWriter::updates(const Operation& operation) const {
  const MemoryPlan& memory = *program_.memory;
  std::string text;
  for (const EarlyUpdate& update : memory.earlyUpdates)
    if (update.after == &operation && !update.inParts)
      text += "  q.update(" + std::to_string(update.parameter) + ", " +
              names_.reference(memory.training, update.gradient) + ".data); // " +
              commentText(memory.parameters[static_cast<std::size_t>(update.parameter)].parameter->name) + "\n";
  return text;
}

/// Buckets of gradients that are final after `operation`.
std::string PhaseWriter::finals(const Operation& operation) const {
  const auto found = finals_.find(&operation);
  if (found == finals_.end()) return {};
  std::string text;
  for (const FinalBucket& final : found->second) {
    std::string names;
    for (const Parameter* parameter : final.parameters)
      names += (names.empty() ? "" : ", ") + commentText(parameter->name);
    text += "  // " + filled("Final: the gradients of " + names, 5, "  // ") + "\n  q.bucket(" +
            std::to_string(final.bucket) + ");\n";
  }
  return text;
}

/// --debug-nan: looks at what `operation` has computed.
std::string PhaseWriter::looks(const Operation& operation, const GraphMemory& memory) const {
  std::string text;
  for (const Value* result : operation.results()) {
    if (!result || result->type().element != ElementType::f32) continue;
    std::string what = operation.forwardOperation().location.node;
    if (operation.phase != Phase::forward) what = "gradient of " + what;
    text += "  " +
            wrapped("pdcrt::lookAt(" + names_.reference(memory, result) + ", " +
                        std::to_string(result->type().bytes() / 4) + ", " +
                        stringLiteral(what + " -> " + toString(result->type())) + ");",
                    2, 6) +
            "\n";
  }
  return text;
}

std::string PhaseWriter::copies(ProgramPhase phase, const Operation* after, const GraphMemory& memory) {
  std::string text;
  for (const Copy& copy : program_.memory->copies) {
    if (copy.phase != phase || copy.after != after) continue;
    const FusedKernel kernel = emitCopyKernel(copy.value->type(), program_.target, program_.memory->threads);
    text += "  " + functionName(kernel.text, kernel.hint) + "(q, " + names_.reference(memory, copy.value) + ", " +
            names_.reference(copy.to) + ");\n";
  }
  return text;
}
