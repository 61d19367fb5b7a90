// Build files of a folder of stage programs.
#include "pdc/CodeGen/BuildFiles.h"

#include "pdc/CodeGen/Naming.h"
#include "pdcrt/DataFile.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

using namespace pdc;

namespace {

/// Stages that `rank` hosts, ascending, each once.
std::set<int> stagesOf(const PlanRank& rank) {
  std::set<int> stages;
  for (const PlanRank::Host& host : rank.hosts) stages.insert(host.stage);
  return stages;
}

/// The kinds of ranks: sets of stages in order of the first rank that hosts them, with the name of their executable.
std::vector<std::pair<std::string, std::set<int>>> rankKinds(const Plan& plan) {
  std::vector<std::pair<std::string, std::set<int>>> kinds;
  for (const PlanRank& rank : plan.ranks) {
    std::set<int> stages = stagesOf(rank);
    bool known = false;
    for (const auto& kind : kinds) known = known || kind.second == stages;
    if (!known)
      kinds.emplace_back(stages.size() == 1 ? "stage" + std::to_string(*stages.begin())
                                            : "rank" + std::to_string(rank.rank),
                         std::move(stages));
  }
  return kinds;
}

std::string stageList(const std::set<int>& stages, const std::string& separator) {
  std::string text;
  for (int stage : stages) text += (text.empty() ? "" : separator) + "&stage" + std::to_string(stage) + "::stage";
  return text;
}

std::set<int> allStages(const Plan& plan) {
  std::set<int> stages;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) stages.insert(static_cast<int>(s));
  return stages;
}

/// The head of CMakeLists.txt for CUDA: nvcc need not be on PATH, and a GPU need not be there.
constexpr const char* cudaProject =
    R"(# For the GPUs of this machine; where there are none, for those with compute capability 8.0 and 9.0, and later ones.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND nvidia-smi -L RESULT_VARIABLE no_gpu OUTPUT_QUIET ERROR_QUIET)
  if(no_gpu)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  else()
    set(CMAKE_CUDA_ARCHITECTURES native)
  endif()
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin REQUIRED)
endif()
project(pipeline LANGUAGES CXX CUDA)
set(CMAKE_CUDA_STANDARD 20)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25 does not know it of nvcc 13
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
# 554: a view of const elements has a conversion to itself that nobody calls.
set(CMAKE_CUDA_FLAGS "--expt-relaxed-constexpr -diag-suppress=554")
)";

/// How a program for CUDA is built and run.
constexpr const char* cudaUse =
    R"(Build and train, all stages in one process (DATA: a folder with one .npy file per input and label):

  cmake -S . -B out -DCMAKE_PREFIX_PATH=PDC && cmake --build out
  out/pipeline --threads --data DATA --epochs 10

PDC: where pdc is installed, or its build folder. Stages take the machine's GPUs in turn; several may share one.
)";

/// How a program for CPUs is built and run.
void writeUse(std::ostringstream& out, const Plan& plan) {
  out << R"(Build and train, with one process per rank (DATA: a folder with one .npy file per input and label):

  pdc-run . --data DATA --epochs 10

The same by hand:

  cmake -S . -B out && cmake --build out
  )";
  out << "mpirun";
  for (const Processes& some : processGroups(plan))
    out << (some.first ? " :" : "") << " -n " << some.count << " out/" << some.executable << " --data DATA --epochs 10";
  const int processes = processesOf(plan);
  if (processes > 1)
    out << R"(

On other machines, or without MPI (each process is told its rank, and where rank 0 is met; torchrun does so, too):

  srun --ntasks=)"
        << processes << R"( --mpi=pmix --multi-prog ranks.conf --data=DATA --epochs=10
  torchrun --nproc_per_node=)"
        << processes << R"( --no_python out/pipeline --data DATA --epochs 10
  PDC_MASTER=HOST:PORT PDC_WORLD_SIZE=)"
        << processes << R"( PDC_RANK=0 out/pipeline --data DATA --epochs 10   # and so on for every rank)";
  out << R"(

In one process, for a debugger or a sanitizer:

  out/pipeline --threads --data DATA --epochs 10
)";
}

} // namespace

/// The executable of `rank`: "stage2", "rank0".
static std::string executableOfRank(const Plan& plan, const PlanRank& rank) {
  for (const auto& [name, stages] : rankKinds(plan))
    if (stages == stagesOf(rank)) return name;
  return "pipeline";
}

std::vector<Processes> pdc::processGroups(const Plan& plan) {
  std::vector<Processes> groups;
  int first = 0;
  for (const PlanRank& rank : plan.ranks) {
    const std::string name = executableOfRank(plan, rank);
    const int members = membersOf(plan, rank);
    if (groups.empty() || groups.back().executable != name) groups.push_back({name, first, 0});
    groups.back().count += members;
    first += members;
  }
  return groups;
}

const char* pdc::sourceSuffix(Target target) {
  return target == Target::cuda ? ".cu" : ".cpp";
}

std::string pdc::pipelineSource(const Plan& plan, const Provenance& provenance) {
  std::ostringstream out;
  out << "// The main of every executable of this folder. STAGES are those that it links: CMakeLists.txt says which.\n"
         "// Generated by pdc "
      << provenance.version << ".\n#include \"pdcrt/Run.h\"\n\n";
  for (int stage : allStages(plan)) out << "namespace stage" << stage << " { extern const pdcrt::Stage stage; }\n";
  out << "\nint main(int argc, char** argv) {\n"
         "  const pdcrt::Stage* const stages[] = {STAGES};\n"
         "  return pdcrt::run(argc, argv, stages, BUILD);\n"
         "}\n";
  return out.str();
}

