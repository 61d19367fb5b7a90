// Writes a stage program from top to bottom.
#include "pdc/CodeGen/StageEmitter.h"

#include "FinalBuckets.h"
#include "PhaseWriter.h"
#include "StageNames.h"
#include "pdc/Analysis/Profile.h"
#include "pdc/CodeGen/FusedKernel.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>

using namespace pdc;

namespace {

/// "f32[2, 3]" as it stands in comments.
std::string typeText(const Type& type) {
  return toString(type);
}

std::string elementText(ElementType element) {
  // The one element type whose name in the IR is a keyword of C++.
  return std::string("Element::") + (element == ElementType::boolean ? "boolean" : nameOf(element));
}

std::string shapeText(const Shape& shape) {
  std::string text = "{";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "}";
}

class StageEmitter {
public:
  StageEmitter(const StageProgram& program, const Provenance& provenance, Diagnostics& diags)
      : program_(program), memory_(*program.memory), provenance_(provenance), names_(program),
        phases_(program, names_, diags), groupNames_(groupNames(*program.training)) {}

  Expected<std::string> run() {
    if (!phases_.run()) return failure;
    frontMatter();
    includes();
    out_ << "\nnamespace stage" << program_.index << " {\nnamespace {\n\nusing pdcrt::Element;\nusing pdcrt::View;\n";
    tables();
    views();
    kernels();
    fusedKernels();
    out_ << "\n// Phases: pure functions of their arguments, one call per operation, in the order of the model.\n"
            "// k: kernels, w: weights, r: running statistics, s: slot, h: handover, g: gradients, t: scratch,\n"
            "// q: what the calls run on, with the workspace of the call. Operands of a call come first, then its\n"
            "// results; {} is one that is absent. Above it: the ONNX node, and its first result's type.\n";
    out_ << phases_.text();
    out_ << "\n} // namespace\n";
    exportStage();
    out_ << "\n} // namespace stage" << program_.index << "\n";
    return out_.str();
  }

private:
  /// The rest of the DataRow of what the runtime provides itself; empty for what the data set has.
  std::string providedText(const Value* value) const {
    int shares = 0;
    for (const GraphInput& input : program_.training->inputs) {
      if (input.value == value && input.kind == InputKind::lossScale) return ", /*lossScale=*/true";
      if (input.value == value && input.share) return ", false, &shares[" + std::to_string(shares) + "]";
      shares += input.share.has_value();
    }
    return {};
  }

  /// LossShare rows, in the order of the inputs.
  void shareTables() {
    std::string weights, rows;
    int count = 0;
    for (const GraphInput& input : program_.training->inputs) {
      if (!input.share) continue;
      std::string span = "{}";
      if (!input.share->classWeights.empty()) {
        span = "weights_of_share" + std::to_string(count);
        weights += "constexpr double " + span + "[] = {";
        for (std::size_t i = 0; i < input.share->classWeights.size(); ++i) {
          char number[32];
          const auto [end, problem] = std::to_chars(number, number + sizeof number, input.share->classWeights[i]);
          weights += (i > 0 ? ", " : "") + std::string(number, end);
        }
        weights += "};\n";
      }
      rows += "    {" + stringLiteral(input.share->labels) + ", " + (input.share->ignoreIndex ? "true" : "false") +
              ", " + std::to_string(input.share->ignoreIndex.value_or(0)) + ", " + span + "},\n";
      ++count;
    }
    if (rows.empty()) return;
    out_ << "\n// How much of the loss of its update a minibatch makes up: by which labels, whether some are ignored, "
            "which,\n// weights of the classes.\n"
         << weights << "constexpr pdcrt::LossShare shares[] = {\n"
         << rows << "};\n";
  }

  bool isEarly(const PlacedParameter& placed) const {
    const auto& updates = memory_.earlyUpdates;
    return std::any_of(updates.begin(), updates.end(), [&](const EarlyUpdate& update) {
      return &memory_.parameters[static_cast<std::size_t>(update.parameter)] == &placed;
    });
  }

