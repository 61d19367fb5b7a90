// A flag says, or names say, or the place does. What is only likely is told; what contradicts itself is refused.
#include "BatchAxes.h"

#include "pdcrt/Training.h"

#include <algorithm>
#include <cctype>

using namespace pdc;

namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool isOneOf(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return text == word; });
}
bool hasOneOf(const std::string& text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

/// Of something else than samples: "sequence_length", "T". A calculation ("2*batch") is another dimension, too.
bool namesAnother(const std::string& symbol) {
  const std::string name = lower(symbol);
  const bool isCalculated = name.find_first_of("+*()") != std::string::npos;
  return isCalculated ||
         hasOneOf(name, {"seq", "len", "time", "step", "token", "frame", "node", "edge", "height", "width", "channel",
                         "feature", "position", "past", "vocab", "head", "layer", "hidden"}) ||
         isOneOf(name, {"t", "s", "l", "h", "w", "c", "d", "e", "f", "k", "v"});
}

bool namesBatch(const std::string& symbol) {
  return hasOneOf(lower(symbol), {"batch"}) && !namesAnother(symbol);
}
bool abbreviatesBatch(const std::string& symbol) {
  return isOneOf(lower(symbol), {"n", "b", "bs", "bsz", "nb", "samples", "num_samples", "n_samples", "examples"});
}

/// Whether an exporter numbered the dimension and nobody gave it a name: "s77", "unk__12", "x_dynamic_axes_1".
bool isNumbered(const StatedDim& dim) {
  const std::string name = lower(dim.symbol);
  if (!dim.named || hasOneOf(name, {"dynamic_axes", "dynamicdimension"})) return true;
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  return digits < name.size() && isOneOf(name.substr(0, digits), {"s", "u", "d", "dim", "dim_", "_dim_", "unk__"});
}

class Chooser {
public:
  explicit Chooser(const InputContext& context) : c_(context), axes_(context.inputs.size()) {}

  Expected<std::vector<BatchAxis>> run() {
    if (!takeStated()) return failure;
    leaveOut();
    bool agreed = false;
    if (symbols_.empty()) collect(namesBatch);
    if (symbols_.empty()) agreed = collect(abbreviatesBatch) || agree();
    for (std::size_t i = 0; i < axes_.size(); ++i) choose(i, agreed);
    chooseOfFixed();
    return axes_;
  }

private:
  using Source = BatchAxis::Source;

  Status takeStated() {
    for (const auto& [name, axis] : c_.options.batchAxes) {
      const auto input =
          std::find_if(c_.inputs.begin(), c_.inputs.end(), [&](const DataInput& i) { return i.name == name; });
      if (input == c_.inputs.end())
        return c_.diags.error({.file = c_.path}).note("it has " + listOf(c_.inputs))
               << "has no data input '" << name << "', which --batch-axis names";
      if (c_.options.bind.contains(name))
        return c_.diags.error({.file = c_.path, .node = name})
                   .exit(ExitCode::usage)
                   .help("leave out --batch-axis, or --bind")
               << "is bound to a value and has no batch axis";
      if (axis >= static_cast<int>(input->dims.size()))
        return c_.diags.error({.file = c_.path, .node = name})
               << "is " << toString(*input) << " with " << input->dims.size() << " axes, --batch-axis names axis "
               << axis << ", counted from 0";
      axes_[static_cast<std::size_t>(input - c_.inputs.begin())] = {axis, Source::stated};
      if (axis != pdcrt::noBatchAxis)
        if (const std::string& symbol = input->dims[static_cast<std::size_t>(axis)].symbol; !symbol.empty())
          symbols_.insert(symbol);
    }
    return success;
  }

  void leaveOut() {
    for (std::size_t i = 0; i < axes_.size(); ++i)
      if (const std::string& name = c_.inputs[i].name;
          axes_[i].source == Source::unknown && (c_.options.bind.contains(name) || c_.unread.contains(name)))
        axes_[i].source = Source::none;
  }
  bool isOpen(std::size_t i) const { return axes_[i].source == Source::unknown; }

  /// Whether any symbol is one of the batch now.
  bool collect(bool (*is)(const std::string&)) {
    for (std::size_t i = 0; i < axes_.size(); ++i)
      if (isOpen(i))
        for (const StatedDim& dim : c_.inputs[i].dims)
          if (dim.named && !dim.symbol.empty() && is(dim.symbol)) symbols_.insert(dim.symbol);
    return !symbols_.empty();
  }

  /// The symbol that most inputs and outputs have as their first axis; names that people give come before numbers of
  /// exporters.
  bool agree() {
    std::map<std::string, int> votes, numbered;
    const auto vote = [&](const DataInput& tensor, int weight) {
      for (std::size_t axis = 0; axis < tensor.dims.size(); ++axis) {
        const StatedDim& dim = tensor.dims[axis];
        if (dim.symbol.empty() || !dim.named) continue;
        if (isNumbered(dim))
          numbered[dim.symbol] += axis == 0 ? weight : 0;
        else if (!namesAnother(dim.symbol))
          votes[dim.symbol] += axis == 0 ? weight : 0;
      }
    };
    std::set<std::string> here;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      if (!isOpen(i)) continue;
      vote(c_.inputs[i], 1);
      for (const StatedDim& dim : c_.inputs[i].dims) here.insert(dim.symbol);
    }
    for (const DataInput& output : c_.outputs) vote(output, 1);
    for (auto* counts : {&votes, &numbered}) {
      std::erase_if(*counts, [&](const auto& entry) { return !here.contains(entry.first); });
      if (counts->empty()) continue;
      const auto most =
          std::max_element(counts->begin(), counts->end(), [](auto& a, auto& b) { return a.second < b.second; });
      const auto equals =
          std::count_if(counts->begin(), counts->end(), [&](auto& entry) { return entry.second == most->second; });
      if (equals == 1) symbols_.insert(most->first);
      return true;
    }
    return false;
  }

  void choose(std::size_t i, bool agreed) {
    if (!isOpen(i)) return;
    const std::vector<StatedDim>& dims = c_.inputs[i].dims;
    int found = 0;
    for (std::size_t axis = 0; axis < dims.size(); ++axis)
      if (!dims[axis].symbol.empty() && symbols_.contains(dims[axis].symbol) && ++found == 1)
        axes_[i].axis = static_cast<int>(axis);
    if (found == 1) {
      axes_[i].source = agreed ? Source::agreed : Source::named;
    } else if (found > 1) {
      axes_[i] = {.several = true};
    } else if (!dims.empty() && !dims[0].symbol.empty() && isNumbered(dims[0])) {
      axes_[i] = {0, Source::placed};
    }
  }

  /// Where no name tells anything: the first axes, if they have one size, which outputs have as their first, too.
  void chooseOfFixed() {
    std::set<std::int64_t> sizes, stated, given;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      const std::vector<StatedDim>& dims = c_.inputs[i].dims;
      if (axes_[i].source == Source::stated && axes_[i].axis >= 0)
        stated.insert(dims[static_cast<std::size_t>(axes_[i].axis)].value);
      else if (axes_[i].source != Source::none && axes_[i].source != Source::stated && !isOpen(i))
        return;
      else if (isOpen(i) && !dims.empty())
        sizes.insert(dims[0].value);
    }
    if (!symbols_.empty() || sizes.contains(0)) return; // 0: symbolic
    for (const DataInput& output : c_.outputs)
      if (!output.dims.empty() && !isOneNumber(output)) given.insert(output.dims[0].value);
    const std::set<std::int64_t>& all = !stated.empty()                           ? stated
                                        : given.size() == 1 && *given.begin() > 0 ? given
                                                                                  : sizes;
    if (all.size() != 1 || (!given.empty() && !given.contains(*all.begin()) && !given.contains(0))) return;
    for (std::size_t i = 0; i < axes_.size(); ++i)
      if (isOpen(i) && !c_.inputs[i].dims.empty() && c_.inputs[i].dims[0].value == *all.begin())
        axes_[i] = {0, Source::placed};
  }
  static bool isOneNumber(const DataInput& output) {
    return std::all_of(output.dims.begin(), output.dims.end(), [](const StatedDim& dim) { return dim.value == 1; });
  }

  const InputContext& c_;
  std::vector<BatchAxis> axes_;
  std::set<std::string> symbols_; ///< of the batch
};