std::string pdc::cmakeLists(const Plan& plan, const Provenance& provenance, Target target) {
  std::ostringstream out;
  out << "# Builds the pipeline that trains " << commentText(provenance.model) << ". Generated by pdc "
      << provenance.version << ".\n"
      << "cmake_minimum_required(VERSION 3.25)\n"
      << (target == Target::cuda ? cudaProject : "project(pipeline LANGUAGES CXX)\n") << R"(if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# For the machine that builds. Products are not contracted with sums: bits must not depend on what the compiler sees.
# Comparisons that might trap, which nobody asks for, would keep exponential functions from becoming vector code.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -march=native -ffp-contract=off -fno-trapping-math")
find_package(pdcrt REQUIRED)"
      << (target == Target::cuda ? " COMPONENTS cuda" : "") << ")\n\n";
  const std::string runtime = target == Target::cuda ? "pdcrt::pdcrt_cuda" : "pdcrt::pdcrt";
  for (int stage : allStages(plan))
    out << "add_library(program" << stage << " OBJECT stage" << stage << sourceSuffix(target)
        << ")\ntarget_link_libraries(program" << stage << " PRIVATE " << runtime << ")\n";
  out << R"(
# Sources, compiler and flags: ranks of different builds refuse each other.
file(GLOB sources stage*.c*)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
set(build "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELEASE}")
foreach(source IN LISTS sources)
  file(SHA256 ${source} hash)
  string(APPEND build " ${hash}")
endforeach()
string(SHA256 build "${build}")

# An executable with the given stages.
function(pdc_executable name stages)
  add_executable(${name} pipeline.cpp)
  target_compile_definitions(${name} PRIVATE "STAGES=${stages}" "BUILD=\"${build}\"")
  target_link_libraries(${name} PRIVATE )"
      << runtime << R"( ${ARGN})
endfunction()

)";
  auto executable = [&](const std::string& name, const std::set<int>& stages) {
    out << "pdc_executable(" << name << " \"" << stageList(stages, ",") << "\"";
    for (int stage : stages) out << " program" << stage;
    out << ")\n";
  };
  executable("pipeline", allStages(plan));
  if (target == Target::cpu) // on GPUs the ranks are threads of one process
    for (const auto& [name, stages] : rankKinds(plan)) executable(name, stages);
  return out.str();
}

std::string pdc::dataFilesText(const Graph& main, const pdcrt::Training& training, const std::string& indent) {
  std::vector<std::pair<std::string, std::string>> files;
  std::size_t longest = 0;
  for (const GraphInput& input : main.inputs) {
    if (input.kind != InputKind::data && input.kind != InputKind::label) continue;
    if (input.value->users().empty()) continue; // no stage reads it
    const Type& type = input.value->type();
    const int samples = training.batchAxisOf(input.value->name());
    std::string shape;
    for (int axis = 0; axis < type.rank(); ++axis)
      shape += (axis > 0 ? ", " : "") +
               (axis == samples ? "samples" : std::to_string(type.shape[static_cast<std::size_t>(axis)]));
    files.emplace_back(pdcrt::dataFileName(input.value->name()) + ".npy",
                       std::string(nameOf(type.element)) + "[" + shape + "]");
    longest = std::max(longest, files.back().first.size());
  }
  std::string text;
  for (const auto& [name, type] : files)
    text += indent + name + std::string(longest + 2 - name.size(), ' ') + type + "\n";
  return text;
}

std::string pdc::readmeText(const Plan& plan, const Provenance& provenance, Target target, const Graph& main,
                            const pdcrt::Training& training) {
  std::ostringstream out;
  out << "A pipeline of " << plan.stages.size() << (plan.stages.size() == 1 ? " stage" : " stages") << " on "
      << plan.ranks.size() << (plan.ranks.size() == 1 ? " rank" : " ranks") << " that trains "
      << commentText(provenance.model) << ". Generated by pdc " << provenance.version << ":\n\n  "
      << commentText(provenance.command) << "\n\n"
      << "What the pipeline looks like is in report.html (open it in a browser), after a run also what was "
         "measured.\n\n";
  if (target == Target::cuda)
    out << cudaUse;
  else
    writeUse(out, plan);
  out << R"(
DATA is a folder with one file of NumPy for each input, written by numpy.save:

)" << dataFilesText(main, training, "  ")
      << R"(
Every character of an input's name other than letters, digits, '.', '-' and '_' is a '_' in its file's name. pdc-eval
takes the same files, with as many samples as a minibatch.

Files:

  stageK)"
      << (target == Target::cuda ? ".cu " : ".cpp")
      << R"(      the program of stage K: forward, backward and evaluation, straight-line
  pipeline.cpp    main
  plan.json       stages, replicas, ranks, and what they are expected to cost; read again at start
  schedule.txt    what each rank does, action by action; read and checked again at start
  training.json   optimizer, learning rate, seed
)" << (target == Target::cpu ? "  ranks.conf      which rank runs which program, for srun --multi-prog\n" : "")
      << R"(  profile.json    the costs that the plan rests on
  weights/        the weights to begin with
)";
  return out.str();
}

std::string pdc::ranksFile(const Plan& plan, const Provenance& provenance) {
  std::ostringstream out;
  out << "# Which task of Slurm runs which program. In this folder, with arguments for all:\n"
         "#   srun --ntasks="
      << processesOf(plan) << " --mpi=pmix --multi-prog ranks.conf --data=DATA --epochs=10\n# Generated by pdc "
      << provenance.version << ".\n";
  for (const Processes& some : processGroups(plan))
    out << some.first << (some.count > 1 ? "-" + std::to_string(some.first + some.count - 1) : "") << " ./out/"
        << some.executable << "\n";
  return out.str();
}
