#include "DataIn.h"

#include "pdcrt/Arena.h"

#include <cstring>
#include <string>

namespace pdcrt {

static std::size_t bytesOf(const DataRow& row) {
  return static_cast<std::size_t>(row.shape.elements()) * bytesOf(row.element);
}

bool stagesData(const Stage& stage) {
  return stage.bytes.dataStaging > 0 && !device::hostSeesBlocks();
}

DataIn::~DataIn() {
  device::close(stream_);
}

void DataIn::open() {
  if (!stream_.native()) stream_ = device::openStream();
}

Status DataIn::read(Stream& q, const Schedule& schedule, const RunSpan& run, const Minibatch& of) {
  const bool staged = of.source && of.place.memory;
  if (staged)
    if (Status status = stage(q, run, of); !status) return status;
  for (const DataRow& row : of.stage.data) {
    if (row.ofDataSet() && (!of.source || staged)) continue;
    const std::size_t bytes = bytesOf(row);
    std::byte* place = device::hostSeesBlocks() ? of.slot + row.offset : staging_.place(bytes);
    if (!place) return {Exit::noDevice, "the host has no " + std::to_string(bytes) + " bytes for '" + row.name + "'"};
    if (row.lossScale) {
      const auto scale = static_cast<float>(of.lossScale);
      std::memcpy(place, &scale, sizeof scale);
    } else if (row.share) {
      float share = 1; // while nothing is trained it is of no account
      if (of.trains)
        if (Status status =
                shares_.of(row, of.stage.data, schedule, of.minibatch, run.minibatches, run.first, *of.source, share);
            !status)
          return status;
      std::memcpy(place, &share, sizeof share);
    } else if (Status status = of.source->read(row, run.first + of.minibatch, place); !status) {
      return status;
    }
    if (place != of.slot + row.offset) staging_.send(q, of.slot + row.offset, bytes);
  }
  return {};
}

Status DataIn::stage(Stream& q, const RunSpan& run, const Minibatch& of) {
  const std::size_t bytes = of.stage.bytes.dataStaging;
  std::byte* place = dataStaging_.place(bytes);
  if (!place) return {Exit::noDevice, "the host has no " + std::to_string(bytes) + " bytes for a minibatch's data"};
  auto eachRow = [&](auto act) -> Status {
    std::size_t offset = 0;
    for (const DataRow& row : of.stage.data) {
      if (!row.ofDataSet()) continue;
      if (Status status = act(row, offset); !status) return status;
      offset += arenaBytes(bytesOf(row));
    }
    return {};
  };
  Status status = eachRow([&](const DataRow& row, std::size_t offset) {
    return of.source->read(row, run.first + of.minibatch, place + offset);
  });
  if (!status) return status;
  of.place.taken.precede(stream_);
  dataStaging_.send(stream_, of.place.memory, bytes).precede(q);
  status = eachRow([&](const DataRow& row, std::size_t offset) -> Status {
    device::copy(q, of.slot + row.offset, of.place.memory + offset, bytesOf(row));
    return {};
  });
  of.place.taken.record(q);
  return status;
}

} // namespace pdcrt
