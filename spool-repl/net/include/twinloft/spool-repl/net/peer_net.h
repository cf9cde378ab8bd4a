// All connections of a volume to its peers: listens, dials repeatedly, sends and receives messages.
//
// The replica with the lower id dials. All calls are on the loop's thread. Names are looked up on other
// threads, at each attempt, so that a changed address is followed. If listening fails, it is tried again.
//
// A connection is `up` once data of full size has arrived in both directions, so that no client waits for a
// path that drops large packets. After each connection without such data, the next attempt waits longer.
//
// Unauthenticated callers have limits: connections of each address and of all, time, and lines in the log. If
// there are too many, the oldest connection of the address with most of them is closed. A peer needs two
// round trips to authenticate, so other callers cannot keep it out.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/wire.h"
#include "twinloft/spool-repl/net/address.h"
#include "twinloft/spool-repl/net/handshake.h"
#include "twinloft/spool-repl/net/security.h"
#include "twinloft/spool-repl/ports/loop.h"
#include "twinloft/spool-repl/stream/packed_stream.h"
#include "twinloft/spool-repl/stream/paths_stream.h"

namespace twinloft::repl::net {

class Connection;
class FirstBytes;
class LinkStreams;
class Listener;
class NameLookup;
class PathCalls;
class ShortRecord;
enum class Way;

struct NetPeer {
  ReplicaId id = 0;
  // At least one. Several: each is a path of the same link, the preferred one first. At most paths_max.
  std::vector<std::string> addresses;
  std::string certificate_name = {};  // a host; empty: certificate_name() of security.h
  bool direct_cable = false;          // clear text. The addresses are numeric
  bool needs_tls = false;             // clear text is refused, also at a loopback address
  stream::Packing packing = {};
  stream::Rate rate = {};
  stream::PathUse paths = {};
};

// A path of a link that may have several.
struct PathStatus {
  enum class State { down, trial, usable };
  unsigned number = 0;
  std::string address;  // as configured, or where the caller is
  State state = State::down;
  bool carries = false;                  // what is sent to the peer
  std::string why = {};                  // it is down. Empty: no call has failed yet
  std::uint64_t sent = 0, received = 0;  // bytes
  std::optional<Duration> round_trip = {};
};

struct NetOptions {
  Identity self;
  std::vector<std::string> listen;  // addresses, at least one
  LinkSecurity security;
  std::vector<NetPeer> peers;
  std::shared_ptr<stream::WorkPool> pool = {};  // null: nothing is compressed, nor accepted compressed
  std::shared_ptr<stream::SharedBandwidth> bandwidth = {};  // of the process; null: no limit
  Duration timeout = std::chrono::seconds(6);        // without a message of the peer, until it counts as lost
  Duration handshake = std::chrono::seconds(3);      // for a caller's authentication; at most `timeout`
  std::size_t unsent_bytes_max = 128u << 20;         // for an authenticated peer that does not read
  Duration redial = std::chrono::milliseconds(500);  // after a lost connection
  Duration redial_refused = std::chrono::seconds(3);    // after a refusal by either side
  Duration redial_max = std::chrono::seconds(60);       // after connections without data of full size
  Duration lookup_pause_max = std::chrono::seconds(5);  // after failed look-ups of names
  Duration listen_again = std::chrono::seconds(1);
  Duration first_bytes = std::chrono::milliseconds(500);  // of a caller, if old releases are accepted
  std::function<Result<std::vector<Address>>(const std::string&)> resolve = resolve_all;  // called on any
                                                                                          // thread
};

// Called from the loop, and not within a call of the owner: if send() or flush() detects a broken connection,
// `down` comes in a later turn, since the owner may free the memory of the batch in its answer.
struct NetEvents {
  std::function<void(ReplicaId)> up;
  std::function<void(ReplicaId)> down;
  std::function<void(ReplicaId, PeerMessage)> message;
  // A connection has failed, with the reason; a repeated reason is reported once. 0: of a caller that is not
  // a known peer.
  std::function<void(ReplicaId, const std::string&)> notice;
  // An authenticated peer has other settings. Called at each attempt.
  std::function<void(ReplicaId, const std::string&, bool other_arbiter)> unfit{};
};

class PeerNet {
 public:
  PeerNet(ports::Loop& loop, NetOptions options, Random& random, NetEvents events);
  ~PeerNet();
  PeerNet(const PeerNet&) = delete;
  PeerNet& operator=(const PeerNet&) = delete;

  // Starts dialing and listening. Errors: Errc::invalid (a wrong address, or clear text where it is not
  // allowed).
  Status start();

