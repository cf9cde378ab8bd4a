// A connection to a peer over a stream: handshake, trial, framing, liveness. PeerNet owns it.
//
//   opening -> handshake -> trial -> ready
//                        -> path: the stream belongs to another connection from now on
//
// In the trial, each side sends packets of full size, and confirms those of the other side, since a network
// path may pass the handshake and drop full packets.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "twinloft/base/backlog.h"
#include "twinloft/spool-repl/net/handshake.h"
#include "twinloft/spool-repl/net/peer_net.h"
#include "twinloft/spool-repl/stream/packed_stream.h"
#include "twinloft/spool-repl/stream/paths_stream.h"

namespace twinloft::repl::net {

class Connection {
 public:
  struct Events {
    // The peer is known, and the trial begins. Or it is a further path of a link: then the owner calls
    // accept_path() or close().
    std::function<void(Connection&)> established;
    std::function<void(Connection&)> ready;  // data has arrived in both directions: the owner may send from
                                             // now on
    std::function<void(Connection&, PeerMessage)> message;
    // The last call. The owner may destroy the connection in a later turn. It may come within send() and
    // flush().
    std::function<void(Connection&, const std::string& reason)> closed;
    // Of a link with several paths, see PathsStream::PathEvents.
    std::function<void(Connection&, unsigned number)> path_usable = {};
    std::function<void(Connection&, const stream::PathsStream::LostPath&)> path_lost = {};
  };
  struct Limits {
    Duration timeout;              // without input, after the handshake
    Duration handshake;            // for the whole handshake, with connect(2) and TLS
    std::size_t unsent_bytes_max;  // with more, the connection is closed
    stream::PathUse paths = stream::PathUse::spares;
    // Of one of several paths: long enough for a slow line.
    Duration path_patience = std::clamp<Duration>(
        timeout / 6, std::min<Duration>(timeout / 2, std::chrono::seconds(1)), std::chrono::seconds(5));
  };
  // What is taken from a connection that was a further path's.
  struct TakenPath {
    std::unique_ptr<stream::Stream> stream;
    std::vector<std::byte> received, unsent;
  };

  // Starts `line`. If it is open already, the handshake begins at once, and may fail at once. pool: null, if
  // nothing is ever compressed. number: of the line's path, among several.
  Connection(ports::Loop& loop, std::unique_ptr<stream::Stream> line, std::shared_ptr<stream::WorkPool> pool,
             std::string name, Handshake handshake, Limits limits, Events events, unsigned number = 0);
  ~Connection();

  void send(std::uint16_t type, std::span<const ByteSpan> payload);  // the memory must stay until flush()
  void flush();
  void close(const std::string& reason);
  bool is_open() const { return stream_->state() != stream::Stream::State::closed; }
  bool is_established() const { return phase_ == Phase::trial || phase_ == Phase::ready; }
  // It was closed since data did not get through, or nothing arrived any more. Another connection would fail
  // in the same way.
  bool was_stuck() const { return stuck_; }
  ReplicaId peer() const { return handshake_.peer(); }
  std::uint64_t features() const { return handshake_.features(); }
  bool disagrees() const { return handshake_.disagrees(); }  // see Handshake
  bool is_of_old_release() const { return handshake_.is_old(); }
  // A further path of a link: says so to the other side, and reads no more until take_path().
  void accept_path();
  // In a later turn than accept_path(). The connection is closed then, without an event.
  TakenPath take_path();
  const std::optional<JoinPath>& joined() const { return handshake_.joined(); }
  LinkKey link_key() const { return handshake_.link_key(); }
  // Whether it may have several paths.
  bool has_paths() const { return paths_->has_begun(); }
  stream::PathsStream& paths() { return *paths_; }
  const stream::PathsStream& paths() const { return *paths_; }
  // For later messages. Without an effect if the peer's release has no frames.
  void set_packing(const stream::Packing& packing) { stream_->set_packing(packing); }
  void set_shaping(const stream::Shaping& shaping) { stream_->set_shaping(shaping); }
  bool has_frames() const { return stream_->has_frames(); }
  stream::PackingStatus packing_status() const { return stream_->packing_status(); }
  bool has_other_arbiter() const { return handshake_.has_other_arbiter(); }
  const std::string& name() const { return name_; }

 private:
  enum class Phase { opening, handshake, trial, ready, path };
  void on_ready(unsigned ready);
  void on_opened(Status opened);
  void begin_handshake();
  void on_readable();
  std::string why_it_ended() const;
  bool take_messages();
  void take(const WireHeader& header, ByteSpan payload);
  void send_handshake();
  void take_handshake(const WireHeader& header, ByteSpan payload);
  void begin_paths(std::size_t end_of_hello);
  Status begin_frames(std::size_t end_of_hello);
  std::vector<std::byte> take_unsent();
  void keep_alive();
  void begin_trial();
  void take_trial(std::uint16_t type, ByteSpan payload);
  Instant deadline() const;
  void arm_timer();
  void on_timer();
  std::size_t unsent_bytes() const { return backlog_.bytes(); }
  void keep(std::size_t skip_bytes);

  ports::Loop& loop_;
  stream::PathsStream* paths_;  // below the frames
  std::unique_ptr<stream::PackedStream> stream_;
  unsigned number_;
  Phase phase_ = Phase::opening;
  std::string name_;
  Handshake handshake_;
  Limits limits_;
  Events events_;
  bool trial_taken_ = false, trial_seen_ = false;  // the peer has confirmed this side's trial; the peer's
                                                   // trial has arrived
  bool stuck_ = false;
  ports::Loop::TimerId timer_ = 0;
  std::uint64_t line_sent_ = 0;        // bytes, at the last timer
  Instant line_sent_at_;               // the timer before which the last of them were sent
  Instant last_received_, last_sent_;  // in the trial, `last_received_` is its begin
  std::vector<std::byte> in_;
  std::size_t in_begin_ = 0, in_end_ = 0;
  // The batch between two flushes. Headers are stored here, payload stays in its place.
  std::vector<std::array<std::byte, wire_header_bytes>> headers_;
  struct Part {
    std::size_t header;  // index into headers_, SIZE_MAX: bytes
    ByteSpan bytes;
  };
  std::vector<Part> batch_;
  Backlog backlog_;         // the bytes that the stream has not accepted
  bool full_ = false;       // the stream has accepted a part: wait until it is writable
  std::vector<iovec> iov_;  // keeps its memory between flushes
};

}  // namespace twinloft::repl::net