  /// The last members of a ParameterRow, if they differ from their defaults.
  std::string rowFlags(const PlacedParameter& placed) const {
    const bool early = isEarly(placed), inBlocks = placed.type.layout == filterInBlocks;
    const std::string part = rowPart(*placed.parameter);
    if (!early && !inBlocks && part.empty()) return "";
    std::string flags = std::string(", 1, 1, /*early=*/") + (early ? "true" : "false");
    if (inBlocks || !part.empty()) flags += std::string(", /*inBlocks=*/") + (inBlocks ? "true" : "false");
    return flags + part;
  }

  /// The last member of any row of a tensor, if a team divides it.
  std::string rowPart(const pdcrt::Part& part) const {
    const auto order = orders_.find({part.order.begin(), part.order.end()});
    return part.isWhole() ? "" : ", /*part=*/" + partText(part, order == orders_.end() ? "" : order->second);
  }
  std::string rowPart(const Parameter& parameter) const { return rowPart(team().storedPart(parameter)); }

  /// Tables of the orders that parameters have: which experts lie where.
  void orderTables() {
    const auto add = [&](const PlacedParameter& placed) {
      const auto order = team().orders.find(placed.parameter);
      if (order == team().orders.end() || orders_.contains(order->second)) return;
      if (orders_.empty())
        out_ << "\n// Experts in the order in which they lie on the members, one member after another.\n";
      const std::string& name = orders_[order->second] = "order" + std::to_string(orders_.size());
      out_ << "constexpr std::int32_t " << name << "[] = {";
      for (std::size_t i = 0; i < order->second.size(); ++i) out_ << (i ? ", " : "") << order->second[i];
      out_ << "};\n";
    };
    std::for_each(memory_.parameters.begin(), memory_.parameters.end(), add);
    std::for_each(memory_.states.begin(), memory_.states.end(), add);
  }
  const Team& team() const { return program_.training->team; }

  void frontMatter() {
    const pdcrt::BlockBytes& b = memory_.bytes;
    out_ << "// Stage " << program_.index << " of " << program_.count << " of the pipeline that trains "
         << commentText(provenance_.model) << ". Generated by pdc " << provenance_.version << ":\n//\n//   "
         << filled(commentText(provenance_.command), 5, "//     ") << "\n//\n";
    out_ << "//   model     " << commentText(provenance_.model) << ", hash " << provenance_.modelHash << "\n";
    out_ << "//   replicas  " << program_.replicas << "\n";
    if (const std::int64_t members = team().members; members > 1)
      out_ << "//   team      " << members
           << (!team().sums           ? ": each member holds parts of weights and values, and"
               : team().parts.empty() ? ": each member holds positions of sequences and all weights, and"
                                      : ": each member holds some samples or positions, parts of some weights, and")
           << " all run this program\n";
    out_ << "//   memory    weights " << sizeText(static_cast<std::int64_t>(b.weights)) << ", gradients "
         << sizeText(static_cast<std::int64_t>(b.gradients)) << ", each minibatch in flight "
         << sizeText(static_cast<std::int64_t>(b.slot)) << ",\n//             handover "
         << sizeText(static_cast<std::int64_t>(b.handover)) << ", scratch "
         << sizeText(static_cast<std::int64_t>(b.scratch))
         << (b.dataStaging > 0 ? ", data staging " + sizeText(static_cast<std::int64_t>(b.dataStaging)) : std::string())
         << (b.frozen > 0 ? ", frozen " + sizeText(static_cast<std::int64_t>(b.frozen)) : std::string())
         << "; alive at most " << sizeText(memory_.live.peak) << " of one minibatch\n";
    std::string nodes;
    for (int group : groups())
      if (const std::string name = nodesOf(group); !name.empty())
        nodes += (nodes.empty() ? "" : ", ") + commentText(name);
    out_ << "//   nodes     " << filled(nodes.empty() ? "none" : nodes, 15, "//             ") << "\n";
  }