  void send(ReplicaId peer, const PeerMessage& message);
  // Sends a RecordMessage without a copy of its body. `pieces` must stay unchanged until flush().
  void send_record(ReplicaId peer, const Epoch& epoch, std::uint32_t meta_bytes,
                   std::span<const ByteSpan> pieces);
  void flush();
  void close(ReplicaId peer, const std::string& reason);  // the peer is dialed again after redial_refused
  // An unwanted peer's connection is closed; it is not dialed, and its calls are refused. At first, all peers
  // are wanted.
  void set_wanted(ReplicaId peer, bool wanted);
  bool is_wanted(ReplicaId peer) const;
  // For later connections, and for the further paths of this one. Valid by check_address().
  void set_addresses(ReplicaId peer, const std::vector<std::string>& addresses);
  void set_path_use(ReplicaId peer, stream::PathUse use);
  // For later connections.
  void set_security(LinkSecurity security);
  void set_packing(ReplicaId peer, const stream::Packing& packing);  // for later messages
  void set_rate(ReplicaId peer, stream::Rate rate);                  // likewise
  // Why the peer is not connected: its last notice, why listening fails, or which name is being looked up.
  // Empty while it is connected, and before the first attempt.
  std::string trouble(ReplicaId peer) const;
  // Nothing: the peer is not connected.
  std::optional<LinkProtection> protection(ReplicaId peer) const;
  // Nothing: the peer is not connected, or its release has no frames.
  std::optional<stream::PackingStatus> packing_status(ReplicaId peer) const;
  // By number. Empty: the peer is not connected, or its link is not one of several paths.
  std::vector<PathStatus> paths(ReplicaId peer) const;
  std::uint64_t features(ReplicaId peer) const;  // that a connected peer offers (handshake.h). 0: not
                                                 // connected

 private:
  struct Peer {
    NetPeer config;
    std::shared_ptr<Connection> connection;  // dialing or established
    ports::Loop::TimerId redial_timer = 0;
    bool up = false;
    bool wanted = true;
    bool looking_up = false;
    bool is_old = false;                     // the last connection found a release without TLS
    bool has_spoken_tls = false;             // since the start of this process: it is no old release any more
    unsigned attempts = 0;                   // each with the next address
    unsigned number = 0;                     // of the address that was dialed last
    std::unique_ptr<PathCalls> calls;        // of a link with several paths that this side has dialed
    std::map<unsigned, std::string> places;  // of its paths: where they lead
    std::string first_place;                 // of the link's first path: where it leads
    std::map<unsigned, std::string> lost;    // why they were lost
    unsigned lookups_failed = 0, stuck = 0;  // one after the other
    Instant up_since;
    std::string last_notice;
  };
  struct Caller {  // an accepted connection before the end of its handshake, in order of arrival
    std::shared_ptr<Connection> connection;
    std::string host;
  };
  struct Joining {  // a further path, from its handshake to the next turn
    std::shared_ptr<Connection> connection;
    bool dialed = false;
    std::string place;  // where it leads
  };
  void send_copy(Peer& peer, const RecordMessage& message);
  void send_record(Peer& peer, const Epoch& epoch, std::uint32_t meta_bytes,
                   std::span<const ByteSpan> pieces);
  void take_caller(Fd fd, const sockaddr_storage& from);
  void take_caller(Fd fd, const sockaddr_storage& from, Way way);
  void on_first_bytes(Fd fd, const sockaddr_storage& from, bool has_spoken);
  void make_room(const std::string& host);
  // dialed_peer: null for a caller.
  std::shared_ptr<Connection> make_connection(Fd fd, std::string name, Way way, const sockaddr_storage& other,
                                              const Peer* dialed_peer, const JoinPath* join);
  bool is_caller(const Connection& connection) const;
  static LinkProtection protection_of(const Connection& connection);
  void look_for_old_release(Peer& peer, const Connection& connection);
  void dial(Peer& peer);
  void on_found(Peer& peer, const Result<std::vector<Address>>& found);
  void connect(Peer& peer, const Address& address);
  using Found = std::function<void(const Result<std::vector<Address>>&)>;
  void find_addresses(const std::string& text, Found then);
  Result<std::shared_ptr<Connection>> call(Peer& peer, const Address& address,
                                           const JoinPath* join = nullptr);
  void call_further_paths(Peer& peer);
  static bool is_stale(const Peer& peer, unsigned number);
  static void drop_stale_paths(Peer& peer);
  void on_joining(Connection& connection);
  void take_path(Connection& connection);
  void join(Joining& joining);
  void on_path_usable(Connection& connection, unsigned number);
  void on_path_lost(Connection& connection, const stream::PathsStream::LostPath& path);
  std::string place_of(const Peer& peer, unsigned number) const;
  std::string path_text(const Peer& peer, unsigned number) const;
  bool dials(const Peer& peer) const { return options_.self.replica < peer.config.id; }
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
  const Peer* find(ReplicaId id) const;
  Peer* owner_of(const Connection& connection);

  ports::Loop& loop_;
  NetOptions options_;
  Random& random_;
  NetEvents events_;
  std::unique_ptr<NameLookup> lookup_;
  std::unique_ptr<LinkStreams> streams_;
  std::unique_ptr<FirstBytes> undecided_;
  std::unique_ptr<ShortRecord> shorter_;  // of the record that is being sent
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<Peer> peers_;
  std::vector<Caller> callers_;
  std::vector<Joining> joining_;
  std::vector<ReplicaId> downs_;                               // to be reported by `down`
  std::vector<std::vector<std::byte>> encoded_;                // payloads of the batch between two flushes
  unsigned caller_notices_ = 0, caller_notices_left_out_ = 0;  // of this minute
  Instant caller_notices_since_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // posted calls do nothing after the object is
                                                                // destroyed
};

}  // namespace twinloft::repl::net