/// The axis of `input` that has the size which outputs have as their first, where it is the only one; else -1.
int likelyAxis(const InputContext& c, const DataInput& input) {
  for (const DataInput& output : c.outputs) {
    if (output.dims.empty()) continue;
    const StatedDim& first = output.dims[0];
    const auto same = [&](const StatedDim& dim) {
      return dim.symbol == first.symbol && dim.value == first.value && (dim.named || dim.symbol.empty());
    };
    if (std::count_if(input.dims.begin(), input.dims.end(), same) == 1)
      return static_cast<int>(std::find_if(input.dims.begin(), input.dims.end(), same) - input.dims.begin());
  }
  return -1;
}

/// "--bind temperature=1.0".
std::string bindFlag(const DataInput& input) {
  const char* value = input.element == ElementType::boolean ? "true" : isFloat(input.element) ? "1.0" : "1";
  return "--bind " + input.name + "=" + (input.dims.size() > 1 ? "FILE.npy" : value);
}

} // namespace

std::string pdc::describe(const DataInput& input, const BatchAxis& axis) {
  const StatedDim& dim = input.dims[static_cast<std::size_t>(axis.axis)];
  return "axis " + std::to_string(axis.axis) + " of '" + input.name + "' (" +
         (dim.symbol.empty() ? std::to_string(dim.value) : "'" + dim.symbol + "'") + ")";
}