  void includes() {
    std::set<std::string> headers = {"pdcrt/Stage.h"};
    if (!phases_.functions().empty()) headers.insert("pdcrt/Fused.h");
    if (!phases_.functions().empty() && memory_.threads > 1) headers.insert("pdcrt/SharedLoop.h");
    if (phases_.convertsAll()) headers.insert("pdcrt/Conversions.h");
    if (!names_.constants.empty()) headers.insert("pdcrt/Constant.h");
    if (program_.debugNan) headers.insert("pdcrt/NotFinite.h");
    for (const KernelMember& kernel : phases_.kernels()) headers.insert("pdcrt/kernels/" + kernel.className + ".h");
    for (const std::string& header : headers) out_ << "#include \"" << header << "\"\n";
  }

  void tables() {
    out_ << "\n// Tables. Offsets are bytes in the block that a row belongs to.\n";
    orderTables();
    if (!memory_.parameters.empty()) {
      out_ << "\n// Parameters "
           << (memory_.bytes.frozen > 0 ? "in the weights block, or in the frozen block if not trained"
                                        : "in the weights block")
           << ": ONNX name, type, shape, offset, bucket of the all-reduce, trained.\n"
              "// Flags follow the scales of the learning rate and of the weight decay.\n"
              "constexpr pdcrt::ParameterRow parameters[] = {\n";
      const std::map<const Parameter*, int> bucketOf = bucketsOfParameters(program_);
      for (const PlacedParameter& p : memory_.parameters)
        out_ << "    {" << stringLiteral(p.parameter->name) << ", " << typeFields(p.type) << ", " << p.offset << ", "
             << bucketOf.at(p.parameter) << ", " << (p.parameter->role == ParameterRole::trained ? "true" : "false")
             << rowFlags(p) << "},\n";
      out_ << "};\n";
    }
    if (!memory_.gradients.empty()) {
      out_ << "\n// Uses of parameters: which parameter, offset of its gradient in the gradients block, whether "
              "backward_input has it.\n"
              "constexpr pdcrt::GradientRow gradients[] = {\n";
      for (const PlacedGradient& g : memory_.gradients)
        out_ << "    {" << g.parameter << ", " << g.offset << ", " << (g.withInput ? "true" : "false") << "}, // "
             << commentText(memory_.parameters[static_cast<std::size_t>(g.parameter)].parameter->name) << "\n";
      out_ << "};\n";
    }
    sharedTables();
    if (!memory_.states.empty()) {
      out_ << "\n// Running statistics in the state block: ONNX name, type, shape, offset.\n"
              "constexpr pdcrt::StateRow states[] = {\n";
      for (const PlacedParameter& p : memory_.states)
        out_ << "    {" << stringLiteral(p.parameter->name) << ", " << typeFields(p.type) << ", " << p.offset
             << rowPart(*p.parameter) << "},\n";
      out_ << "};\n";
    }
    edgeTables();
    shareTables();
    if (!memory_.data.empty()) {
      out_ << "\n// Inputs from the data set, in the slot: name, type, shape, offset, label, choices.\n"
              "constexpr pdcrt::DataRow data[] = {\n";
      for (const PlacedData& d : memory_.data)
        out_ << "    {" << stringLiteral(d.value->name()) << ", " << typeFields(d.value->type()) << ", " << d.offset
             << ", " << (d.label ? "true" : "false") << ", " << d.choices << providedText(d.value) << "},\n";
      out_ << "};\n";
    }
    if (!memory_.outputs.empty()) {
      out_ << "\n// What the runtime reads in the slot: losses and terms after forward, predictions and loads "
              "after evaluate.\n"
              "constexpr pdcrt::OutputRow outputs[] = {\n";
      for (const PlacedOutput& o : memory_.outputs)
        out_ << "    {pdcrt::OutputKind::" << wordOf(o.kind) << ", " << stringLiteral(o.name) << ", "
             << typeFields(o.value->type()) << ", " << o.offset
             << rowPart(pdc::storedPart(wholeOf(o.value->type(), o.part, team().members), o.part, team().members))
             << "},\n";
      out_ << "};\n";
    }
    if (!groups().empty()) {
      out_ << "\n// Fusion groups, numbered over the whole model, and their ONNX nodes.\n"
              "constexpr pdcrt::GroupRow groups[] = {\n";
      for (int group : groups()) out_ << "    {" << group << ", " << stringLiteral(nodesOf(group)) << "},\n";
      out_ << "};\n";
    }
    for (const ConstantTable& constant : names_.constants) constantTable(constant);
  }

