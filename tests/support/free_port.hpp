// On which port can a test's job meet? One that the system has just chosen, so that no two jobs
// share it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

namespace colossal::test {

/// A TCP port on which a program started by this test can listen, and nobody else: it stays bound
/// here to the end of the test. Linux lets another socket listen on it if both have SO_REUSEADDR,
/// as that of the rendezvous store has, and never gives it away as "any free port".
[[nodiscard]] inline int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ::bind(fd, reinterpret_cast<const sockaddr*>(&address), length);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

}  // namespace colossal::test
