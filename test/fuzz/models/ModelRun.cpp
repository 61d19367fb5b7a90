#include "ModelRun.h"

#include "ThreadRun.h"
#include "pdc/Analysis/Profile.h"
#include "pdc/CodeGen/StageEmitter.h"
#include "pdc/Cost/CostModel.h"
#include "pdc/Driver/Toolchain.h"
#include "pdc/IR/SharedParameters.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Schedule/PlanSchedule.h"
#include "pdc/Stage/StagePasses.h"
#include "pdc/Transforms/Transforms.h"
#include "pdcrt/FilterBlocks.h"
#include "pdcrt/MappedFile.h"

#include <algorithm>
#include <dlfcn.h>
#include <mutex>
#include <random>
#include <set>
#include <sstream>

using namespace pdc;
using namespace pdc::testing;

namespace {

int groupsOf(const Graph& graph) {
  int groups = 0;
  for (const auto& operation : graph.operations()) groups = std::max(groups, operation->group + 1);
  return groups;
}

/// Moves groups to later stages until the plan is legal: no value goes backwards, and colours are together.
void makeLegal(const CostGraph& costs, std::vector<int>& stageOf) {
  for (bool again = true; again;) {
    again = false;
    auto raise = [&](std::int64_t node, int to) {
      int& stage = stageOf[static_cast<std::size_t>(node)];
      if (stage < to) stage = to, again = true;
    };
    std::map<std::int64_t, int> colours;
    for (std::size_t v = 0; v < stageOf.size(); ++v)
      if (const std::int64_t colour = costs.nodes[v].colour; colour >= 0)
        colours[colour] = std::max(colours[colour], stageOf[v]);
    for (std::size_t v = 0; v < stageOf.size(); ++v)
      if (const std::int64_t colour = costs.nodes[v].colour; colour >= 0)
        raise(static_cast<std::int64_t>(v), colours[colour]);
    for (const CostTensor& tensor : costs.tensors)
      for (std::int64_t to : tensor.to) raise(to, stageOf[static_cast<std::size_t>(tensor.from)]);
  }
}

/// Stages of the groups, without empty ones: intervals of groups, or any that are legal.
std::vector<int> randomCut(const CostGraph& costs, int stages, std::mt19937_64& random) {
  const auto groups = static_cast<int>(costs.nodes.size());
  std::vector<int> stageOf(costs.nodes.size());
  if (random() % 2 == 0) {
    std::vector<int> begins; // of stages 1, 2, …
    for (int group = 1; group < groups; ++group) begins.push_back(group);
    std::shuffle(begins.begin(), begins.end(), random);
    begins.resize(std::min(begins.size(), static_cast<std::size_t>(stages - 1)));
    for (int group = 0; group < groups; ++group)
      for (int begin : begins) stageOf[static_cast<std::size_t>(group)] += group >= begin;
  } else {
    for (int& stage : stageOf) stage = static_cast<int>(random() % static_cast<std::uint64_t>(stages));
  }
  makeLegal(costs, stageOf);
  const std::set<int> used(stageOf.begin(), stageOf.end());
  for (int& stage : stageOf) stage = static_cast<int>(std::distance(used.begin(), used.find(stage)));
  return stageOf;
}

/// What the planner is told of the model. Nothing takes any time.
Expected<CostGraph> costsOf(const Graph& main, Diagnostics& diags) {
  Profile profile;
  profile.groups.resize(static_cast<std::size_t>(groupsOf(main)));
  return costGraphOf(main, "random", profile, {}, diags);
}

/// Bytes between two stages; -1: there is no edge in that direction.
struct Bytes {
  std::int64_t forward = -1, backward = -1;
  bool operator==(const Bytes&) const = default;
};
using Traffic = std::map<std::pair<int, int>, Bytes>;

Traffic plannedTraffic(const CostGraph& costs, const std::vector<int>& stageOf) {
  Partition partition;
  for (std::size_t v = 0; v < stageOf.size(); ++v) {
    partition.stages.resize(std::max(partition.stages.size(), static_cast<std::size_t>(stageOf[v]) + 1));
    partition.stages[static_cast<std::size_t>(stageOf[v])].nodes.push_back(static_cast<std::int64_t>(v));
  }
  Cluster cluster;
  cluster.levels = {
      {.name = "machine", .count = static_cast<std::int64_t>(partition.stages.size()), .bandwidthBytesPerS = 1e9}};
  cluster.device = {.name = "cpu", .memoryBytes = std::int64_t{1} << 40};
  Traffic traffic;
  for (const EdgeTraffic& edge : trafficOf(describePartition(costs, cluster, {}, partition, false)))
    traffic[{edge.edge.from, edge.edge.to}] = {edge.edge.forward ? edge.forwardBytes : -1,
                                               edge.edge.backward ? edge.backwardBytes : -1};
  return traffic;
}

Traffic sentTraffic(const std::vector<StageGraphs>& stages) {
  Traffic traffic;
  for (const StageGraphs& stage : stages)
    for (const GraphOutput& output : stage.training->outputs) {
      if (output.kind != OutputKind::sent) continue;
      const auto [low, high] = std::minmax(stage.stage, output.peer);
      std::int64_t& bytes = output.isGradient ? traffic[{low, high}].backward : traffic[{low, high}].forward;
      bytes = std::max<std::int64_t>(bytes, 0) + output.value->type().bytes();
    }
  return traffic;
}

/// Differences, a line each.
std::string differences(const Traffic& planned, const Traffic& sent) {
  std::set<std::pair<int, int>> edges;
  for (const Traffic* traffic : {&planned, &sent})
    for (const auto& [ends, bytes] : *traffic) edges.insert(ends);
  std::string text;
  auto textOf = [](std::int64_t bytes) { return bytes < 0 ? std::string("nothing") : std::to_string(bytes); };
  for (const auto& ends : edges) {
    auto at = [&](const Traffic& traffic) { return traffic.contains(ends) ? traffic.at(ends) : Bytes{}; };
    const Bytes a = at(planned), b = at(sent);
    const std::string lower = std::to_string(ends.first), upper = std::to_string(ends.second);
    if (a.forward != b.forward)
      text += "values " + lower + ">" + upper + ": " + textOf(a.forward) + " planned, " + textOf(b.forward) + " sent\n";
    if (a.backward != b.backward)
      text += "gradients " + upper + ">" + lower + ": " + textOf(a.backward) + " planned, " + textOf(b.backward) +
              " sent\n";
  }
  return text;
}

std::vector<pdcrt::ScheduleEdge> edgesOf(const std::vector<MemoryPlan>& memories) {
  std::map<std::pair<int, int>, pdcrt::ScheduleEdge> edges;
  for (const MemoryPlan& memory : memories)
    for (const pdcrt::EdgeRow& row : memory.edges) {
      const auto [low, high] = std::minmax(row.from, row.to);
      auto [edge, isNew] = edges.try_emplace(
          {low, high}, pdcrt::ScheduleEdge{.from = low, .to = high, .backward = false, .forward = false});
      (row.direction == pdcrt::Direction::forward ? edge->second.forward : edge->second.backward) = true;
    }
  std::vector<pdcrt::ScheduleEdge> list;
  for (const auto& [ends, edge] : edges) list.push_back(edge);
  return list;
}

PipelineShape randomShape(const std::vector<MemoryPlan>& memories, std::mt19937_64& random) {
  static const char* const kinds[] = {"1f1b-flush", "gpipe", "zb-h1"};
  PipelineShape shape;
  shape.kind = kinds[random() % std::size(kinds)];
  shape.microbatches = dataMinibatches;
  const int stages = static_cast<int>(memories.size());
  for (int s = 0; s < stages; ++s) shape.stages.push_back({.warmup = stages - 1 - s});
  shape.edges = edgesOf(memories);
  for (const MemoryPlan& memory : memories)
    for (const pdcrt::SharedRow& row : memory.shared) shape.shared.emplace_back(row.owner, row.user);
  std::sort(shape.shared.begin(), shape.shared.end());
  shape.shared.erase(std::unique(shape.shared.begin(), shape.shared.end()), shape.shared.end());
  return shape;
}

Status runPasses(PassContext& context) {
  for (auto pass : {canonicalize, raise, orderBranches, differentiate, fuse, addEvaluation, chooseLayouts})
    if (!pass(context) || !verify(context.module, context.diags)) return failure;
  return success;
}

} // namespace

