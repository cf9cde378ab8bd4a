// Listening sockets, bound before privileges are dropped.
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

// What holds for the connections of one listener.
struct ListenRules {
  TlsPolicy tls = TlsPolicy::none;
  Networks may_speak_for;  // peers that XCLIENT and XFORWARD are for; behind a proxy, its client counts
  Networks proxies;        // peers whose connections begin with the PROXY protocol, version 2
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

// A bound, listening, non-blocking socket. A Unix socket's path is removed with it, unless another one stands
// there by then.
class Listener {
 public:
  // Errors: port 25; the address is in use (named, with what to do); a path that is no socket. A Unix socket
  // left behind by a dead server is replaced; one that answers is not.
  static Result<Listener> bind(const ListenAddress& address);
  // One of `passed` that listens at that address already, taken out of it; nullopt: none does. Its path stays
  // when this one ends: it is its maker's. Errors: it is no listening stream socket.
  static Result<std::optional<Listener>> adopt(const ListenAddress& address, std::vector<Fd>& passed);
  // In a process forked from the owner of the socket: the same socket, which stays the owner's, with these
  // rules.
  Listener inherit(const ListenRules& rules) const;
  bool is_listening() const;
  // Whether nobody can come to a Unix socket any more: its path was removed, or is another one's.
  bool has_lost_path() const;
  bool is_adopted() const { return shared_; }
  // And its own copy goes there, without any effect on the socket.
  void let_go() { fd_.reset(); }
  // Who may connect to a Unix socket, from now on. Of another one nothing.
  Status set_access(unsigned mode, std::optional<std::uint32_t> gid);
  // Nobody listens there any more. Connections that nobody has taken are reset, also where other processes
  // hold the socket; unless it was adopted, or inherited.
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
  bool shared_ = false;       // others hold it too: it is not to be shut down
  std::string path_;          // to be removed with it
  std::string adopted_path_;  // which is its maker's
  std::uint64_t device_ = 0;  // of the path, to know it again
  std::uint64_t inode_ = 0;
};

}  // namespace twinloft::lmtpd
