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
        (*part)->stage = each.stage;
        const auto other = std::ranges::find(parts, each.stage, &AskedPart::stage);
        if (other != parts.end() && other->members != (*part)->members)
          return diags.error({.file = path, .node = node.name})
                     .exit(ExitCode::unsupported)
                     .help("divide all tensors of a stage over teams of one size")
                 << "divides '" << spec.tensor << "' in " << (*part)->members << " parts, '" << other->node
                 << "' divides '" << other->tensor << "' in " << other->members;
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

/// What a file asks of some of its nodes: of a stage, or of all.
struct Asked {
  std::vector<AskedPart> parts;
  std::set<std::string> reads; ///< by these nodes
  std::set<std::string> makes; ///< in @main
};

class Matcher {
public:
  Matcher(PassContext& context, const DeviceAnnotations& file, const NodePlaces& places) : context_(context) {
    for (std::size_t i = 0; i < file.nodes.size(); ++i)
      if (!places.values[i].empty() && !file.nodes[i].outputs.empty())
        valueOf_[file.nodes[i].outputs.front()] = places.values[i];
  }

  /// Nothing where the split cannot divide the graph at all.
  std::optional<Match> match(const TeamSplit& split, const Asked& of) {
    const TeamParts* const parts = partsOf(split);
    if (!parts) return std::nullopt;
    const auto find = [](const auto& map, const std::string& name) {
      const auto found = map.find(name);
      return found == map.end() ? nullptr : &found->second;
    };
    Match match{.split = split, .weights = {}, .values = {}, .unasked = {}};
    std::set<std::string> named;
    for (const AskedPart& asked : of.parts) {
      named.insert(asked.tensor);
      const bool isWeight = context_.module.findParameter(asked.tensor) != nullptr;
      const std::string* value = find(valueOf_, asked.tensor);
      const TeamPart* part = isWeight ? find(parts->parameters, asked.tensor)
                             : value  ? find(parts->values, *value)
                                      : nullptr;
      if (!isWeight && !value)
        ++match.unknown;
      else if (!part || !isSame(asked, *part))
        (isWeight ? match.weights : match.values).emplace_back(&asked, part);
    }
    for (const auto& [name, part] : parts->parameters)
      if (!named.contains(name) && of.reads.contains(name)) match.unasked.push_back(name);
    return match;
  }

  /// Whether the split divides something that these nodes read or make.
  bool divides(const TeamSplit& split, const Asked& of) {
    const TeamParts* const parts = partsOf(split);
    const auto isOne = [](const std::set<std::string>& names) {
      return [&](const auto& part) { return names.contains(part.first); };
    };
    return parts && (std::ranges::any_of(parts->parameters, isOne(of.reads)) ||
                     std::ranges::any_of(parts->values, isOne(of.makes)));
  }

private:
  const TeamParts* partsOf(const TeamSplit& split) {
    auto& parts = parts_[toText(split)];
    if (!parts) {
      Diagnostics silent(nullptr);
      PassContext context{context_.module, context_.registry, silent, {}};
      parts = std::make_unique<Expected<TeamParts>>(partsOverTeam(context, optionsOf(split)));
    }
    return *parts ? &**parts : nullptr;
  }

  PassContext& context_;
  std::map<std::string, std::string> valueOf_;                        ///< in @main, by the name in the file
  std::map<std::string, std::unique_ptr<Expected<TeamParts>>> parts_; ///< by split; matches refer to them
};

} // namespace

/// The splits that pdc has written: one for all stages, or one for each. None where it has not.
static std::vector<TeamSplit> writtenSplits(const DeviceAnnotations& file) {
  const auto written = file.metadata.find("pdc.split");
  return written == file.metadata.end() ? std::vector<TeamSplit>()
                                        : teamSplitsFromText(written->second).value_or(std::vector<TeamSplit>());
}