Expected<Cut> pdc::testing::cutModel(const RandomModel& model, int stages, Diagnostics& diags, std::uint64_t variant) {
  std::mt19937_64 random(model.seed + 1000003 * variant);
  Cut cut;
  auto module = parseModule(model.text, "random", allOps(), diags);
  if (!module) return failure;
  cut.module = *std::move(module);
  PassContext context{*cut.module, allOps(), diags, {}};
  if (!runPasses(context)) return failure;
  const Graph& main = *cut.module->findGraph("main");
  const auto costs = costsOf(main, diags);
  if (!costs) return failure;
  const std::vector<int> stageOf = randomCut(*costs, stages, random);
  const auto graphs = splitStages(context, stageOf);
  if (!graphs || !verify(*cut.module, diags)) return failure;
  cut.misplanned = differences(plannedTraffic(*costs, stageOf), sentTraffic(*graphs));
  for (const StageGraphs& stage : *graphs)
    if (stages > 1 && random() % 4 == 0)
      recomputeForward(*stage.training);
    else if (stages > 1 && !computeAgain(context, *stage.training, {.share = 1, .leastBytes = 0}))
      return failure;
  if (!verify(*cut.module, diags)) return failure;
  const std::vector<SharedParameter> shared = sharedParameters(main, stageOf);
  for (const StageGraphs& stage : *graphs) {
    auto memory = planMemory(*stage.training, nullptr, {.stage = stage.stage, .shared = shared}, diags);
    if (!memory) return failure;
    cut.memories.push_back(*std::move(memory));
  }
  for (std::size_t s = 0; s < graphs->size(); ++s) {
    auto source = emitStage({.index = static_cast<int>(s),
                             .count = static_cast<int>(graphs->size()),
                             .training = (*graphs)[s].training,
                             .memory = &cut.memories[s]},
                            {"", "fuzz-models", cut.module->name, ""}, diags);
    if (!source) return failure;
    cut.sources.push_back(*std::move(source));
  }
  cut.shape = randomShape(cut.memories, random);
  return cut;
}

