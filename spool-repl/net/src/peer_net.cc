#include "twinloft/spool-repl/net/peer_net.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "connection.h"

namespace twinloft::repl::net {

namespace {
constexpr std::size_t callers_max = 16;  // connections that have not proved themselves
}

PeerNet::PeerNet(ports::Loop& loop, NetOptions options, Random& random, NetEvents events)
    : loop_(loop), options_(std::move(options)), random_(random), events_(std::move(events)) {
  for (const NetPeer& p : options_.peers) peers_.push_back({p, nullptr, 0, false});
}

PeerNet::~PeerNet() {
  for (Peer& p : peers_)
    if (p.redial_timer) loop_.cancel(p.redial_timer);
  if (listener_) loop_.unwatch(listener_.get());
}

Status PeerNet::start() {
  if (options_.secret.empty()) {
    bool outside = !options_.listen.is_loopback();
    for (const NetPeer& p : options_.peers) outside = outside || !p.address.is_loopback();
    if (outside)
      return fail(Errc::invalid, "replication over {} needs a shared secret (`secret_file`): without one only loopback "
                  "addresses are used", options_.listen.text);
  }
  Fd fd(::socket(options_.listen.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "socket");
  int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&options_.listen.storage), options_.listen.length) < 0)
    return fail_errno(errno, "cannot listen on {} for replication", options_.listen.text);
  if (::listen(fd.get(), 16) < 0) return fail_errno(errno, "cannot listen on {}", options_.listen.text);
  listener_ = std::move(fd);
  loop_.watch(listener_.get(), ports::Loop::readable, [this](unsigned) { on_accept(); });
  for (Peer& p : peers_)
    if (options_.self.replica < p.config.id) dial(p);
  return {};
}

PeerNet::Peer* PeerNet::find(ReplicaId id) {
  auto it = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.config.id == id; });
  return it == peers_.end() ? nullptr : &*it;
}

PeerNet::Peer* PeerNet::owner_of(const Connection& c) {
  auto it = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.connection.get() == &c; });
  return it == peers_.end() ? nullptr : &*it;
}

void PeerNet::notice(ReplicaId peer, const std::string& text) {
  if (text == last_notice_) return;
  last_notice_ = text;
  events_.notice(peer, text);
}

void PeerNet::on_accept() {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) return;
  if (callers_.size() >= callers_max) return notice(0, "too many unproved connections at once: one was dropped");
  callers_.push_back(std::make_shared<Connection>(
      loop_, std::move(fd), false, "the caller",
      Handshake(options_.self, options_.secret, Handshake::Direction::accepted, 0, random_), options_.timeout,
      Connection::Events{[this](Connection& c) { on_established(c); },
                         [this](Connection& c, PeerMessage m) { events_.message(c.peer(), std::move(m)); },
                         [this](Connection& c, const std::string& why) { on_closed(c, why); }}));
  if (!callers_.back()->is_open()) callers_.pop_back();  // failed before it was ours to retire
}

void PeerNet::dial(Peer& p) {
  p.redial_timer = 0;
  if (p.connection || !p.wanted) return;
  Fd fd(::socket(p.config.address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return redial_later(p, options_.redial);
  int rc = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&p.config.address.storage), p.config.address.length);
  if (rc < 0 && errno != EINPROGRESS) {
    notice(p.config.id, fail_errno(errno, "cannot connect to {}", p.config.address.text).error().message);
    return redial_later(p, options_.redial);
  }
  p.connection = std::make_shared<Connection>(
      loop_, std::move(fd), true, fmt::format("replica {} at {}", p.config.id, p.config.address.text),
      Handshake(options_.self, options_.secret, Handshake::Direction::dialed, p.config.id, random_), options_.timeout,
      Connection::Events{[this](Connection& c) { on_established(c); },
                         [this](Connection& c, PeerMessage m) { events_.message(c.peer(), std::move(m)); },
                         [this](Connection& c, const std::string& why) { on_closed(c, why); }});
  if (!p.connection->is_open()) {
    p.connection = nullptr;
    redial_later(p, options_.redial);
  }
}

