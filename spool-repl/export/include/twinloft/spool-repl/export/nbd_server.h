// NBD server in front of a BlockTarget (DESIGN 6.6).
//
// Serves any number of connections on the owner thread's loop. Each may have many requests in flight; beyond
// the bounds the server stops reading from it. A write reaches the target only when all of its data has
// arrived. Requests longer than the target takes at once are cut into pieces. There is no TLS yet: the daemon
// listens on loopback or a Unix socket unless told otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/base/unix_socket.h"
#include "twinloft/spool-repl/export/buffer_pool.h"
#include "twinloft/spool-repl/export/nbd_handshake.h"
#include "twinloft/spool-repl/ports/block_target.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::nbd {

struct ServerOptions {
  // Which export names lead to the target. The daemon's carry the epoch's id, so that a client which
  // reconnects after a failover finds no export rather than a device whose completed writes are gone.
  std::function<bool(std::string_view name)> accepts_name;
  std::function<std::vector<std::string>()> list_names;  // empty: clients may not list

  unsigned max_connections = 64;
  unsigned max_connections_per_address = 32;  // over TCP; of IPv6, the network of 64 bits
  // Over TCP: a client that does not answer the kernel's probes for so long is gone, whether or not anything
  // is under way. A client that answers may be idle without an end: a mounted device is, at night.
  std::chrono::seconds silence{30};
  unsigned max_requests = 128;        // in flight per connection
  std::size_t max_bytes = 40u << 20;  // of data in flight per connection; at least one request is always
                                      // taken
  std::size_t retained_buffer_bytes = 16u << 20;
  Duration handshake_timeout = std::chrono::seconds(30);
  Duration stop_timeout = std::chrono::seconds(5);  // for clients that do not take their last replies
  // True: the owner calls flush() after each batch of completions. False: the server does so by itself, a
  // turn later.
  bool owner_flushes = false;
};

struct ServerCounters {
  std::uint64_t connections = 0;      // accepted since the start
  std::uint64_t requests = 0;         // answered
  std::uint64_t errors = 0;           // answered with an error
  std::uint64_t protocol_errors = 0;  // connections closed for breaking the protocol
};

class Connection;

class Server {
 public:
  // `loop` and `target` must outlive the server.
  Server(ports::Loop& loop, ports::BlockTarget& target, ServerOptions options);
  // After stop() has called back, or at once if nothing is in flight with the target (a check fails
  // otherwise).
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Several may be given. `host` is a numeric address; port 0 takes a free one. Returns the port.
  // Errors: invalid address; address in use; no permission.
  Result<std::uint16_t> listen_tcp(const std::string& host, std::uint16_t port);
  // Mode 0600. A socket that nobody listens on any more is replaced; any other file is left alone.
  Status listen_unix(const std::string& path);

  // Sends the replies that are ready, of all connections.
  void flush();

  // No new connections; requests not yet given to the target are answered ESHUTDOWN, the others are finished.
  // `stopped` is called once, from the loop, when no request is in flight and every connection is closed.
  void stop(std::function<void()> stopped);

  std::size_t connections() const { return connections_.size(); }
  const ServerCounters& counters() const { return counters_; }

 private:
  friend class Connection;
  struct Listener;

  Status add_listener(Fd fd, const std::string& name, SocketFile file);
  void on_accept(Listener& listener);
  void pause_accepting(Listener& listener);
  void add_connection(Fd fd, std::string address);
  bool has_room(const std::string& address);
  void wants_flush(Connection& c);
  void finished(Connection& c);  // closed, and nothing of it is with the target: it may go
  void check_stopped();

  ports::Loop& loop_;
  ports::BlockTarget& target_;
  ServerOptions options_;
  Exports exports_;
  exports::BufferPool pool_;
  ServerCounters counters_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::map<Connection*, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> gone_;  // freed from the loop, when none of their code is running
  std::vector<Connection*> dirty_, flushing_;
  Instant next_refusal_told_;
  bool reap_posted_ = false;
  bool flush_posted_ = false;
  bool stopping_ = false;
  std::function<void()> stopped_;
  ports::Loop::TimerId stop_timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // posted calls look at it first
};

}  // namespace twinloft::repl::nbd