namespace {

constexpr std::size_t cutsPerUnit = 25;

std::string projectText() {
  return R"(cmake_minimum_required(VERSION 3.25)
project(models LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_BUILD_TYPE Release)
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -ffp-contract=off")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
find_package(pdcrt REQUIRED)
file(GLOB units ${CMAKE_CURRENT_SOURCE_DIR}/unit*.cpp)
add_library(models MODULE ${units})
target_link_libraries(models PRIVATE pdcrt::pdcrt_kernels)
)";
}

/// Programs side by side, each in a namespace of its own, after the headers of all.
std::string unitText(const std::vector<const Cut*>& cuts, std::size_t begin, std::size_t end) {
  std::set<std::string> headers;
  std::string body, list;
  for (std::size_t i = begin; i < end; ++i) {
    const std::string space = "model" + std::to_string(i);
    body += "namespace " + space + " {\n";
    for (const std::string& source : cuts[i]->sources) {
      std::istringstream lines(source);
      for (std::string line; std::getline(lines, line);)
        if (line.starts_with("#include"))
          headers.insert(line);
        else
          body += line + "\n";
    }
    body += "}\n";
    for (std::size_t s = 0; s < cuts[i]->sources.size(); ++s)
      list += "    &" + space + "::stage" + std::to_string(s) + "::stage,\n";
  }
  std::string text;
  for (const std::string& header : headers) text += header + "\n";
  return text + body + "extern \"C\" const pdcrt::Stage* const pdcStages" + std::to_string(begin / cutsPerUnit) +
         "[] = {\n" + list + "};\n";
}

/// Data, initial values, and what the observer hears.
class Feed : public pdcrt::BatchSource, public pdcrt::RunObserver {
public:
  explicit Feed(const RandomModel& model) : model_(model) {}
  pdcrt::Status read(const pdcrt::DataRow& row, std::int64_t minibatch, std::byte* destination) override {
    return copy(model_.inputs[static_cast<std::size_t>(minibatch % dataMinibatches)].at(row.name), destination);
  }
  pdcrt::Status readWeights(const char* name, std::byte* destination) const {
    return copy(model_.parameters.at(name), destination);
  }
  void loss(int, std::int64_t minibatch, double value) override {
    const std::lock_guard lock(mutex_);
    if (minibatch < dataMinibatches) sum += value;
  }
  double sum = 0;

private:
  static pdcrt::Status copy(const Tensor& tensor, std::byte* destination) {
    std::copy(tensor.bytes().begin(), tensor.bytes().end(), destination);
    return {};
  }
  const RandomModel& model_;
  std::mutex mutex_;
};

/// What a table's row describes, in row-major order, of a block.
template <class Row>
Tensor tensorOf(const Row& row, const std::byte* block) {
  const Type type{row.element, {row.shape.dims, row.shape.dims + row.shape.rank}};
  std::vector<std::byte> bytes(block + row.offset, block + row.offset + type.bytes());
  if constexpr (requires { row.inBlocks; })
    if (row.inBlocks && !pdcrt::fromFilterBlocks(row.shape, bytes)) std::abort();
  return Tensor(type, bytes);
}

} // namespace