Expected<std::vector<BatchAxis>> pdc::chooseBatchAxes(const InputContext& context) {
  return Chooser(context).run();
}

Status pdc::checkBatchAxes(const InputContext& c, const std::vector<BatchAxis>& axes) {
  std::string known;
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i].axis >= 0) known += (known.empty() ? "" : ", ") + describe(c.inputs[i], axes[i]);
  bool valid = true;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].source != BatchAxis::Source::unknown) continue;
    valid = false;
    const DataInput& input = c.inputs[i];
    Diagnostic problem{.location = {.file = c.path, .node = input.name}};
    problem.message = "is " + toString(input) + ": " +
                      (input.dims.empty() ? "a scalar has no axis along which samples could lie"
                       : axes[i].several  ? "several of its axes have the name of the batch"
                                          : "which of its axes is the batch is not known");
    if (!known.empty()) problem.notes.push_back("the batch is " + known);
    for (const DataInput& output : c.outputs)
      if (&output == &c.outputs.front())
        problem.notes.push_back("output '" + output.name + "' is [" +
                                toString(output).substr(toString(output).find('[') + 1));
    if (!input.dims.empty()) {
      const int axis = likelyAxis(c, input);
      std::string samples = "its samples lie along axis N: --batch-axis=" + input.name + ":N";
      if (axis >= 0 || input.dims.size() == 1)
        samples = "--batch-axis=" + input.name + ":" + std::to_string(std::max(axis, 0)) + " if its samples lie there";
      problem.helps.push_back(samples);
    }
    problem.helps.push_back("it is always the same: " + bindFlag(input) + (input.dims.size() > 1 ? ", or =zeros" : "") +
                            "; --batch-axis=" + input.name + ":none reads it from the data");
    c.diags.report(std::move(problem));
  }
  return valid ? Status(success) : Status(failure);
}
