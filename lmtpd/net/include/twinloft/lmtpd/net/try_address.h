// Checks whether a server could listen at an address, without listening there.
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
  in_use,  // a process listens there, possibly this server
};

// Creates and removes no file. Errors: no process can listen there. The machine lacks the address, the
// directory is missing, or the file is not a socket.
Result<AddressState> try_address(const ListenAddress& address);

// The socket address of "::1" or "fe80::1%eth0". Errors: Errc::invalid (not a numeric IPv6 address, or the
// machine has no such interface).
Result<sockaddr_in6> ipv6_address(const ListenAddress& address);

struct ListenPlace {
  std::string host;  // numeric, as inet_ntop(3) writes it
  std::uint16_t port = 0;
  std::string unix_path;  // empty: TCP
};
struct SocketOwner {
  pid_t pid = 0;
  std::string name;  // of the process
  // lmtpd or spool-milter, or a server process of them.
  bool is_ours() const {
    return name == "lmtpd" || name == "lmtpd-server" || name == "spool-milter" || name == "milter-server";
  }
};
// Finds a process with the listening socket, by /proc (proc(5)). Of several processes, one of ours or the
// lowest PID. nullopt: unknown. Only root sees processes of other users, and processes of other containers
// are invisible.
std::optional<SocketOwner> find_socket_owner(const ListenPlace& place);

}  // namespace twinloft::lmtpd
