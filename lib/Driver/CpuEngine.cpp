// Generates, builds, loads and calls one-stage programs.
#include "pdc/Driver/CpuEngine.h"

#include "OutputFolder.h"
#include "pdc/CodeGen/StageEmitter.h"
#include "pdc/Driver/Toolchain.h"
#include "pdcrt/FilterBlocks.h"
#include "pdcrt/MappedFile.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

using namespace pdc;

namespace {

/// A zeroed block of memory, aligned as the arena of a rank is.
class AlignedBlock {
public:
  explicit AlignedBlock(std::size_t bytes) {
    const std::size_t size = (bytes + 63) / 64 * 64 + 64;
    bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(64, size)));
    std::memset(bytes_.get(), 0, size);
  }
  std::byte* data() const { return bytes_.get(); }

private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

pdcrt::Shape filterShape(const Type& type) {
  return {type.shape[0], type.shape[1], type.shape[2], type.shape[3]};
}

/// The value of this type that lies at `data`, in row-major order.
Tensor tensorAt(const std::byte* data, const Type& type) {
  const Type rowMajor{type.element, type.shape};
  if (type.layout == plain) return Tensor(rowMajor, {data, static_cast<std::size_t>(type.bytes())});
  if (type.layout == filterInBlocks) {
    std::vector<std::byte> bytes(data, data + type.bytes());
    static_cast<void>(pdcrt::fromFilterBlocks(filterShape(type), bytes)); // the verifier knows that it fits
    return Tensor(rowMajor, bytes);
  }
  const std::size_t size = pdcrt::bytesOf(type.element);
  const auto block = static_cast<std::size_t>(channelBlock);
  const auto outer = static_cast<std::size_t>(type.shape[0] * type.shape[1]) / block;
  const auto plane = static_cast<std::size_t>(type.shape[2] * type.shape[3]);
  std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()));
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t p = 0; p < plane; ++p)
      for (std::size_t lane = 0; lane < block; ++lane)
        std::memcpy(&bytes[((o * block + lane) * plane + p) * size], data + ((o * plane + p) * block + lane) * size,
                    size);
  return Tensor(rowMajor, bytes);
}

std::string projectText(const CpuEngineOptions& options) {
  return R"(cmake_minimum_required(VERSION 3.25)
project(engine LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_BUILD_TYPE Release)
set(CMAKE_CXX_FLAGS_RELEASE ")" +
         options.optimization + R"( -ffp-contract=off -fno-trapping-math")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE )" +
         std::to_string(options.filesPerUnit) + R"()
find_package(pdcrt REQUIRED)
file(GLOB stages ${CMAKE_CURRENT_SOURCE_DIR}/stage*.cpp)
add_library(engine MODULE engine.cpp ${stages})
target_link_libraries(engine PRIVATE pdcrt::pdcrt_kernels)
)";
}

/// A function that returns the stages by number, and one that says how many threads the library's kernels have from
/// now on in the thread that calls it: whoever loads the library has another pdcrt::kernelThreads.
std::string engineSource(std::size_t count) {
  std::string text = "#include \"pdcrt/Stage.h\"\n#include \"pdcrt/Threads.h\"\n"
                     "extern \"C\" void pdcEngineThreads(int threads) { pdcrt::kernelThreads = threads; }\n";
  for (std::size_t i = 0; i < count; ++i)
    text += "namespace stage" + std::to_string(i) + " { extern const pdcrt::Stage stage; }\n";
  text += "extern \"C\" const pdcrt::Stage* pdcEngineStage(int i) {\n  switch (i) {\n";
  for (std::size_t i = 0; i < count; ++i)
    text += "  case " + std::to_string(i) + ": return &stage" + std::to_string(i) + "::stage;\n";
  return text + "  }\n  return nullptr;\n}\n";
}

Status writeFile(const std::string& path, const std::string& text, Diagnostics& diags) {
  if (pdcrt::Status status = pdcrt::writeAtomically(path, text); !status) return reportFile(status, path, diags);
  return success;
}

} // namespace

struct CpuEngine::Impl {
  explicit Impl(TemporaryFolder f) : folder(std::move(f)) {}
  ~Impl() {
    if (library) dlclose(library);
  }

  struct Program {
    const Graph* graph = nullptr;
    MemoryPlan memory;
    const pdcrt::Stage* stage = nullptr;
  };

  TemporaryFolder folder;
  void* library = nullptr;
  void (*setThreads)(int) = nullptr;
  std::vector<Program> programs;
};

CpuEngine::CpuEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CpuEngine::~CpuEngine() = default;

