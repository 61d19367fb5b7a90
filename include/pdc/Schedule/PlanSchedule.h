// From a plan to its verified schedule.
#pragma once

#include "pdc/Plan/Plan.h"
#include "pdc/Schedule/PipelineShape.h"

namespace pdc {

/// d_s of a stage with so many replicas: 1 if `plan` is a 1F1B pipeline with sync=overlap and the stage is replicated,
/// else 0.
int syncDelayFor(const Plan& plan, int replicas);

/// What travels between two stages for each minibatch.
struct EdgeTraffic {
  pdcrt::ScheduleEdge edge;
  std::int64_t forwardBytes = 0;
  std::int64_t backwardBytes = 0;
};

/// The edges of a plan, sorted by (from, to). A tensor goes from its producer to every stage that uses it; its gradient
/// goes from the last stage that has a part of it to the next earlier, which adds its own, and from the first to the
/// producer, or as plan.gradients says.
std::vector<EdgeTraffic> trafficOf(const Plan& plan);

PipelineShape shapeOf(const Plan& plan);

/// Whether w·R does not grow along any edge, from a stage to a later one, and every rank hosts one stage. The schedules
/// that the generators of 1F1B kind (PipelineShape.h) make of such a plan run to the end for every number of
/// minibatches, so nothing has to be executed:
///
/// Order all events by (b - w_s·R_s, s) for the forward of minibatch b in stage s, by (b, 2n - s) for its backward,
/// n = number of stages, smaller first. Whatever an event waits for comes before it in this order:
///   F_t(b)  waits for F_s(b), s < t: b - w_s·R_s <= b - w_t·R_t, and s < t
///           for B_t(b - (w_t + 1)·R_t), by its list: smaller by R_t, and all of an update before it likewise
///           for the send of b - (w_t + 1)·R_t to u, so for B_u of (w_u + 2)·R_u before that: smaller
///   B_s(b)  waits for F_s(b + w_s·R_s), by its list: (b, s) is before (b, 2n - s)
///           for B_t(b), t > s: 2n - t < 2n - s
///           for the send of b - 2·R_s, so for a backward that is smaller still
/// and transfers come right after the later of the posts at their ends, or after the transfer before them in a lane,
/// which is of a smaller minibatch. A version of shared parameters that F_t(b) needs is made after backwards of
/// minibatches below b - w_o·R_o <= b - w_t·R_t. Where the schedule flushes, order by batches first. Nothing waits for
/// itself then, and leaving actions out (drains) adds no reason to wait.
///
/// Where the backward is split (zb-h1), B_s(b) is the input gradient. A stage computes the weight gradients of local
/// minibatch j - lag right after the input gradients of j, and only then posts its receives into their buffers; there
/// are `lag` more of these, so every post is where it is without the split.
bool isSafeByOrder(const Plan& plan);

/// Whether the lists of the plan's schedule are few enough (ten million actions) to be built, checked and simulated.
bool canList(const Plan& plan);

/// Whether the plan's schedule runs to the end for every number of minibatches: by its order, else by execution.
Status checkRunnable(const Plan& plan, Diagnostics& diags);

/// The schedule of a plan, executed until it repeats itself before it is returned (for plans whose replica counts have
/// a very large common multiple, as far as a second or two allows, if isSafeByOrder). Reports an error with a table of
/// who waits for whom if it cannot run. The plan's ranks must host what the schedule places together.
Expected<pdcrt::Schedule> scheduleFor(const Plan& plan, Diagnostics& diags);

} // namespace pdc