void PeerNet::redial_later(Peer& p, Duration delay) {
  if (options_.self.replica > p.config.id || p.redial_timer) return;
  p.redial_timer = loop_.after(delay, [this, id = p.config.id] { dial(*find(id)); });
}

void PeerNet::on_established(Connection& c) {
  Peer* p = find(c.peer());
  if (!p) return c.close(fmt::format("replica {} is not a peer of this volume", c.peer()));
  if (!p->wanted) return c.close(fmt::format("replica {} was disconnected here by the administrator", c.peer()));
  auto caller = std::find_if(callers_.begin(), callers_.end(), [&](const auto& k) { return k.get() == &c; });
  if (caller != callers_.end()) {
    // The same peer calls again while its old connection stands: that one is dead and nobody noticed.
    if (p->connection) p->connection->close("replaced by a newer connection");
    p->connection = std::move(*caller);
    callers_.erase(caller);
  }
  p->up = true;
  last_notice_.clear();
  events_.up(p->config.id);
}

// The connection is still on the stack: it goes on a later turn.
void PeerNet::retire(Connection& c) {
  std::shared_ptr<Connection> keep;
  auto caller = std::find_if(callers_.begin(), callers_.end(), [&](const auto& k) { return k.get() == &c; });
  if (caller != callers_.end()) {
    keep = std::move(*caller);
    callers_.erase(caller);
  } else if (Peer* p = owner_of(c)) {
    keep = std::move(p->connection);
    p->connection = nullptr;
  }
  if (keep) loop_.post([keep = std::move(keep)] {});
}

void PeerNet::on_closed(Connection& c, const std::string& reason) {
  Peer* p = owner_of(c);
  notice(p ? p->config.id : 0, reason);
  retire(c);
  if (!p) return;
  bool was_up = std::exchange(p->up, false);
  redial_later(*p, c.is_established() ? options_.redial : options_.redial * 2);
  if (was_up) events_.down(p->config.id);
}

void PeerNet::close(ReplicaId id, const std::string& reason) {
  Peer* p = find(id);
  if (!p || !p->connection) return;
  redial_later(*p, options_.redial_refused);
  p->connection->flush();
  if (p->connection) p->connection->close(reason);
}

void PeerNet::set_wanted(ReplicaId id, bool wanted) {
  Peer* p = find(id);
  if (!p || p->wanted == wanted) return;
  p->wanted = wanted;
  if (wanted) redial_later(*p, Duration(0));
  else if (p->connection) p->connection->close("disconnected by the administrator");
}

bool PeerNet::is_wanted(ReplicaId id) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.config.id == id && p.wanted; });
}

void PeerNet::send(ReplicaId id, const PeerMessage& message) {
  Peer* p = find(id);
  if (!p || !p->up) return;
  auto& bytes = encoded_.emplace_back();
  encode_peer_message(message, bytes);
  ByteSpan payload = bytes;
  p->connection->send(wire_type(message), {&payload, 1});
}

void PeerNet::send_record(ReplicaId id, const Epoch& epoch, std::uint32_t meta_bytes, std::span<const ByteSpan> pieces) {
  Peer* p = find(id);
  if (!p || !p->up) return;
  static const std::uint16_t type = wire_type(PeerMessage(RecordMessage{}));
  auto& prefix = encoded_.emplace_back();
  encode_record_prefix(epoch, meta_bytes, prefix);
  std::vector<ByteSpan> payload{prefix};
  payload.insert(payload.end(), pieces.begin(), pieces.end());
  p->connection->send(type, payload);
}

void PeerNet::flush() {
  for (Peer& p : peers_)
    if (p.up && p.connection) p.connection->flush();
  encoded_.clear();
}

}  // namespace twinloft::repl::net