Expected<std::unique_ptr<CpuEngine>> CpuEngine::build(const std::vector<const Module*>& modules, Diagnostics& diags,
                                                      const CpuEngineOptions& options) {
  Expected<TemporaryFolder> folder = TemporaryFolder::create(diags);
  if (!folder) return failure;
  auto impl = std::make_unique<Impl>(std::move(*folder));
  const std::string& path = impl->folder.path();
  for (const Module* module : modules) {
    const int index = static_cast<int>(impl->programs.size());
    const Graph* graph = module->findGraph("main");
    Expected<MemoryPlan> memory =
        planMemory(*graph, nullptr, {.stage = index, .keepResults = true, .threads = options.threads}, diags);
    if (!memory) return failure;
    impl->programs.push_back({graph, std::move(*memory), nullptr});
    const StageProgram program{.index = index,
                               .count = static_cast<int>(modules.size()),
                               .training = graph,
                               .memory = &impl->programs.back().memory};
    Expected<std::string> source = emitStage(program, {"", "pdc-eval", module->name, ""}, diags);
    if (!source || !writeFile(path + "/stage" + std::to_string(index) + ".cpp", *source, diags)) return failure;
  }
  if (!writeFile(path + "/engine.cpp", engineSource(modules.size()), diags) ||
      !writeFile(path + "/CMakeLists.txt", projectText(options), diags) || !buildProject(path, "out", {}, diags))
    return failure;
  impl->library = dlopen((path + "/out/libengine.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!impl->library)
    return diags.error({}).exit(ExitCode::internal) << "the generated program cannot be loaded: " << dlerror();
  using StageFunction = const pdcrt::Stage* (*)(int);
  auto stageOf = reinterpret_cast<StageFunction>(dlsym(impl->library, "pdcEngineStage"));
  impl->setThreads = reinterpret_cast<void (*)(int)>(dlsym(impl->library, "pdcEngineThreads"));
  for (std::size_t i = 0; i < impl->programs.size(); ++i) impl->programs[i].stage = stageOf(static_cast<int>(i));
  return std::unique_ptr<CpuEngine>(new CpuEngine(std::move(impl)));
}

Expected<InterpreterResult> CpuEngine::run(std::size_t which, const std::map<std::string, Tensor>& inputs,
                                           const std::map<std::string, Tensor>& parameters, Diagnostics& diags,
                                           std::uint64_t seed, std::uint64_t minibatch) const {
  const Impl::Program& program = impl_->programs[which];
  const pdcrt::Stage& stage = *program.stage;
  const AlignedBlock weights(stage.bytes.weights), frozen(stage.bytes.frozen), state(stage.bytes.state),
      gradients(stage.bytes.gradients), slot(stage.bytes.slot), handover(stage.bytes.handover),
      scratch(stage.bytes.scratch), workspace(stage.bytes.workspace);

  auto fill = [&](const std::map<std::string, Tensor>& tensors, const std::string& name, const Type& type,
                  std::byte* to) -> Status {
    auto it = tensors.find(name);
    if (it == tensors.end()) return diags.error({}) << "there is no value for '" << name << "'";
    if (it->second.shape() != type.shape)
      return diags.error({}) << "the value of '" << name << "' has shape " << toString(it->second.shape())
                             << ", the model has " << toString(type.shape);
    const Tensor converted = it->second.convertedTo(type.element);
    std::memcpy(to, converted.bytes().data(), converted.bytes().size());
    if (type.layout == filterInBlocks)
      static_cast<void>(pdcrt::toFilterBlocks(filterShape(type), {to, converted.bytes().size()}));
    return success;
  };
  for (const PlacedParameter& p : program.memory.parameters)
    if (std::byte* block = (blockOf(*p.parameter) == Block::frozen ? frozen : weights).data();
        !fill(parameters, p.parameter->name, p.type, block + p.offset))
      return failure;
  for (const PlacedParameter& p : program.memory.states)
    if (!fill(parameters, p.parameter->name, p.type, state.data() + p.offset)) return failure;
  for (const PlacedData& d : program.memory.data)
    if (!fill(inputs, d.value->name(), d.value->type(), slot.data() + d.offset)) return failure;

  impl_->setThreads(stage.threads);
  pdcrt::Setup setup;
  const std::shared_ptr<const void> kernels = stage.buildKernels(setup);
  pdcrt::Stream stream(workspace.data(), stage.bytes.workspace);
  const pdcrt::Call call{.kernels = kernels.get(),
                         .weights = weights.data(),
                         .state = state.data(),
                         .gradients = gradients.data(),
                         .handover = handover.data(),
                         .scratch = scratch.data(),
                         .frame = {slot.data(), nullptr},
                         .draw = {seed, minibatch},
                         .stream = &stream,
                         .frozen = frozen.data()};
  stage.forward(call);
  stage.backwardInput(call);
  stage.backwardWeight(call);

  InterpreterResult result;
  for (const PlacedOutput& output : program.memory.outputs) {
    const Tensor tensor = tensorAt(slot.data() + output.offset, output.value->type());
    result.values[output.value->name()] = tensor;
    if (output.kind == OutputKind::loss) result.loss += tensor.asDouble(0);
  }
  for (const GraphOutput& output : program.graph->outputs)
    if (output.kind == OutputKind::result) result.outputs[output.name] = result.values[output.value->name()];
  for (const PlacedGradient& g : program.memory.gradients) {
    const PlacedParameter& placed = program.memory.parameters[static_cast<std::size_t>(g.parameter)];
    Tensor gradient = tensorAt(gradients.data() + g.offset, placed.type);
    auto [it, isNew] = result.gradients.try_emplace(placed.parameter->name, gradient);
    if (!isNew) // a further use
      for (std::int64_t i = 0; i < gradient.elements(); ++i)
        it->second.set(i, static_cast<float>(it->second.asDouble(i)) + static_cast<float>(gradient.asDouble(i)));
  }
  for (const GraphOutput& output : program.graph->outputs)
    if (output.kind == OutputKind::state)
      for (const PlacedParameter& p : program.memory.states)
        if (p.parameter == output.parameter)
          result.states[p.parameter->name] = tensorAt(state.data() + p.offset, p.type);
  return result;
}
