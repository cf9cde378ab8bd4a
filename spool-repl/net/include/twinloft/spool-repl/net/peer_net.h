// All connections of one volume to its peers: listening, dialing again and again, messages in and out.
//
// Of two replicas the one with the lower id dials. Everything happens on the loop's thread, except that names
// are looked up on threads of their own: at each attempt, so that a changed address is followed. What cannot
// be listened on now is tried again.
//
// A connection is `up` once data of full size has got through in both directions: nobody waits for a path
// that drops it. After a connection over which data did not get through, the next attempt waits longer each
// time.
//
// Callers that have not proved themselves get little: a few connections for each address and for all of them,
// a short time, a few lines in the log. Where there are too many, the oldest one of the address with the most
// goes: the peer proves itself within a round trip, so it gets through whatever other callers do.
#pragma once

#include <functional>
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
class NameLookup;

struct NetPeer {
  ReplicaId id = 0;
  std::string address;
};

struct NetOptions {
  Identity self;
  std::string listen;
  std::string secret;  // empty: loopback addresses only
  std::vector<NetPeer> peers;
  Duration timeout = std::chrono::seconds(6);         // without a word from the peer: it is lost
  Duration handshake = std::chrono::seconds(3);       // what a caller has to prove itself, at most `timeout`
  std::size_t unsent_bytes_max = 128u << 20;          // that an established peer does not take
  Duration redial = std::chrono::milliseconds(500);   // after a lost connection
  Duration redial_refused = std::chrono::seconds(3);  // after a refusal by either side
  Duration redial_max = std::chrono::seconds(60);     // after connections over which data did not get through
  Duration lookup_pause_max = std::chrono::seconds(5);  // after names that could not be looked up
  Duration listen_again = std::chrono::seconds(1);
  std::function<Result<std::vector<Address>>(const std::string&)> resolve = resolve_all;  // called on any
                                                                                          // thread
};

// All of them come from the loop, none from within a call of the owner's: where send() or flush() finds a
// connection broken, `down` comes on a later turn. What the owner hands over in one go rests on memory that
// its answer may free.
struct NetEvents {
  std::function<void(ReplicaId)> up;
  std::function<void(ReplicaId)> down;
  std::function<void(ReplicaId, PeerMessage)> message;
  // A connection failed, and why; each reason once in a row. 0: of a caller that is not known to be a peer.
  std::function<void(ReplicaId, const std::string&)> notice;
  // A peer has proved itself, and is configured otherwise. Told at each attempt.
  std::function<void(ReplicaId, const std::string&, bool other_arbiter)> unfit{};
};

class PeerNet {
 public:
  PeerNet(ports::Loop& loop, NetOptions options, Random& random, NetEvents events);
  ~PeerNet();
  PeerNet(const PeerNet&) = delete;
  PeerNet& operator=(const PeerNet&) = delete;

  // Errors: Errc::invalid (no address, or no secret and not loopback). Starts dialing, and listening as soon
  // as that is possible.
  Status start();

  void send(ReplicaId peer, const PeerMessage& message);
  // A RecordMessage whose body lies elsewhere; `pieces` must stay unchanged until flush().
  void send_record(ReplicaId peer, const Epoch& epoch, std::uint32_t meta_bytes,
                   std::span<const ByteSpan> pieces);
  void flush();
  void close(ReplicaId peer, const std::string& reason);  // by our own decision: dialed again after
                                                          // redial_refused
  // Unwanted: closed, not dialed, and a call from there is refused. All peers are wanted at first.
  void set_wanted(ReplicaId peer, bool wanted);
  bool is_wanted(ReplicaId peer) const;
  // Both are for connections to come. `address` is one that check_address() takes.
  void set_address(ReplicaId peer, const std::string& address);
  void set_secret(const std::string& secret) { options_.secret = secret; }
  // Why there is no connection: the last notice of that peer, why nobody can call here, or whose name is
  // being looked up. Empty while there is a connection, and before anything was tried.
  std::string trouble(ReplicaId peer) const;

 private:
  struct Peer {
    NetPeer config;
    std::shared_ptr<Connection> connection;  // dialing or established
    ports::Loop::TimerId redial_timer = 0;
    bool up = false;
    bool wanted = true;
    bool looking_up = false;
    unsigned attempts = 0;                   // with the addresses of its name in turn
    unsigned lookups_failed = 0, stuck = 0;  // in a row
    Instant up_since;
    std::string last_notice;
  };
  struct Caller {  // accepted, handshake not finished; in order of arrival
    std::shared_ptr<Connection> connection;
    std::string host;
  };
  Status check_secret(const Address& address) const;
  void listen();
  void listen_on(const Result<std::vector<Address>>& found);
  Status try_listen(const Address& address);
  void on_accept();
  void take_caller(Fd fd, const sockaddr_storage& from);
  void make_room(const std::string& host);
  void pause_accepting(int error);
  std::shared_ptr<Connection> make_connection(Fd fd, std::string name, Handshake::Direction direction,
                                              ReplicaId expect);
  void dial(Peer& peer);
  void on_found(Peer& peer, const Result<std::vector<Address>>& found);
  void connect(Peer& peer, const Address& address);
  Duration pause_after(Peer& peer, const Connection& connection);
  void redial_later(Peer& peer, Duration delay);
  void on_established(Connection& connection);
  void on_ready(Connection& connection);
  void on_closed(Connection& connection, const std::string& reason);
  void retire(Connection& connection);
  void notice(Peer& peer, const std::string& text);
  void notice_of_caller(const std::string& text);
  void deliver_downs();
  bool tell_unfit(const Connection& connection, const std::string& reason);
  Peer* find(ReplicaId id);
  Peer* owner_of(const Connection& connection);

  ports::Loop& loop_;
  NetOptions options_;
  Random& random_;
  NetEvents events_;
  std::unique_ptr<NameLookup> lookup_;
  Fd listener_;
  ports::Loop::TimerId listen_timer_ = 0;
  std::string listen_trouble_;
  std::vector<Peer> peers_;
  std::vector<Caller> callers_;
  std::vector<ReplicaId> downs_;                 // to be told
  std::vector<std::vector<std::byte>> encoded_;  // payloads of the batch between two flushes
  ports::Loop::TimerId accept_timer_ = 0;
  unsigned caller_notices_ = 0, caller_notices_left_out_ = 0;  // of this minute
  Instant caller_notices_since_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // posted calls look at it first
};

}  // namespace twinloft::repl::net
