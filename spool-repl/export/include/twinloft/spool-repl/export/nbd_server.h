// The NBD server of a BlockTarget.
//
// All connections are served on the owner thread's loop. A connection may have many requests in flight; at
// its limits, the server stops reading from it. A write is submitted to the target once all its data has
// arrived. Longer requests than io_max_length are split. With certificates, clients over TCP must use TLS and
// have a certificate. A Unix socket is for the users of its file, without TLS.
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
#include "twinloft/spool-repl/stream/tls_context.h"

namespace twinloft::repl::nbd {

struct ServerOptions {
  // Whether the target has this export name. The daemon's names contain the id of the epoch. A client that
  // reconnects after a failover finds no export, and not a device that lacks its completed writes.
  std::function<bool(std::string_view name)> accepts_name;
  std::function<std::vector<std::string>()> list_names;  // empty: LIST is refused

  unsigned max_connections = 64;
  unsigned max_connections_per_address = 32;  // over TCP; for IPv6, of a /64 network
  // Over TCP: a connection ends if the client's kernel does not answer the probes of TCP for this time. A
  // client that answers may be idle without limit, as a mounted device at night.
  std::chrono::seconds silence{30};
  unsigned max_requests = 128;        // in flight, of a connection
  std::size_t max_bytes = 40u << 20;  // of data in flight, of a connection. One request is always accepted
  std::size_t retained_buffer_bytes = 16u << 20;
  Duration handshake_timeout = std::chrono::seconds(30);
  Duration stop_timeout = std::chrono::seconds(5);  // for clients that do not read their last replies
  // True: the owner calls flush() after each batch of completions. False: the server calls it itself, one
  // turn later.
  bool owner_flushes = false;
  std::shared_ptr<const stream::TlsContext> tls = nullptr;  // for clients over TCP; null: without TLS
};

struct ServerCounters {
  std::uint64_t connections = 0;      // accepted since the start
  std::uint64_t requests = 0;         // answered
  std::uint64_t errors = 0;           // answered with an error
  std::uint64_t protocol_errors = 0;  // connections that violated the protocol
};

class Connection;

class Server {
 public:
  // `loop` and `target` must outlive the server.
  Server(ports::Loop& loop, ports::BlockTarget& target, ServerOptions options);
  // Allowed after stop() has called back, or while no request is in flight with the target. Otherwise a
  // TL_CHECK fails.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Listens at an address; may be called several times. host: a numeric address. port: 0 for any free port.
  // Returns the port. Errors: an invalid address, an address in use, no permission.
  Result<std::uint16_t> listen_tcp(const std::string& host, std::uint16_t port);
  // Listens at a Unix socket of mode 0600. The socket of an ended process is replaced. Errors: also any other
  // file at the path.
  Status listen_unix(const std::string& path);

  // For later connections, if there was TLS before.
  void set_tls(std::shared_ptr<const stream::TlsContext> tls);

  // Sends the completed replies of all connections.
  void flush();

  // Accepts no further connections, answers ESHUTDOWN to requests that the target has not received, and
  // completes the others. `stopped` is called once, from the loop, when every connection is closed.
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
  void finished(Connection& c);  // closed, without requests in flight: it may be destroyed
  void check_stopped();

  ports::Loop& loop_;
  ports::BlockTarget& target_;
  ServerOptions options_;
  Exports exports_;
  exports::BufferPool pool_;
  ServerCounters counters_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::map<Connection*, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> gone_;  // destroyed from the loop, outside of their own functions
  std::vector<Connection*> dirty_, flushing_;
  Instant next_refusal_told_;
  bool reap_posted_ = false;
  bool flush_posted_ = false;
  bool stopping_ = false;
  std::function<void()> stopped_;
  ports::Loop::TimerId stop_timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // posted calls do nothing after the server is
                                                                // destroyed
};

}  // namespace twinloft::repl::nbd
