// The reader of PipeDream's profiles.
#include "pdc/Published/PipedreamProfile.h"

#include "Formats/Edges.h"
#include "pdc/Support/Names.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <unordered_map>

using namespace pdc;

namespace {

/// A node line.
struct ProfileNode {
  std::string id, module;
  double forwardMs = 0, backwardMs = 0;
  std::int64_t activationBytes = 0, parameterBytes = 0;
  int line = 0;
};

struct ProfileEdge {
  std::string_view from, to;
  int line = 0;
};

class ProfileReader {
public:
  ProfileReader(std::string_view text, const std::string& file, Diagnostics& diags)
      : text_(text), file_(file), diags_(diags) {}
  Expected<CostGraph> read();

private:
  Status readLines();
  Status readNode(std::string_view line);
  Status readField(ProfileNode& node, std::string_view field);
  Status readEdge(std::string_view line);
  Expected<double> number(std::string_view text, const char* name);
  Expected<std::int64_t> bytes(std::string_view text, const char* name);
  Status resolveEdges();
  std::vector<bool> keptNodes() const;
  CostGraph graphOf(const std::vector<std::int64_t>& order) const;

  Diagnostics::Builder error(int line = 0) { return diags_.error({file_, "", line ? line : line_, 1}); }

  std::string_view text_;
  const std::string& file_;
  Diagnostics& diags_;
  int line_ = 0;
  std::vector<ProfileNode> nodes_;
  std::unordered_map<std::string, std::int64_t> indexOf_;
  std::vector<ProfileEdge> edgeLines_;
  Edges edges_; ///< without repetition
};

} // namespace

static std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + separator.size());
  }
  parts.push_back(text);
  return parts;
}

static std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// What a message shows of a text: one line of moderate length.
static std::string shown(std::string_view text) {
  return text.size() <= 60 ? std::string(text) : std::string(text.substr(0, 57)) + "...";
}

Expected<double> ProfileReader::number(std::string_view text, const char* name) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    return error() << "expected " << name << " to be a finite number that is not negative, got '" << shown(text) << "'";
  return value;
}

/// A size, or a list "[a; b; c]" of sizes, which count together.
Expected<std::int64_t> ProfileReader::bytes(std::string_view text, const char* name) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  constexpr double most = 0x1p53;
  double sum = 0;
  for (std::string_view part : split(text, ";")) {
    Expected<double> size = number(trimmed(part), name);
    if (!size) return failure;
    if (*size != std::floor(*size))
      return error() << "expected " << name << " to be a whole number of bytes, got " << shown(trimmed(part));
    sum += *size;
  }
  if (sum > most) return error() << "expected " << name << " of at most 2^53 bytes, got " << shown(text);
  return static_cast<std::int64_t>(sum);
}

Status ProfileReader::readField(ProfileNode& node, std::string_view field) {
  const std::size_t equals = field.find('=');
  if (equals == std::string_view::npos) return error() << "expected '<name>=<value>', got '" << shown(field) << "'";
  const std::string_view name = trimmed(field.substr(0, equals)), value = trimmed(field.substr(equals + 1));
  auto keep = [](auto read, auto& where) -> Status {
    if (!read) return failure;
    where = *read;
    return success;
  };
  if (name == "forward_compute_time") return keep(number(value, "forward_compute_time"), node.forwardMs);
  if (name == "backward_compute_time") return keep(number(value, "backward_compute_time"), node.backwardMs);
  if (name == "activation_size") return keep(bytes(value, "activation_size"), node.activationBytes);
  if (name == "parameter_size") return keep(bytes(value, "parameter_size"), node.parameterBytes);
  return error().help(helpForUnknown(
             name, {"forward_compute_time", "backward_compute_time", "activation_size", "parameter_size"}))
         << "unknown field '" << shown(name) << "'";
}

Status ProfileReader::readNode(std::string_view line) {
  const std::vector<std::string_view> parts = split(line, " -- ");
  if (parts.size() < 3 || parts.size() > 4 || parts[0].substr(0, 4) != "node")
    return error().help("a node is 'node<ID> -- <module> -- forward_compute_time=<ms>, backward_compute_time=<ms>, "
                        "activation_size=<bytes>, parameter_size=<bytes>'")
           << "expected a node, got '" << shown(line) << "'";
  ProfileNode node;
  node.id = trimmed(parts[0]);
  node.module = trimmed(parts[1]);
  node.line = line_;
  const std::vector<std::string_view> fields = split(parts[2], ", ");
  if (fields.size() != 4)
    return error().help("a node has forward_compute_time, backward_compute_time, activation_size and parameter_size")
           << "expected 4 fields, got " << fields.size();
  std::vector<std::string_view> names;
  for (std::string_view field : fields) {
    if (!readField(node, field)) return failure;
    names.push_back(trimmed(field.substr(0, field.find('='))));
    if (std::count(names.begin(), names.end(), names.back()) > 1)
      return error() << "the field '" << names.back() << "' appears twice";
  }
  if (parts.size() == 4 && trimmed(parts[3]).substr(0, 9) != "stage_id=")
    return error() << "expected 'stage_id=<int>' at the end, got '" << shown(parts[3]) << "'";
  const auto [first, isNew] = indexOf_.emplace(node.id, static_cast<std::int64_t>(nodes_.size()));
  if (!isNew)
    return error().help("give every node an id of its own")
           << "'" << shown(node.id) << "' is already in line " << nodes_[static_cast<std::size_t>(first->second)].line;
  nodes_.push_back(std::move(node));
  return success;
}

