#include "Sockets.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pdcrt {

int connectTo(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  errno = EINVAL;
  if (colon == std::string::npos) return -1;
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0) {
    errno = EHOSTUNREACH;
    return -1;
  }
  int connected = -1, reason = 0;
  for (addrinfo* at = found; at && connected < 0; at = at->ai_next) {
    const int file = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (file >= 0 && ::connect(file, at->ai_addr, at->ai_addrlen) == 0)
      connected = file;
    else if (reason = errno; file >= 0)
      ::close(file);
  }
  ::freeaddrinfo(found);
  errno = reason;
  if (connected >= 0) setUp(connected);
  return connected;
}

int listenOn(int port) {
  const int socket = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool six = socket >= 0;
  const int file = six ? socket : ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file < 0) return -1;
  const int on = 1, off = 0;
  ::setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_in);
  if (six) {
    ::setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    auto& at = reinterpret_cast<sockaddr_in6&>(address);
    at.sin6_family = AF_INET6;
    at.sin6_port = htons(static_cast<std::uint16_t>(port));
    length = sizeof at;
  } else {
    auto& at = reinterpret_cast<sockaddr_in&>(address);
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<std::uint16_t>(port));
  }
  if (::bind(file, reinterpret_cast<sockaddr*>(&address), length) == 0 && ::listen(file, SOMAXCONN) == 0) return file;
  const int reason = errno;
  ::close(file);
  errno = reason;
  return -1;
}

int portOf(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

namespace {

/// What `tell`, ::getpeername or ::getsockname, says of `socket`: numeric, without the port; "?": nothing.
std::string addressOf(int socket, int (*tell)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char text[NI_MAXHOST] = {};
  if (tell(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    return "?";
  const std::string numeric = text, mapped = "::ffff:"; // an IPv4 address that came to a socket for both
  return numeric.starts_with(mapped) ? numeric.substr(mapped.size()) : numeric;
}

} // namespace

std::string peerOf(int socket) {
  return addressOf(socket, ::getpeername);
}

bool staysHere(int socket) {
  const std::string peer = peerOf(socket);
  return peer != "?" && peer == addressOf(socket, ::getsockname);
}

void setUp(int socket, double seconds) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (seconds <= 0) return;
  const auto limit = static_cast<unsigned>(seconds * 1e3);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

bool sendAll(int socket, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

bool receiveAll(int socket, void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::recv(socket, at, bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

} // namespace pdcrt
