// All connections of one volume to its peers: listening, dialing again and again, messages in and out.
//
// Of two replicas the one with the lower id dials. Everything happens on the loop's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/wire.h"
#include "twinloft/spool-repl/net/address.h"
#include "twinloft/spool-repl/net/handshake.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::net {

class Connection;

struct NetPeer {
  ReplicaId id = 0;
  Address address;
};

struct NetOptions {
  Identity self;
  Address listen;
  std::string secret;  // empty: loopback addresses only
  std::vector<NetPeer> peers;
  Duration timeout = std::chrono::seconds(6);         // without a word from the peer: it is lost
  Duration redial = std::chrono::milliseconds(500);   // after a lost connection
  Duration redial_refused = std::chrono::seconds(3);  // after a refusal by either side
};

struct NetEvents {
  std::function<void(ReplicaId)> up;
  std::function<void(ReplicaId)> down;
  std::function<void(ReplicaId, PeerMessage)> message;
  // A connection failed, and why; each reason once in a row. 0: of a caller that is not known to be a peer.
  std::function<void(ReplicaId, const std::string&)> notice;
};

class PeerNet {
 public:
  PeerNet(ports::Loop& loop, NetOptions options, Random& random, NetEvents events);
  ~PeerNet();
  PeerNet(const PeerNet&) = delete;
  PeerNet& operator=(const PeerNet&) = delete;

  // Errors: Errc::invalid (no secret and not loopback), Errc::unavailable (address in use). Starts dialing.
  Status start();

  void send(ReplicaId peer, const PeerMessage& message);
  // A RecordMessage whose body lies elsewhere; `pieces` must stay unchanged until flush().
  void send_record(ReplicaId peer, const Epoch& epoch, std::uint32_t meta_bytes, std::span<const ByteSpan> pieces);
  void flush();
  void close(ReplicaId peer, const std::string& reason);  // by our own decision: dialed again after redial_refused
  // Unwanted: closed, not dialed, and a call from there is refused. All peers are wanted at first.
  void set_wanted(ReplicaId peer, bool wanted);
  bool is_wanted(ReplicaId peer) const;

 private:
  struct Peer {
    NetPeer config;
    std::shared_ptr<Connection> connection;  // dialing or established
    ports::Loop::TimerId redial_timer = 0;
    bool up = false;
    bool wanted = true;
  };
  void on_accept();
  void dial(Peer& peer);
  void redial_later(Peer& peer, Duration delay);
  void on_established(Connection& connection);
  void on_closed(Connection& connection, const std::string& reason);
  void retire(Connection& connection);
  void notice(ReplicaId peer, const std::string& text);
  Peer* find(ReplicaId id);
  Peer* owner_of(const Connection& connection);

  ports::Loop& loop_;
  NetOptions options_;
  Random& random_;
  NetEvents events_;
  Fd listener_;
  std::vector<Peer> peers_;
  std::vector<std::shared_ptr<Connection>> callers_;  // accepted, handshake not finished
  std::vector<std::vector<std::byte>> encoded_;       // payloads of the batch between two flushes
  std::string last_notice_;
};

}  // namespace twinloft::repl::net
