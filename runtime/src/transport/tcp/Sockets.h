// TCP connections between the processes of a run.
#pragma once

#include <cstddef>
#include <string>

namespace pdcrt {

/// A connection to "HOST:PORT", which sends at once what it is given; -1, with errno: there is none.
int connectTo(const std::string& address);

/// A socket that listens on `port` of all addresses of this machine, 0: on one that is free; -1, with errno.
int listenOn(int port);
/// The port on which `socket` listens.
int portOf(int socket);
/// The address at the other end, numeric, without the port.
std::string peerOf(int socket);
/// Whether both ends of a connection have one address, so that they are on one host.
bool staysHere(int socket);

/// Options of a connected socket: sends at once; what nobody acknowledges for `seconds` ends the connection, because a
/// cut cable says nothing by itself; 0: as long as the system waits.
void setUp(int socket, double seconds = 0);

/// Writes or reads all bytes, sleeping. False: the connection has ended.
bool sendAll(int socket, const void* data, std::size_t bytes);
bool receiveAll(int socket, void* data, std::size_t bytes);

} // namespace pdcrt
