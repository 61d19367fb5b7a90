// The stages of LinearStages.h, computed by teams: each member adds up its own share of the columns of x, and of the
// columns of the output's gradient, and sums over the team make the rest. The bias is added in the sum. All members
// have whole parameters, and the same gradients. A team of one is the stage itself.
#pragma once

#include "LinearStages.h"

#include "pdcrt/kernels/TeamReduce.h"

#include <memory>

namespace linear {

template <int Index, int Count, int Members, bool Tied = false>
struct TeamStage {
  using Alone = LinearStage<Index, Count, Tied>;

  struct Kernels {
    explicit Kernels(Setup& setup)
        : outputs(setup, {.operand = valueShape, .members = Members, .addedAxis = 1}),
          gradients(setup, {.operand = valueShape, .members = Members}) {}
    TeamReduce outputs, gradients;
  };
  // In the scratch: the member's terms, and what arrives.
  static constexpr std::size_t termsAt = 0, arrivedAt = 2 * block, scratchBytes = 8 * block;
  static const Kernels& kernels(const Call& c) { return *static_cast<const Kernels*>(c.kernels); }

  /// The columns of a member: as equal shares as there are.
  static int columnOf(int member) { return static_cast<int>(width) * member / Members; }

  static void compute(const Call& c) {
    const float *x = Alone::input(c), *w = Alone::at(c.weights, weightAt), *g = Alone::gain(c);
    float *h = Alone::at(c.frame.slot, hiddenAt), *y = Alone::at(c.frame.slot, outAt);
    float *terms = Alone::at(c.scratch, termsAt), *arrived = Alone::at(c.scratch, arrivedAt);
    const int member = c.stream->member();
    for (int r = 0; r < batch; ++r)
      for (int j = 0; j < width; ++j) {
        float sum = 0;
        for (int i = columnOf(member); i < columnOf(member + 1); ++i) sum += x[r * width + i] * w[i * width + j];
        terms[r * width + j] = sum;
      }
    kernels(c).outputs.start(*c.stream, View<const float>(terms), View<float>(arrived));
    kernels(c).outputs.finish(*c.stream, View<const float>(terms), View<float>(arrived), View<const float>(g),
                              View<float>(h));
    for (int i = 0; i < batch * width; ++i) {
      h[i] = std::tanh(h[i]);
      y[i] = g[i % width] * h[i];
    }
  }

  static void forward(const Call& c) {
    if (forwardTime.count()) std::this_thread::sleep_for(forwardTime);
    c.stream->group(Index);
    compute(c);
    Alone::observe(c);
  }

  static void backwardInput(const Call& c) {
    c.stream->group(Index);
    Alone::differentiate(c);
    if (Alone::first) return;
    const float *w = Alone::at(c.weights, weightAt), *inner = Alone::at(c.handover, 0);
    float *terms = Alone::at(c.scratch, termsAt), *arrived = Alone::at(c.scratch, arrivedAt);
    const int member = c.stream->member();
    for (int r = 0; r < batch; ++r)
      for (int i = 0; i < width; ++i) {
        float sum = 0;
        for (int j = columnOf(member); j < columnOf(member + 1); ++j) sum += inner[r * width + j] * w[i * width + j];
        terms[r * width + i] = sum;
      }
    kernels(c).gradients.start(*c.stream, View<const float>(terms), View<float>(arrived));
    kernels(c).gradients.finish(*c.stream, View<const float>(terms), View<float>(arrived), {},
                                View<float>(Alone::at(c.frame.edges[Alone::gradientToLeft], 0)));
  }

  static const Stage& stage() {
    static const Stage team = [] {
      Stage made = Alone::stage;
      if (Members == 1) return made;
      made.members = Members;
      made.bytes.scratch = scratchBytes;
      made.buildKernels = [](Setup& setup) -> std::shared_ptr<const void> {
        return std::make_shared<const Kernels>(setup);
      };
      made.forward = forward;
      made.backwardInput = backwardInput;
      made.evaluate = compute;
      return made;
    }();
    return team;
  }
};

/// The stage `Index` of `Count` for a team of 1 to 4.
template <int Index, int Count, bool Tied>
const Stage* teamStage(int members) {
  switch (members) {
  case 1: return &TeamStage<Index, Count, 1, Tied>::stage();
  case 2: return &TeamStage<Index, Count, 2, Tied>::stage();
  case 3: return &TeamStage<Index, Count, 3, Tied>::stage();
  default: return &TeamStage<Index, Count, 4, Tied>::stage();
  }
}

/// The model in as many stages as there are teams: one or two.
inline std::vector<const Stage*> teamStages(const std::vector<int>& teams, bool tied = false) {
  if (teams.size() == 1) return {teamStage<0, 1, false>(teams[0])};
  if (tied) return {teamStage<0, 2, true>(teams[0]), teamStage<1, 2, true>(teams[1])};
  return {teamStage<0, 2, false>(teams[0]), teamStage<1, 2, false>(teams[1])};
}

} // namespace linear