struct Programs::Impl {
  explicit Impl(TemporaryFolder f) : folder(std::move(f)) {}
  ~Impl() {
    if (library) dlclose(library);
  }
  TemporaryFolder folder;
  void* library = nullptr;
  std::vector<const Cut*> cuts;
  std::vector<std::vector<const pdcrt::Stage*>> stages;
};

Programs::Programs(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Programs::~Programs() = default;

Expected<std::unique_ptr<Programs>> Programs::build(const std::vector<const Cut*>& cuts, Diagnostics& diags) {
  auto folder = TemporaryFolder::create(diags);
  if (!folder) return failure;
  auto impl = std::make_unique<Impl>(*std::move(folder));
  const std::string& path = impl->folder.path();
  auto write = [&](const std::string& name, const std::string& text) -> Status {
    if (pdcrt::Status status = pdcrt::writeAtomically(path + "/" + name, text); !status)
      return diags.error({.file = path}) << status.message();
    return success;
  };
  for (std::size_t begin = 0; begin < cuts.size(); begin += cutsPerUnit)
    if (!write("unit" + std::to_string(begin / cutsPerUnit) + ".cpp",
               unitText(cuts, begin, std::min(begin + cutsPerUnit, cuts.size()))))
      return failure;
  if (!write("CMakeLists.txt", projectText()) || !buildProject(path, "out", {}, diags)) return failure;
  impl->library = dlopen((path + "/out/libmodels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!impl->library) return diags.error({.file = path}) << "cannot be loaded: " << dlerror();
  impl->cuts = cuts;
  const pdcrt::Stage* const* next = nullptr;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (i % cutsPerUnit == 0)
      next = static_cast<const pdcrt::Stage* const*>(
          dlsym(impl->library, ("pdcStages" + std::to_string(i / cutsPerUnit)).c_str()));
    impl->stages.emplace_back(next, next + cuts[i]->sources.size());
    next += cuts[i]->sources.size();
  }
  return std::unique_ptr<Programs>(new Programs(std::move(impl)));
}

Trained Programs::train(std::size_t which, const RandomModel& model) const {
  Trained trained;
  const pdcrt::Schedule schedule = buildSchedule(impl_->cuts[which]->shape);
  Feed feed(model);
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = impl_->stages[which];
  run.training.optimizer = pdcrt::OptimizerKind::momentum; // whose state after one update is the gradient
  run.training.momentum = 0.5;
  run.training.learningRate = learningRate;
  run.training.seed = drawSeed;
  run.data = &feed;
  run.observer = [&](int) { return &feed; };
  run.readWeights = [&](const char* name, pdcrt::Element, const pdcrt::Shape&, std::span<std::byte> destination,
                        const pdcrt::MemberPart&) { return feed.readWeights(name, destination.data()); };
  std::mutex mutex;
  auto remember = [&](const pdcrt::Executor& executor) {
    const std::lock_guard lock(mutex);
    for (const pdcrt::HostedStage& hosted : executor.hosted()) {
      for (const pdcrt::ParameterRow& row : hosted.stage->parameters)
        if (row.trained) trained.gradients[row.name] = tensorOf(row, hosted.optimizerState);
      for (const pdcrt::StateRow& row : hosted.stage->states) trained.states[row.name] = tensorOf(row, hosted.state);
    }
  };
  const bool good = run.run([&](pdcrt::Executor& executor, int) {
    if (pdcrt::Status status = executor.train(0, dataMinibatches); !status) return status;
    remember(executor);
    return executor.train(dataMinibatches, dataMinibatches);
  });
  for (const pdcrt::Status& status : run.statuses)
    if (!status && trained.error.empty()) trained.error = status.message();
  trained.loss = feed.sum;
  if (!good) return trained;
  for (std::size_t s = 0; s < run.stages.size(); ++s) {
    const std::byte* weights = run.weights(static_cast<int>(s), 0);
    const std::byte* frozen = run.hosted(static_cast<int>(s), 0).frozen;
    for (const pdcrt::ParameterRow& row : run.stages[s]->parameters)
      trained.weights[row.name] = tensorOf(row, row.trained ? weights : frozen);
    for (const pdcrt::StateRow& row : run.stages[s]->states)
      trained.weights[row.name] = tensorOf(row, run.hosted(static_cast<int>(s), 0).state);
  }
  return trained;
}