  void sharedTables() {
    if (memory_.shared.empty()) return;
    out_ << "\n// Stages with which parameters are shared: owner, user, bytes of one version of them, bytes of the "
            "gradients that\n// the user sends back.\nconstexpr pdcrt::SharedRow shared[] = {\n";
    for (const pdcrt::SharedRow& row : memory_.shared)
      out_ << "    {" << row.owner << ", " << row.user << ", " << row.valueBytes << ", " << row.partBytes << "},\n";
    out_ << "};\n\n// These parameters: row above, ONNX name, type, shape, offset (of the owner: in the weights "
            "block), row of the\n// owner's parameters.\nconstexpr pdcrt::SharedValueRow sharedValues[] = {\n";
    for (const PlacedSharedValue& value : memory_.sharedValues)
      out_ << "    {" << value.shared << ", " << stringLiteral(value.parameter->name) << ", " << typeFields(value.type)
           << ", " << value.offset << ", " << value.index << rowPart(*value.parameter) << "},\n";
    out_ << "};\n\n// Their uses by the user: row of shared, row of sharedValues, position among all uses, offset in "
            "what travels, offset\n// in the user's gradients block, whether backward_input writes it.\n"
            "constexpr pdcrt::SharedUseRow sharedUses[] = {\n";
    for (const PlacedSharedUse& use : memory_.sharedUses)
      out_ << "    {" << memory_.sharedValues[static_cast<std::size_t>(use.value)].shared << ", " << use.value << ", "
           << use.position << ", " << use.part << ", " << std::max<std::int64_t>(use.gradient, 0) << ", "
           << (use.withInput ? "true" : "false") << "},\n";
    out_ << "};\n";
  }

  void edgeTables() {
    if (memory_.edges.empty()) return;
    out_ << "\n// Connections to other stages: direction, from, to, bytes of the buffer of a minibatch.\n"
            "constexpr pdcrt::EdgeRow edges[] = {\n";
    for (const pdcrt::EdgeRow& edge : memory_.edges)
      out_ << "    {pdcrt::Direction::" << (edge.direction == pdcrt::Direction::forward ? "forward" : "backward")
           << ", " << edge.from << ", " << edge.to << ", " << edge.bytes << "},\n";
    out_ << "};\n\n// The tensors that travel over them: edge, name, type, shape, bytes, offset.\n"
            "constexpr pdcrt::PortRow ports[] = {\n";
    for (const PlacedPort& port : memory_.ports)
      out_ << "    {" << port.edge << ", " << stringLiteral(port.value->name()) << ", "
           << typeFields(port.value->type()) << ", " << port.value->type().bytes() << ", " << port.offset << "},\n";
    out_ << "};\n";
  }

  void constantTable(const ConstantTable& constant) {
    const Tensor& tensor = constant.operation->attributes.get<Tensor>("value");
    out_ << "\n// " << typeText(tensor.type()) << ": " << commentText(constant.operation->location.node) << "\n";
    out_ << "alignas(64) constexpr " << cppTypeOf(tensor.type().element) << " " << constant.name << "_elements[] = {";
    for (std::int64_t i = 0; i < std::max<std::int64_t>(tensor.elements(), 1); ++i)
      out_ << (i % 8 == 0 ? "\n    " : " ") << (i < tensor.elements() ? elementOf(tensor, i) : "0") << ",";
    out_ << "\n};\n";
  }

