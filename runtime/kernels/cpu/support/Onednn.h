// oneDNN behind the kernel classes: a primitive with everything that a call of it needs, prepared.
//
// Only the .cpp files of kernels include this; no header that a stage program sees does (dnnl.hpp takes seconds to
// compile).
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"

#include <dnnl.hpp>

#include <cstddef>
#include <initializer_list>
#include <vector>

namespace pdcrt::onednn {

/// The CPU. Also sets the calling thread to one OpenMP thread: oneDNN sizes scratchpads and splits sums by the number
/// of threads that it finds, and neither may depend on who constructs.
const dnnl::engine& engine();

/// A row-major f32 tensor, and one whose layout the library may choose.
dnnl::memory::desc plain(const dnnl::memory::dims& dims);
dnnl::memory::desc anyLayout(const dnnl::memory::dims& dims);

/// What every primitive descriptor here is created with: scratchpads come from the workspace.
dnnl::primitive_attr attributes();

/// A primitive whose operands and results are given in layouts of our own. Where the primitive wants another one, the
/// operation copies through the workspace.
class Operation {
public:
  struct Argument {
    int index;                ///< DNNL_ARG_…
    dnnl::memory::desc given; ///< the layout at the interface
  };

  Operation() = default;
  /// Declares the workspace that a run needs.
  Operation(Setup& setup, const dnnl::primitive_desc_base& descriptor, std::initializer_list<Argument> operands,
            std::initializer_list<Argument> results);

  /// Runs on `operands` and `results`, in the order of construction. One run at a time: the memory objects are the
  /// operation's own.
  void run(Stream& q, std::initializer_list<const void*> operands, std::initializer_list<void*> results) const;

  /// Bytes of workspace that a run uses.
  std::size_t workspaceBytes() const { return workspaceBytes_; }

private:
  /// A primitive with its arguments in the form that the C interface takes: executing it builds no map of ours.
  struct Call {
    dnnl::primitive primitive;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;

    void add(int index, const dnnl::memory::desc& layout);
    void point(std::size_t argument, const void* address) const;
    void execute(const dnnl::stream& stream) const;
  };

  struct Port {
    bool copied = false;
    Call copy;              ///< between the layout given and the one wanted: source, destination, scratchpad
    std::size_t offset = 0; ///< of the copy in the workspace
  };

  void addPort(const dnnl::primitive_desc_base& descriptor, const Argument& argument, bool isResult);
  std::size_t take(std::size_t bytes);

  dnnl::stream stream_ = dnnl::stream(engine()); ///< its own: threads of one process share no state of the library
  Call main_;                                    ///< operands, results, scratchpad
  std::vector<Port> ports_;
  std::size_t operandCount_ = 0;
  std::size_t scratchpad_ = 0; ///< offset in the workspace; the copies use the same
  std::size_t workspaceBytes_ = 0;
};

} // namespace pdcrt::onednn
