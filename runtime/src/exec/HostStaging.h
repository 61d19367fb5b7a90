// Memory of the host for what is on its way to the device: two places, in turn. Unused where the host sees blocks.
#pragma once

#include "pdcrt/Device.h"

#include <array>
#include <cstddef>

namespace pdcrt {

class HostStaging {
public:
  /// Room for `bytes`, once what was there has been sent; null: there is not so much.
  std::byte* place(std::size_t bytes) {
    Place& place = places_[++used_ % places_.size()];
    place.sent.wait();
    if (place.memory.size() < bytes) place.memory = HostMemory(bytes);
    return place.memory.data();
  }
  /// Sends what was written there, in a stream. Returns the event behind it.
  const Event& send(Stream& q, std::byte* to, std::size_t bytes) {
    Place& place = places_[used_ % places_.size()];
    device::copy(q, to, place.memory.data(), bytes);
    place.sent.record(q);
    return place.sent;
  }

private:
  struct Place {
    HostMemory memory;
    Event sent;
  };
  std::array<Place, 2> places_;
  std::size_t used_ = 0;
};

} // namespace pdcrt