  static std::string elementOf(const Tensor& tensor, std::int64_t i) {
    if (tensor.type().element == ElementType::u64)
      return std::to_string(static_cast<std::uint64_t>(tensor.asInt(i))) + "u";
    if (!isFloat(tensor.type().element)) return std::to_string(tensor.asInt(i));
    const double value = tensor.asDouble(i);
    std::ostringstream text;
    if (std::isnan(value))
      text << "__builtin_nanf(\"\")";
    else if (std::isinf(value))
      text << (value < 0 ? "-__builtin_inff()" : "__builtin_inff()");
    else
      text << std::hexfloat << value << (tensor.type().element == ElementType::f64 ? "" : "f"); // exact
    if (!isLowPrecision(tensor.type().element)) return text.str();
    return std::string(cppTypeOf(tensor.type().element)) + "(" + text.str() + ")";
  }

  void views() {
    out_ << "\n// Views: one member per buffer, at its offset in its block.\n";
    if (memory_.bytes.frozen > 0)
      view("Weights", "const std::byte* base;\n  const std::byte* frozen;", "base", names_.weights,
           "The parameters: trained ones in the version to use, and those that never change.");
    else
      view("Weights", "const std::byte* base;", "base", names_.weights, "The parameters, in the version to use.");
    view("State", "std::byte* base;", "base", names_.state, "Running statistics, replaced by each forward.");
    view("Slot", "pdcrt::Frame frame;", "", names_.slot,
         "What a minibatch keeps from its forward to its backward, what comes and goes, and what lives inside one\n"
         "// phase where the slot holds nothing else then.");
    view("Handover", "std::byte* base;", "base", names_.handover, "What backward_input leaves to backward_weight.");
    view("Gradients", "std::byte* base;", "base", names_.gradients, "One accumulator per use of a parameter.");
    view("Scratch", "std::byte* base;", "base", names_.scratch,
         "What lives inside one phase and fits nowhere in the slot: places are shared.");
  }

  void view(const char* name, const char* base, const std::string& block, const std::vector<ViewMember>& members,
            const char* what) {
    out_ << "\n// " << what << "\nstruct " << name << " {\n  " << base << "\n";
    std::vector<std::string> lines;
    for (const ViewMember& m : members) {
      std::string from = block;
      if (m.place.block == Block::edge)
        from = "frame.edges[" + std::to_string(m.place.edge) + "]";
      else if (m.place.block == Block::shared)
        from = "frame.shared[" + std::to_string(m.place.edge) + "]";
      else if (m.place.block == Block::slot)
        from = "frame.slot";
      else if (m.place.block == Block::frozen)
        from = "frozen";
      lines.push_back(std::string("  View<") + (m.readOnly ? "const " : "") + cppTypeOf(m.type.element) + "> " +
                      m.name + "{" + from + ", " + std::to_string(m.place.offset) + "};");
    }
    std::size_t width = 0;
    for (const std::string& line : lines) width = std::max(width, line.size());
    for (std::size_t i = 0; i < members.size(); ++i)
      out_ << std::left << std::setw(static_cast<int>(width)) << lines[i] << " // " << typeText(members[i].type) << " "
           << commentText(members[i].comment) << "\n";
    out_ << "};\n";
  }

  /// The workspace that a kernel may ask for: ".within(1024)", or for each method that is called.
  static std::string within(const KernelMember& member) {
    if (member.workspace.empty()) return "";
    std::string methods;
    std::int64_t most = 0;
    for (const auto& [method, bytes] : member.workspace) {
      methods += (methods.empty() ? "{\"" : ", {\"") + method + "\", " + std::to_string(bytes) + "}";
      most = std::max(most, bytes);
    }
    return ".within(" + (member.byMethod ? "{" + methods + "}" : std::to_string(most)) + ")";
  }

