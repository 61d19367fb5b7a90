// See Onednn.h.
#include "Onednn.h"

#include "pdcrt/Threads.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <omp.h>

namespace pdcrt::onednn {
namespace {

using dnnl::memory;

memory::format_tag rowMajor(std::size_t rank) {
  constexpr memory::format_tag tags[] = {memory::format_tag::undef, memory::format_tag::a,    memory::format_tag::ab,
                                         memory::format_tag::abc,   memory::format_tag::abcd, memory::format_tag::abcde,
                                         memory::format_tag::abcdef};
  assert(rank < std::size(tags));
  return tags[rank];
}

} // namespace

const dnnl::engine& engine() {
  omp_set_num_threads(kernelThreads);
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

memory::desc plain(const memory::dims& dims) {
  return {dims, memory::data_type::f32, rowMajor(dims.size())};
}

memory::desc anyLayout(const memory::dims& dims) {
  return {dims, memory::data_type::f32, memory::format_tag::any};
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

void Operation::Call::add(int index, const memory::desc& layout) {
  memories.emplace_back(layout, engine(), nullptr);
  arguments.push_back({index, memories.back().get()});
}

void Operation::Call::point(std::size_t argument, const void* address) const {
  dnnl_memory_set_data_handle(arguments[argument].memory, const_cast<void*>(address));
}

void Operation::Call::execute(const dnnl::stream& stream) const {
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive.get(), stream.get(), static_cast<int>(arguments.size()), arguments.data());
  if (status !=
      dnnl_success) { // cannot happen to a primitive that was created: a broken process, not an error to handle
    std::fprintf(stderr, "oneDNN failed to execute a primitive, status %d\n", static_cast<int>(status));
    std::abort();
  }
}

std::size_t Operation::take(std::size_t bytes) {
  const std::size_t offset = workspaceBytes_;
  workspaceBytes_ += (bytes + 63) / 64 * 64;
  return offset;
}

void Operation::addPort(const dnnl::primitive_desc_base& descriptor, const Argument& argument, bool isResult) {
  const memory::desc wanted = descriptor.query_md(dnnl::query::exec_arg_md, argument.index);
  main_.add(argument.index, wanted);
  Port port;
  port.copied = wanted != argument.given;
  if (port.copied) {
    const memory::desc& from = isResult ? wanted : argument.given;
    const memory::desc& to = isResult ? argument.given : wanted;
    const dnnl::reorder::primitive_desc reorder(engine(), from, engine(), to, attributes());
    port.copy.primitive = dnnl::reorder(reorder);
    port.copy.add(DNNL_ARG_FROM, from);
    port.copy.add(DNNL_ARG_TO, to);
    port.copy.add(DNNL_ARG_SCRATCHPAD, reorder.scratchpad_desc());
    port.offset = take(wanted.get_size());
  }
  ports_.push_back(std::move(port));
}

Operation::Operation(Setup& setup, const dnnl::primitive_desc_base& descriptor,
                     std::initializer_list<Argument> operands, std::initializer_list<Argument> results)
    : operandCount_(operands.size()) {
  main_.primitive = dnnl::primitive(descriptor.get());
  for (const Argument& operand : operands) addPort(descriptor, operand, /*isResult=*/false);
  for (const Argument& result : results) addPort(descriptor, result, /*isResult=*/true);
  main_.add(DNNL_ARG_SCRATCHPAD, descriptor.scratchpad_desc());
  std::size_t scratchpadBytes = descriptor.scratchpad_desc().get_size();
  for (const Port& port : ports_)
    if (port.copied) scratchpadBytes = std::max(scratchpadBytes, port.copy.memories[2].get_desc().get_size());
  scratchpad_ = take(scratchpadBytes);
  setup.needWorkspace(workspaceBytes_);
}

void Operation::run(Stream& q, std::initializer_list<const void*> operands,
                    std::initializer_list<void*> results) const {
  assert(operands.size() == operandCount_ && operands.size() + results.size() == ports_.size());
  assert(q.workspaceBytes() >= workspaceBytes_);
  omp_set_num_threads(kernelThreads);
  std::byte* const workspace = q.workspace();
  std::byte* const scratchpad = workspace + scratchpad_;
  std::size_t argument = 0;
  for (const void* address : operands) {
    const Port& port = ports_[argument];
    if (port.copied) {
      port.copy.point(0, address);
      port.copy.point(1, workspace + port.offset);
      port.copy.point(2, scratchpad);
      port.copy.execute(stream_);
      address = workspace + port.offset;
    }
    main_.point(argument++, address);
  }
  for (void* address : results) {
    const Port& port = ports_[argument];
    main_.point(argument++, port.copied ? workspace + port.offset : address);
  }
  main_.point(argument, scratchpad);
  main_.execute(stream_);
  argument = operandCount_;
  for (void* address : results) {
    const Port& port = ports_[argument++];
    if (!port.copied) continue;
    port.copy.point(0, workspace + port.offset);
    port.copy.point(1, address);
    port.copy.point(2, scratchpad);
    port.copy.execute(stream_);
  }
}

} // namespace pdcrt::onednn
