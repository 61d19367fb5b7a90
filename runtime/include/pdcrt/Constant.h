// A table of the model's own numbers, where the kernels can read it.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/View.h"

#include <cstddef>
#include <memory>

namespace pdcrt {

/// `bytes` at `table`, which stays as it is for the whole run, in the memory of the device: on the CPU the table
/// itself. Throws std::runtime_error where the device has no room.
std::shared_ptr<const void> onDevice(const void* table, std::size_t bytes);

template <class T>
class Constant {
public:
  template <std::size_t count>
  Constant(Setup&, const T (&elements)[count])
      : memory_(onDevice(elements, sizeof elements)), view(static_cast<const T*>(memory_.get())) {}

private:
  std::shared_ptr<const void> memory_;

public:
  View<const T> view; ///< of all elements
};

} // namespace pdcrt
