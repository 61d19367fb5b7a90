#include "AnnotatedSplit.h"

#include "Teams.h"
#include "pdc/Support/Names.h"

#include <algorithm>
#include <set>
#include <tuple>

using namespace pdc;

static Expected<std::optional<AskedPart>> askedPart(const Location& where, const ShardingSpec& spec,
                                                    Diagnostics& diags) {
  std::optional<AskedPart> part;
  std::string second;
  for (const ShardedAxis& axis : spec.axes) {
    std::optional<std::int64_t> before = 1, size = 1;
    for (const ShardedFactor& factor : axis.factors) {
      if (factor.shards > 1 && part) second = "axes or blocks in more than one way";
      if (factor.shards > 1)
        part = AskedPart{.node = where.node,
                         .tensor = spec.tensor,
                         .axis = axis.axis,
                         .blocks = before,
                         .size = {},
                         .members = factor.shards,
                         .isEven = !factor.size || *factor.size % factor.shards == 0};
      for (std::optional<std::int64_t>* product : {&before, &size})
        if (!factor.size || (*product && **product > INT64_MAX / *factor.size))
          product->reset();
        else if (*product)
          **product *= *factor.size;
    }
    if (part && part->axis == axis.axis) part->size = size;
  }
  if (!second.empty())
    return diags.error(where).exit(ExitCode::unsupported).help("divide one axis of each tensor")
           << "its sharding_spec of '" << spec.tensor << "' divides " << second << ", pdc divides one axis over a team";
  return part;
}

Expected<std::vector<AskedPart>> pdc::askedParts(const std::string& path, const DeviceAnnotations& file,
                                                 const std::string& configuration, Diagnostics& diags) {
  std::vector<AskedPart> parts;
  for (const AnnotatedNode& node : file.nodes)
    for (const NodeConfiguration& each : node.configurations) {
      if (each.configuration != configuration) continue;
      for (const ShardingSpec& spec : each.shardings) {
        Expected<std::optional<AskedPart>> part = askedPart({.file = path, .node = node.name}, spec, diags);
        if (!part) return failure;
        if (!*part) continue;
        if (!parts.empty() && parts.front().members != (*part)->members)
          return diags.error({.file = path, .node = node.name})
                     .exit(ExitCode::unsupported)
                     .help("divide all tensors over teams of one size")
                 << "divides '" << spec.tensor << "' in " << (*part)->members << " parts, '" << parts.front().node
                 << "' divides '" << parts.front().tensor << "' in " << parts.front().members;
        parts.push_back(std::move(**part));
      }
    }
  return parts;
}

namespace {

/// How well a split fits what is asked.
struct Match {
  TeamSplit split;
  std::vector<std::pair<const AskedPart*, const TeamPart*>> weights, values; ///< that it divides otherwise, or not
  std::vector<std::string> unasked;                                          ///< weights that it divides besides
  std::size_t unknown = 0;                                                   ///< tensors of which it knows nothing

  auto rank() const { return std::tuple(weights.size(), values.size(), unasked.size()); }
};

bool isSame(const AskedPart& asked, const TeamPart& part) {
  const auto rank = static_cast<std::int64_t>(part.whole.rank());
  const std::int64_t axis = asked.axis < 0 ? asked.axis + rank : asked.axis;
  return axis == part.form.axis && (!asked.blocks || *asked.blocks == part.form.blocks) &&
         (!asked.size || *asked.size == part.whole.shape[static_cast<std::size_t>(axis)]);
}

std::string textOf(const TeamPart* part) {
  if (!part) return "keeps it whole";
  return "divides it along axis " + std::to_string(part->form.axis) +
         (part->form.blocks > 1 ? " in each of " + std::to_string(part->form.blocks) + " blocks" : "");
}

std::string textOf(const AskedPart& asked) {
  return "'" + asked.tensor + "' is divided along axis " + std::to_string(asked.axis) +
         (asked.blocks.value_or(1) > 1 ? " in each of " + std::to_string(*asked.blocks) + " blocks" : "") + " over " +
         std::to_string(asked.members) + " devices";
}

class Matcher {
public:
  Matcher(PassContext& context, const DeviceAnnotations& file, const NodePlaces& places,
          const std::vector<AskedPart>& asked)
      : context_(context), asked_(asked) {
    for (std::size_t i = 0; i < file.nodes.size(); ++i)
      if (!places.values[i].empty() && !file.nodes[i].outputs.empty())
        valueOf_[file.nodes[i].outputs.front()] = places.values[i];
  }

