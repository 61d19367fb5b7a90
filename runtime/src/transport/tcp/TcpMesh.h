// How the processes of a run find each other: all meet rank 0, which tells where the others listen.
#pragma once

#include "TcpTransport.h"
#include "pdcrt/Cores.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pdcrt {

/// Connections by rank; none (-1) to itself.
struct TcpMesh {
  std::vector<int> sockets;
  std::vector<std::string> names; ///< addresses
  Cores cores = ownCores();
  std::vector<std::uint32_t> coreSets; ///< Cores::set of each, by rank; 0 for itself

  TcpMesh() = default;
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;
  ~TcpMesh(); ///< closes them

  Status connect(int ranks, const TcpOptions& options);

private:
  Status meetAll(int ranks, int port, const TcpOptions& options);
  Status meetRank0(int ranks, const TcpOptions& options);
};

} // namespace pdcrt
