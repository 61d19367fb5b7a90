// Each collective is behind an event of the phase's stream, and the phase goes on behind an event of the collective.
#include "NcclTeam.h"

#include <nccl.h>

#include <chrono>
#include <stdexcept>
#include <string>

namespace pdcrt {
namespace {

bool adds(const Collective& what) {
  return what.kind == Collective::Kind::allReduce || what.kind == Collective::Kind::reduceScatter;
}

/// Whether NCCL has numbers like these; if so, which they are.
bool typeOf(Element element, ncclDataType_t& type) {
  switch (element) {
  case Element::f64: type = ncclFloat64; return true;
  case Element::f32: type = ncclFloat32; return true;
  case Element::f16: type = ncclFloat16; return true;
  case Element::bf16: type = ncclBfloat16; return true;
  case Element::i64: type = ncclInt64; return true;
  case Element::i32: type = ncclInt32; return true;
  case Element::i8: type = ncclInt8; return true;
  case Element::u64: type = ncclUint64; return true;
  case Element::u32: type = ncclUint32; return true;
  case Element::u8: type = ncclUint8; return true;
  case Element::i16:
  case Element::u16:
  case Element::boolean: break;
  }
  return false;
}

ncclRedOp_t operationOf(Collective::Combine how) {
  return how == Collective::Combine::max ? ncclMax : how == Collective::Combine::min ? ncclMin : ncclSum;
}

/// Puts the collective into the stream; what NCCL returns.
ncclResult_t issue(const NcclMembers& of, ncclComm* communicator, const Collective& what, const std::byte* data,
                   std::byte* arrived) {
  const auto stream = static_cast<cudaStream_t>(of.stream.native());
  const auto count = static_cast<std::size_t>(what.elements);
  const std::size_t bytes = count * bytesOf(what.element);
  const auto placeOf = [&](int member) { return static_cast<std::size_t>(member) * bytes; };
  ncclDataType_t type = ncclUint8;
  if (adds(what)) typeOf(what.element, type);
  switch (what.kind) {
  case Collective::Kind::allReduce:
    return ncclAllReduce(data, arrived, count, type, operationOf(what.combine), communicator, stream);
  case Collective::Kind::reduceScatter:
    return ncclReduceScatter(data, arrived + placeOf(of.self), count, type, operationOf(what.combine), communicator,
                             stream);
  case Collective::Kind::allGather: return ncclAllGather(data, arrived, bytes, ncclUint8, communicator, stream);
  case Collective::Kind::allToAll: break;
  }
  ncclResult_t result = ncclGroupStart();
  const auto note = [&](ncclResult_t code) { result = result == ncclSuccess ? code : result; };
  for (int member = 0; member < of.count; ++member) {
    if (member == of.self) continue;
    note(ncclSend(data + placeOf(member), bytes, ncclUint8, member, communicator, stream));
    note(ncclRecv(arrived + placeOf(member), bytes, ncclUint8, member, communicator, stream));
  }
  note(ncclGroupEnd());
  return result;
}

} // namespace

ncclComm* NcclMembers::takeAway() {
  const std::unique_lock lock(calls, std::chrono::seconds(1));
  return communicator.exchange(nullptr);
}

struct NcclTeam::Started {
  Collective what;
  Event done = {};
  bool underWay = false;
};

NcclTeam::NcclTeam(NcclMembers& of, std::span<const Collective> collectives, std::uint64_t& bytesSent)
    : of_(of), bytesSent_(bytesSent) {
  for (const Collective& what : collectives) started_.push_back({what});
}

NcclTeam::~NcclTeam() = default;

Status NcclTeam::check(std::span<const Collective> collectives) {
  ncclDataType_t type = ncclUint8;
  for (std::size_t i = 0; i < collectives.size(); ++i)
    if (adds(collectives[i]) && !typeOf(collectives[i].element, type))
      return {Exit::usage,
              "NCCL does not combine integers of 16 bits or booleans, as " + std::string(nameOf(collectives[i].kind)) +
                  " " + std::to_string(i) + " of the team does",
              "start the programs with --transport=host"};
  return {};
}

void NcclTeam::start(int collective, Stream& q, const std::byte* data, std::byte* arrived) {
  Started& started = started_[static_cast<std::size_t>(collective)];
  if (started.underWay) refuseStart(started.what, collective);
  ready_.record(q);
  {
    const std::lock_guard lock(of_.calls);
    ncclComm* const communicator = of_.communicator;
    if (!communicator) throw PeerGone();
    ready_.precede(of_.stream);
    if (const ncclResult_t code = issue(of_, communicator, started.what, data, arrived); code != ncclSuccess) {
      of_.failed(code);
      throw PeerGone();
    }
    started.done.record(of_.stream);
  }
  started.underWay = true;
  bytesSent_ +=
      static_cast<std::uint64_t>(started.what.sentElements(of_.self, of_.count)) * bytesOf(started.what.element);
}

void NcclTeam::finish(int collective, Stream& q) {
  Started& started = started_[static_cast<std::size_t>(collective)];
  started.underWay = false;
  if (!of_.communicator) throw PeerGone();
  started.done.precede(q);
}

} // namespace pdcrt