  void kernels() {
    out_ << "\n// Kernels, built once, before the first minibatch.\nstruct Kernels {\n";
    std::vector<KernelMember> members;
    for (const ConstantTable& constant : names_.constants)
      members.push_back({constant.name,
                         std::string("Constant<") +
                             cppTypeOf(constant.operation->attributes.get<Tensor>("value").type().element) + ">",
                         constant.name + "_elements", constant.operation->location.node});
    for (const KernelMember& kernel : phases_.kernels()) {
      members.push_back(kernel);
      members.back().options = "{" + kernel.options + "}";
    }
    std::size_t width = 0;
    for (const KernelMember& member : members)
      width = std::max(width, member.className.size() + member.name.size() + 11);
    for (const KernelMember& member : members)
      out_ << std::left << std::setw(static_cast<int>(width))
           << "  pdcrt::" + member.className + " " + member.name + ";"
           << " // " << commentText(member.node) << "\n";
    if (members.empty()) {
      out_ << "  explicit Kernels(pdcrt::Setup&) {}\n};\n";
      return;
    }
    out_ << "  explicit Kernels(pdcrt::Setup& setup)\n      : ";
    bool first = true;
    for (const KernelMember& member : members) {
      out_ << (first ? "" : ",\n        ")
           << wrapped(member.name + "(setup" + within(member) + ", " + member.options + ")", 8, 12);
      first = false;
    }
    out_ << " {}\n};\n";
  }

  void fusedKernels() {
    if (phases_.functions().empty()) return;
    out_ << "\n// Fused kernels: elementwise operations of the model, their expression above each.\n";
    for (const std::string& function : phases_.functions()) out_ << "\n" << function;
  }

  void exportStage() {
    const pdcrt::BlockBytes& b = memory_.bytes;
    out_
        << "\nextern const pdcrt::Stage stage;\nconst pdcrt::Stage stage =\n"
           "    pdcrt::withPhases<Kernels, Weights, State, Slot, Handover, Gradients, Scratch, forward, backward_input,"
           "\n                      backward_weight, evaluate>({\n";
    out_ << "        .index = " << program_.index << ",\n        .count = " << program_.count
         << ",\n        .model = " << stringLiteral(provenance_.model)
         << ",\n        .modelHash = " << stringLiteral(provenance_.modelHash)
         << (team().members > 1 ? ",\n        .members = " + std::to_string(team().members) : std::string())
         << (memory_.threads != 1 ? ",\n        .threads = " + std::to_string(memory_.threads) : std::string())
         << ",\n        .bytes = {.weights = " << b.weights << ", .state = " << b.state
         << ", .gradients = " << b.gradients << ", .slot = " << b.slot
         << ",\n                  .handover = " << b.handover << ", .scratch = " << b.scratch
         << ", .workspace = " << b.workspace
         << (b.dataStaging > 0 ? ", .dataStaging = " + std::to_string(b.dataStaging) : std::string())
         << (b.frozen > 0 ? ", .frozen = " + std::to_string(b.frozen) : std::string()) << "},\n";
    auto table = [&](const char* name, bool has) {
      if (has) out_ << "        ." << name << " = " << name << ",\n";
    };
    table("parameters", !memory_.parameters.empty());
    table("gradients", !memory_.gradients.empty());
    for (const char* name : {"shared", "sharedValues", "sharedUses"}) table(name, !memory_.shared.empty());
    table("states", !memory_.states.empty());
    table("edges", !memory_.edges.empty());
    table("ports", !memory_.ports.empty());
    table("data", !memory_.data.empty());
    table("outputs", !memory_.outputs.empty());
    table("groups", !groups().empty());
    out_ << "    });\n";
  }

  static std::string typeFields(const Type& type) { return elementText(type.element) + ", " + shapeText(type.shape); }

  const std::vector<int>& groups() const { return phases_.groups(); }

  /// Empty for a group that only evaluates.
  std::string nodesOf(int group) const {
    const auto i = static_cast<std::size_t>(group);
    return i < groupNames_.size() ? groupNames_[i] : std::string();
  }

  const StageProgram& program_;
  const MemoryPlan& memory_;
  const Provenance& provenance_;
  const StageNames names_;
  PhaseWriter phases_;
  const std::vector<std::string> groupNames_;
  std::ostringstream out_;
  std::map<std::vector<std::int32_t>, std::string> orders_; ///< the names of their tables
};

} // namespace

Expected<std::string> pdc::emitStage(const StageProgram& program, const Provenance& provenance, Diagnostics& diags) {
  return StageEmitter(program, provenance, diags).run();
}