/// What is tried, the likeliest first.
static std::vector<TeamSplit> candidates(const TeamSplit& written, int members, const TeamSplit& given) {
  if (!given.isNone()) return {given};
  std::vector<TeamSplit> splits;
  if (written.members == members) splits.push_back(written);
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

/// The split that divides like what is asked. `written`: what pdc has written of it, or none.
static Expected<TeamSplit> splitFor(Matcher& matcher, const std::string& path, const Asked& asked,
                                    const TeamSplit& written, const TeamSplit& given, Diagnostics& diags) {
  const AskedPart& first = asked.parts.front();
  const auto members = static_cast<int>(first.members);
  if (members > pdcrt::mostMembers)
    return diags.error({.file = path, .node = first.node}).exit(ExitCode::unsupported).help("divide over fewer devices")
           << textOf(first) << ", a team has at most " << pdcrt::mostMembers;
  std::optional<Match> best;
  for (const TeamSplit& split : candidates(written, members, given))
    if (std::optional<Match> match = matcher.match(split, asked); match && (!best || match->rank() < best->rank()))
      best = std::move(match);
  if (!best || (!given.isNone() && given.members != members))
    return diags.error({.file = path, .node = first.node})
               .exit(ExitCode::unsupported)
               .help("leave out --split, or the sharding_specs")
           << textOf(first) << ", --split=" << toText(given) << " does not";
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

/// What is asked of each stage, by its number; with one number for all where not every part has one.
static std::map<std::int32_t, Asked> askedOfStages(const DeviceAnnotations& file, const std::string& configuration,
                                                   const NodePlaces& places, const std::vector<AskedPart>& asked,
                                                   bool alike) {
  std::map<std::int32_t, Asked> stages;
  alike = alike || std::ranges::any_of(asked, [](const AskedPart& part) { return !part.stage; });
  for (const AskedPart& part : asked) stages[alike ? 0 : *part.stage].parts.push_back(part);
  for (std::size_t i = 0; i < file.nodes.size(); ++i) {
    const AnnotatedNode& node = file.nodes[i];
    std::optional<std::int32_t> stage;
    for (const NodeConfiguration& each : node.configurations)
      if (each.configuration == configuration) stage = each.stage;
    if (alike) stage = 0;
    if (!stage || (places.groups[i].empty() && !stages.contains(*stage))) continue;
    stages[*stage].reads.insert(node.inputs.begin(), node.inputs.end());
    stages[*stage].makes.insert(places.values[i]);
  }
  return stages;
}

Expected<std::vector<TeamSplit>> pdc::splitsFor(PassContext& context, const std::string& path,
                                                const DeviceAnnotations& file, const std::string& configuration,
                                                const NodePlaces& places, const std::vector<AskedPart>& asked,
                                                const TeamSplit& given) {
  const std::vector<TeamSplit> written = writtenSplits(file);
  const std::map<std::int32_t, Asked> stages =
      askedOfStages(file, configuration, places, asked, !given.isNone() || written.size() == 1);
  Matcher matcher(context, file, places);
  std::vector<TeamSplit> splits;
  for (const auto& [stage, of] : stages) {
    const TeamSplit own = written.size() == stages.size() ? written[splits.size()] : TeamSplit();
    const Expected<TeamSplit> split =
        of.parts.empty() ? TeamSplit() : splitFor(matcher, path, of, own, given, context.diags);
    if (!split) return failure;
    splits.push_back(*split);
  }
  std::set<std::string> kinds;
  for (const TeamSplit& split : splits)
    if (!split.isNone()) kinds.insert(toText(split));
  if (kinds.size() == 1) {
    const TeamSplit one = *std::ranges::find_if(splits, [](const TeamSplit& split) { return !split.isNone(); });
    const bool isOfAll = std::ranges::all_of(
        stages, [&](const auto& stage) { return !stage.second.parts.empty() || !matcher.divides(one, stage.second); });
    if (isOfAll) return std::vector{one};
  }
  return splits;
}
