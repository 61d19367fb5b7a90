// The passes of this room by name.
#include "Rooms.h"
#include "pdc/Transforms/Split.h"

#include <charconv>

using namespace pdc;

static Status split(PassContext& context) {
  SplitOptions options;
  for (const auto& [name, value] : context.options) {
    if (name == "all") {
      options.all = true;
      continue;
    }
    options.tokens |= name == "sp" || name == "ep" || name == "tps";
    options.experts |= name == "ep";
    options.weights |= name == "tps";
    const char* end = value.data() + value.size();
    const auto [at, problem] = std::from_chars(value.data(), end, options.members);
    if (problem != std::errc() || at != end || options.members < 2 || options.members > mostMembers)
      return context.diags.error({}) << "option " << name << " of pass 'split' needs a number of members from 2 to "
                                     << mostMembers << ", and not '" << value << "'";
  }
  return splitOverTeam(context, options);
}

void pdc::registerSplitPasses(PassRegistry& registry) {
  registry.add(
      {.argument = "split",
       .summary = "Divides the graphs over a team of devices",
       .description =
           "Adds to each graph, `@main` and `@evaluate`, what one member of the team runs: `@main.tp2`. Weights are "
           "split "
           "along the axes that pay for what the members must tell each other: heads of attention, hidden units of an "
           "MLP, channels between two convolutions. Everything else is computed by every member. Collectives stand "
           "where "
           "forms of values do not agree. Groups, phases, origins and names stay; a member's part of a value that is "
           "put together is called `%x.own`.\n\nWith `sp`, members have positions of sequences and whole weights, and "
           "some "
           "heads in attention. With `tps`, weights are split as with `tp`, and positions elsewhere: sums become "
           "`reduce_scatter`, and what reads all positions gathers them; a member's terms are then called `%x.made`. "
           "With `ep`, members have samples and experts.",
       .options = {{"tp", "how many members (2)"},
                   {"sp", "how many members, which divide the positions of sequences instead of weights"},
                   {"tps", "how many members, which divide weights, and positions between them"},
                   {"ep", "how many members, which divide samples, and the experts of the weights that have some"},
                   {"all", "divide every axis of a parameter, whether it pays or not"}},
       .run = split});
  registry.add({.argument = "hide-collectives",
                .summary = "Lets members compute while they communicate",
                .description =
                    "In graphs of teams a collective becomes `all_reduce_start`, which sends, and "
                    "`all_reduce_finish`, which waits. What does not need the result stands between them: of the same "
                    "group, the gradient of a weight beside the sum of the gradients of its operand; and the "
                    "gradients of weights that were made since the collective before. Where members divide experts, "
                    "products of other branches do, too, dealt to what brings tokens to experts and back by the "
                    "bytes, as the gradients of weights are. With `parts`, two members send "
                    "the first rows of a product while the others are computed.",
                .options = {{"parts", "make large terms of sums in parts, for programs for CPUs"}},
                .run = hideCollectives});
}