Status ProfileReader::readEdge(std::string_view line) {
  const std::vector<std::string_view> ends = split(line, " -- ");
  if (ends.size() != 2)
    return error().help("an edge is '<TAB>node<A> -- node<B>'")
           << "expected an edge, got '" << shown(trimmed(line)) << "'";
  edgeLines_.push_back({trimmed(ends[0]), trimmed(ends[1]), line_});
  return success;
}

Status ProfileReader::readLines() {
  std::string_view rest = text_;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++line_;
    if (trimmed(line).empty()) continue;
    if (!(line.front() == '\t' ? readEdge(line) : readNode(line))) return failure;
  }
  return success;
}

Status ProfileReader::resolveEdges() {
  for (const ProfileEdge& edge : edgeLines_) {
    std::pair<std::int64_t, std::int64_t> ends;
    for (auto [id, end] : {std::pair{edge.from, &ends.first}, std::pair{edge.to, &ends.second}}) {
      auto found = indexOf_.find(std::string(id));
      if (found == indexOf_.end())
        return error(edge.line).help("add its line, or remove the edge") << "there is no node '" << shown(id) << "'";
      *end = found->second;
    }
    edges_.push_back(ends);
  }
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  return refuseCycles(
      static_cast<std::int64_t>(nodes_.size()), edges_,
      [&](std::int64_t v) { return nodes_[static_cast<std::size_t>(v)].id; }, file_, diags_);
}

/// All but sources that load data and sinks that take an element out of a tuple.
std::vector<bool> ProfileReader::keptNodes() const {
  std::vector<bool> isSource(nodes_.size(), true), isSink(nodes_.size(), true), kept(nodes_.size());
  for (auto [from, to] : edges_) isSource[static_cast<std::size_t>(to)] = false;
  auto startsWith = [&](std::size_t v, std::string_view prefix) {
    return nodes_[v].module.compare(0, prefix.size(), prefix) == 0;
  };
  for (auto [from, to] : edges_) isSink[static_cast<std::size_t>(from)] = false;
  for (std::size_t v = 0; v < nodes_.size(); ++v)
    kept[v] = !(isSource[v] && startsWith(v, "Input")) && !(isSink[v] && startsWith(v, "__getitem__"));
  return kept;
}

CostGraph ProfileReader::graphOf(const std::vector<std::int64_t>& order) const {
  const std::vector<bool> kept = keptNodes();
  CostGraph graph;
  graph.model = graph.costSource = file_;
  std::vector<std::int64_t> position(nodes_.size(), -1);
  for (std::int64_t v : order) {
    const ProfileNode& from = nodes_[static_cast<std::size_t>(v)];
    if (!kept[static_cast<std::size_t>(v)]) continue;
    position[static_cast<std::size_t>(v)] = static_cast<std::int64_t>(graph.nodes.size());
    CostNode node;
    node.name = from.id + " " + from.module;
    node.forwardMs = from.forwardMs;
    node.inputGradientMs = node.weightGradientMs = from.backwardMs / 2;
    node.parameterBytes = node.gradientBytes = from.parameterBytes;
    node.savedBytes = from.activationBytes;
    graph.nodes.push_back(std::move(node));
  }
  std::vector<std::vector<std::int64_t>> users(graph.nodes.size());
  for (auto [from, to] : edges_)
    if (kept[static_cast<std::size_t>(from)] && kept[static_cast<std::size_t>(to)])
      users[static_cast<std::size_t>(position[static_cast<std::size_t>(from)])].push_back(
          position[static_cast<std::size_t>(to)]);
  for (std::size_t v = 0; v < users.size(); ++v) {
    if (users[v].empty()) continue;
    std::sort(users[v].begin(), users[v].end());
    const std::string& name = graph.nodes[v].name;
    graph.tensors.push_back({name.substr(0, name.find(' ')), static_cast<std::int64_t>(v), std::move(users[v]),
                             graph.nodes[v].savedBytes, true});
  }
  return graph;
}

Expected<CostGraph> ProfileReader::read() {
  if (!readLines() || !resolveEdges()) return failure;
  // The order after the nodes that are dropped are gone: dropping them only adds freedom.
  const std::vector<bool> kept = keptNodes();
  Edges between;
  for (auto [from, to] : edges_)
    if (kept[static_cast<std::size_t>(from)] && kept[static_cast<std::size_t>(to)]) between.push_back({from, to});
  CostGraph graph = graphOf(topologicalOrder(static_cast<std::int64_t>(nodes_.size()), between));
  if (graph.nodes.empty())
    return diags_.error({file_}).help("give a graph.txt of PipeDream's profiler")
           << "expected at least one node besides the input, got none";
  return graph;
}

Expected<CostGraph> pdc::pipedreamProfileFromText(const std::string& text, const std::string& file,
                                                  Diagnostics& diags) {
  return ProfileReader(text, file, diags).read();
}
