// Listening sockets, which are bound before lmtpd drops its privileges.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/net/networks.h"
#include "twinloft/lmtpd/session/session.h"

namespace twinloft::lmtpd {

// The rules for the connections of a listener.
struct ListenRules {
  TlsPolicy tls = TlsPolicy::none;
  // Clients that may use XCLIENT and XFORWARD. Behind a proxy, the proxy's client counts.
  Networks may_speak_for;
  Networks proxies;  // peers whose connections begin with the PROXY protocol, version 2
};

struct ListenAddress {
  std::string name;                       // for messages, as configured
  std::string host;                       // numeric; empty for a Unix socket
  std::uint16_t port = 0;                 // 25 is refused (RFC 2033 section 5); 0: any free port
  std::string unix_path;                  // absolute
  unsigned mode = 0660;                   // of the Unix socket
  std::optional<std::uint32_t> gid = {};  // its group
  ListenRules rules = {};
};

// A bound, listening, non-blocking socket. The file of a Unix socket is removed with it, unless another
// socket has replaced the file.
class Listener {
 public:
  // Binds, and replaces the Unix socket of an ended server. Errors: port 25; the address is in use, with the
  // action to take; a server listens at the path; the file is not a socket.
  static Result<Listener> bind(const ListenAddress& address);
  // Removes from `passed` the socket that listens at the address, and returns it. nullopt: none. Its file
  // stays after the listener's end, since it belongs to the service manager. Errors: not a listening stream
  // socket.
  static Result<std::optional<Listener>> adopt(const ListenAddress& address, std::vector<Fd>& passed);
  // In a process that was forked by the owner: the same socket with these rules. The owner keeps the file.
  Listener inherit(const ListenRules& rules) const;
  bool is_listening() const;
  // Whether a Unix socket cannot be reached any more: its file was removed or replaced.
  bool has_lost_path() const;
  bool is_adopted() const { return shared_; }
  // Closes this process's descriptor, without an effect on the socket.
  void let_go() { fd_.reset(); }
  // Changes mode and group of a Unix socket. No effect on other sockets.
  Status set_access(unsigned mode, std::optional<std::uint32_t> gid);
  // Ends listening. Connections not yet accepted are reset, even if other processes hold the socket. An
  // adopted or inherited socket is only closed.
  void close();
  ~Listener() { remove_path(); }
  Listener(Listener&&) noexcept = default;
  Listener& operator=(Listener&&) = delete;
  Listener(const Listener&) = delete;

  int fd() const { return fd_.get(); }
  bool is_unix() const { return is_unix_; }
  std::uint16_t port() const { return port_; }  // of TCP
  const std::string& name() const { return name_; }
  const ListenRules& rules() const { return *rules_; }
  std::shared_ptr<const ListenRules> shared_rules() const { return rules_; }

 private:
  Listener() = default;
  static Result<Listener> bind_unix(const ListenAddress& address);
  static Result<Listener> bind_tcp(const ListenAddress& address);
  bool has_path() const;
  void remove_path();

  std::string name_;
  std::shared_ptr<const ListenRules> rules_ = std::make_shared<ListenRules>();
  Fd fd_;
  std::uint16_t port_ = 0;
  bool is_unix_ = false;
  bool shared_ = false;       // other processes have it too, so it is not shut down
  std::string path_;          // removed with the listener
  std::string adopted_path_;  // belongs to the service manager
  std::uint64_t device_ = 0;  // of the file, to recognise it
  std::uint64_t inode_ = 0;
};

}  // namespace twinloft::lmtpd
