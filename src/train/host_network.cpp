// Can processes of this machine find and reach each other? Its network, and the variables of
// launchers.
#include "comm/world.hpp"
#include "core/error.hpp"
#include "core/system.hpp"
#include "train/environment.hpp"
#include "train/host_facts.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <fstream>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace colossal::detail {
namespace {

/// Why no port can be had; empty if one can.
std::string try_port() {
  const int handle = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound =
      handle >= 0 &&
      ::bind(handle, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(handle, 1) == 0;
  const int error = errno;
  ::close(handle);
  return bound ? "" : std::system_category().message(error);
}

}  // namespace

void read_network(HostFacts& facts) {
  facts.host = host_name();
  addrinfo* found = nullptr;
  facts.host_resolves = ::getaddrinfo(facts.host.c_str(), nullptr, nullptr, &found) == 0;
  if (found != nullptr) {
    ::freeaddrinfo(found);
  }
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range >> facts.first_port >> facts.last_port;
  facts.port_problem = try_port();
}

void read_environment(HostFacts& facts) {
  facts.environment = environment_variables();
  try {
    static_cast<void>(detect_launch());
  } catch (const Error& error) {
    facts.launch_problem = error.what();
  }
  const auto interface = facts.environment.find("GLOO_SOCKET_IFNAME");
  facts.interface_known =
      interface == facts.environment.end() || ::if_nametoindex(interface->second.c_str()) != 0;
}

}  // namespace colossal::detail
