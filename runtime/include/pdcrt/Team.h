// The team of devices that runs a stage together, as kernels see it. All members run one program on the same minibatch;
// each has parts of some parameters and values.
#pragma once

namespace pdcrt {

class Team {
public:
  virtual ~Team() = default;
  virtual int member() const = 0;  ///< 0 … members() - 1
  virtual int members() const = 0; ///< at least 1
};

} // namespace pdcrt
