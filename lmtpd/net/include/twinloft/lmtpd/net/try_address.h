// Whether a server could listen at an address, found out without listening there.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/net/listener.h"

namespace twinloft::lmtpd {

enum class AddressState {
  free,
  in_use,  // something listens there, maybe this server itself
};

// Errors: nobody can listen there: an address that this machine has not, a directory that is missing, a path
// that is no socket. Makes and removes nothing.
Result<AddressState> try_address(const ListenAddress& address);

// Of "::1" or "fe80::1%eth0". Errc::invalid: it is no numeric IPv6 address, or this machine has no such
// interface.
Result<sockaddr_in6> ipv6_address(const ListenAddress& address);

struct ListenPlace {
  std::string host;  // numeric, as inet_ntop(3) writes it
  std::uint16_t port = 0;
  std::string unix_path;  // empty: TCP
};
struct SocketOwner {
  pid_t pid = 0;
  std::string name;  // of the process
  bool is_lmtpd() const { return name == "lmtpd" || name == "lmtpd-server"; }
};
// A process that has the listening socket there, by /proc. Of several the lmtpd, else the one with the lowest
// number. nullopt: not known; only root sees others' processes, and those of other containers nobody.
std::optional<SocketOwner> find_socket_owner(const ListenPlace& place);

}  // namespace twinloft::lmtpd