  /// Nothing where the split cannot divide the graph at all.
  std::optional<Match> match(const TeamSplit& split) {
    Diagnostics silent(nullptr);
    PassContext context{context_.module, context_.registry, silent, {}};
    const auto& parts =
        parts_.emplace_back(std::make_unique<Expected<TeamParts>>(partsOverTeam(context, optionsOf(split))));
    if (!*parts) return std::nullopt;
    const auto find = [](const auto& map, const std::string& name) {
      const auto found = map.find(name);
      return found == map.end() ? nullptr : &found->second;
    };
    Match match{.split = split, .weights = {}, .values = {}, .unasked = {}};
    std::set<std::string> named;
    for (const AskedPart& asked : asked_) {
      named.insert(asked.tensor);
      const bool isWeight = context_.module.findParameter(asked.tensor) != nullptr;
      const std::string* value = find(valueOf_, asked.tensor);
      const TeamPart* part = isWeight ? find((*parts)->parameters, asked.tensor)
                             : value  ? find((*parts)->values, *value)
                                      : nullptr;
      if (!isWeight && !value)
        ++match.unknown;
      else if (!part || !isSame(asked, *part))
        (isWeight ? match.weights : match.values).emplace_back(&asked, part);
    }
    for (const auto& [name, part] : (*parts)->parameters)
      if (!named.contains(name)) match.unasked.push_back(name);
    return match;
  }

private:
  PassContext& context_;
  const std::vector<AskedPart>& asked_;
  std::map<std::string, std::string> valueOf_;              ///< in @main, by the name in the file
  std::vector<std::unique_ptr<Expected<TeamParts>>> parts_; ///< that matches refer to
};

} // namespace

/// What is tried, the likeliest first.
static std::vector<TeamSplit> candidates(const DeviceAnnotations& file, int members, const TeamSplit& given) {
  if (!given.isNone()) return {given};
  std::vector<TeamSplit> splits;
  if (const auto written = file.metadata.find("pdc.split"); written != file.metadata.end())
    if (const auto split = teamSplitFromText(written->second); split && split->members == members)
      splits.push_back(*split);
  for (const bool all : {false, true}) {
    splits.push_back({.members = members, .all = all});
    splits.push_back({.members = members, .all = all, .tokens = true, .weights = true});
  }
  splits.push_back({.members = members, .tokens = true});
  splits.push_back({.members = members, .tokens = true, .experts = true});
  return splits;
}

static void tell(const Match& best, const std::string& path, Diagnostics& diags) {
  if (!best.values.empty()) {
    const auto& [asked, part] = best.values.front();
    diags.warning({.file = path, .node = asked->node})
        << counted(static_cast<std::int64_t>(best.values.size()), "sharding_spec") << " of values that are no weights "
        << (best.values.size() == 1 ? "is" : "are") << " not followed: " << textOf(*asked)
        << ", --split=" << toText(best.split) << " " << textOf(part);
  }
  if (best.unknown > 0)
    diags.warning({.file = path}) << counted(static_cast<std::int64_t>(best.unknown), "sharding_spec")
                                  << (best.unknown == 1 ? " is of a value" : " are of values")
                                  << " that pdc does not compute as the file has it, and not followed";
  if (!best.unasked.empty())
    diags.remark({.file = path}) << "--split=" << toText(best.split) << " also divides "
                                 << counted(static_cast<std::int64_t>(best.unasked.size()), "weight")
                                 << " of which the file says nothing, such as '" << best.unasked.front() << "'";
}

Expected<TeamSplit> pdc::splitFor(PassContext& context, const std::string& path, const DeviceAnnotations& file,
                                  const NodePlaces& places, const std::vector<AskedPart>& asked,
                                  const TeamSplit& given) {
  Diagnostics& diags = context.diags;
  const auto members = static_cast<int>(asked.front().members);
  if (members > pdcrt::mostMembers)
    return diags.error({.file = path, .node = asked.front().node})
               .exit(ExitCode::unsupported)
               .help("divide over fewer devices")
           << textOf(asked.front()) << ", a team has at most " << pdcrt::mostMembers;
  Matcher matcher(context, file, places, asked);
  std::optional<Match> best;
  for (const TeamSplit& split : candidates(file, members, given))
    if (std::optional<Match> match = matcher.match(split); match && (!best || match->rank() < best->rank()))
      best = std::move(match);
  if (!best || (!given.isNone() && given.members != members))
    return diags.error({.file = path, .node = asked.front().node})
               .exit(ExitCode::unsupported)
               .help("leave out --split, or the sharding_specs")
           << textOf(asked.front()) << ", --split=" << toText(given) << " does not";
  if (!best->weights.empty()) {
    const auto& [part, own] = best->weights.front();
    const std::string uneven = part->isEven ? "" : ", which do not divide it evenly";
    return diags.error({.file = path, .node = part->node})
               .exit(ExitCode::unsupported)
               .help("leave out the sharding_spec, or divide as --explain says of --split=" + toText(best->split))
           << textOf(*part) << uneven << "; --split=" << toText(best->split) << ", which is nearest, " << textOf(own);
  }
  tell(*best, path, diags);
  return best->split;
}
