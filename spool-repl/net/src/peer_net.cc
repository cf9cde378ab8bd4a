#include "twinloft/spool-repl/net/peer_net.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "connection.h"
#include "first_bytes.h"
#include "link_streams.h"
#include "name_lookup.h"
#include "short_record.h"
#include "twinloft/spool-repl/stream/tls_stream.h"

namespace twinloft::repl::net {

namespace {

constexpr std::size_t callers_max = 64;          // connections before the end of their handshake
constexpr std::size_t callers_per_host_max = 8;  // of these
constexpr int listen_backlog = 256;
constexpr unsigned caller_notices_max = 6;  // in caller_notice_time, so that strangers cannot fill the log
constexpr Duration caller_notice_time = std::chrono::minutes(1);
constexpr Duration accept_pause = std::chrono::milliseconds(200);
constexpr std::string_view old_greeting = "TLWR";          // a release without TLS speaks first
constexpr Duration steady_time = std::chrono::minutes(1);  // a connection with this age is stable

// The address by which callers are counted. For IPv6 it is the /64, which one subscriber has.
std::string host_of(sockaddr_storage from) {
  auto& six = reinterpret_cast<sockaddr_in6&>(from).sin6_addr;
  if (from.ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&six))
    std::fill(six.s6_addr + 8, six.s6_addr + 16, std::uint8_t{0});
  return host_text(from);
}

// Closes the connection if the peer's machine does not acknowledge data within `timeout`.
void set_options(int fd, Duration timeout) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  auto ms = static_cast<unsigned>(std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

// Without the cable's network, the route of last resort would lead to another machine.
void stay_on_cable(int fd) {
  int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_DONTROUTE, &one, sizeof one);
}

}  // namespace

PeerNet::PeerNet(ports::Loop& loop, NetOptions options, Random& random, NetEvents events)
    : loop_(loop),
      options_(std::move(options)),
      random_(random),
      events_(std::move(events)),
      lookup_(std::make_unique<NameLookup>(loop, options_.resolve)),
      streams_(std::make_unique<LinkStreams>(loop, options_.self.volume, options_.security)),
      undecided_(std::make_unique<FirstBytes>(loop, options_.first_bytes)),
      shorter_(std::make_unique<ShortRecord>()) {
  if (!options_.pool) options_.self.features &= (std::uint64_t{2} << codecs_shift) - 1;
  for (const NetPeer& p : options_.peers) {
    peers_.emplace_back().config = p;
    streams_->add_peer(p.id, p.certificate_name, p.direct_cable ? p.address : "");
    if (p.needs_tls) streams_->require_tls(p.id);
  }
}

PeerNet::~PeerNet() {
  for (Peer& p : peers_)
    if (p.redial_timer) loop_.cancel(p.redial_timer);
  if (accept_timer_) loop_.cancel(accept_timer_);
  if (listen_timer_) loop_.cancel(listen_timer_);
  if (listener_) loop_.unwatch(listener_.get());
}

void PeerNet::set_security(LinkSecurity security) {
  streams_->set_security(std::move(security));
  if (streams_->accepts_old()) return;
  for (Peer& p : peers_)
    if (p.connection && p.connection->is_of_old_release())
      p.connection->close(fmt::format("replica {} has no TLS, which is required from now on", p.config.id));
}

Status PeerNet::start() {
  TL_TRY(check_address(options_.listen));
  if (auto numeric = numeric_address(options_.listen)) TL_TRY(streams_->check_listen(*numeric));
  for (const NetPeer& p : options_.peers) {
    TL_TRY(check_address(p.address));
    if (auto numeric = numeric_address(p.address)) TL_TRY(streams_->way_to(p.id, *numeric));
  }
  listen();
  for (Peer& p : peers_)
    if (options_.self.replica < p.config.id) dial(p);
  return {};
}

// ---- listening

// Tried again, since the name may not resolve yet, the address may be missing yet, and an earlier process
// that was killed may still have the address.
void PeerNet::listen() {
  listen_timer_ = 0;
  if (auto numeric = numeric_address(options_.listen)) return listen_on(std::vector<Address>{*numeric});
  lookup_->start(options_.listen, [this](Result<std::vector<Address>> found) { listen_on(found); });
}

void PeerNet::listen_on(const Result<std::vector<Address>>& found) {
  Status done = found ? Status() : Status(std::unexpected(found.error()));
  if (found)
    for (const Address& address : *found)
      if (done = try_listen(address); done) break;
  std::string trouble = done ? "" : fmt::format("cannot listen for replication: {}", done.error().message);
  if (trouble != listen_trouble_) {
    listen_trouble_ = trouble;
    events_.notice(0, done ? fmt::format("listening on {} now", options_.listen) : trouble);
  }
  if (!done) listen_timer_ = loop_.after(options_.listen_again, [this] { listen(); });
}

Status PeerNet::try_listen(const Address& address) {
  TL_TRY(streams_->check_listen(address));
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "socket");
  int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) < 0)
    return fail_errno(errno, "{}", address.text);
  if (::listen(fd.get(), listen_backlog) < 0) return fail_errno(errno, "{}", address.text);
  listener_ = std::move(fd);
  loop_.watch(listener_.get(), ports::Loop::readable, [this](unsigned) { on_accept(); });
  return {};
}

const PeerNet::Peer* PeerNet::find(ReplicaId id) const {
  auto it = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.config.id == id; });
  return it == peers_.end() ? nullptr : &*it;
}

PeerNet::Peer* PeerNet::find(ReplicaId id) {
  return const_cast<Peer*>(std::as_const(*this).find(id));
}

PeerNet::Peer* PeerNet::owner_of(const Connection& c) {
  auto it = std::find_if(peers_.begin(), peers_.end(),
                         [&](const Peer& p) { return p.connection.get() == &c; });
  return it == peers_.end() ? nullptr : &*it;
}

void PeerNet::notice(Peer& peer, const std::string& text) {
  if (text == peer.last_notice) return;
  peer.last_notice = text;
  events_.notice(peer.config.id, text);
}

// Any stranger can cause these lines, so their number is limited.
void PeerNet::notice_of_caller(const std::string& text) {
  Instant now = loop_.now();
  if (now - caller_notices_since_ >= caller_notice_time) {
    if (caller_notices_left_out_ > 0)
      events_.notice(0, fmt::format("{} more callers were refused since then", caller_notices_left_out_));
    caller_notices_ = caller_notices_left_out_ = 0;
    caller_notices_since_ = now;
  }
  if (caller_notices_ >= caller_notices_max) {
    ++caller_notices_left_out_;
    return;
  }
  ++caller_notices_;
  events_.notice(0, text);
}

std::shared_ptr<Connection> PeerNet::make_connection(Fd fd, std::string name, Way way,
                                                     const sockaddr_storage& other,
                                                     Handshake::Direction direction, ReplicaId expect) {
  Connection::Limits limits{options_.timeout, std::min(options_.handshake, options_.timeout),
                            options_.unsent_bytes_max};
  bool dialed = direction == Handshake::Direction::dialed;
  if (dialed) limits.handshake = options_.timeout;  // connect() is part of it
  set_options(fd.get(), limits.timeout);
  LinkStream link = streams_->make(std::move(fd), way, direction, other);
  auto made = std::make_shared<Connection>(
      loop_, std::make_unique<stream::PackedStream>(loop_, std::move(link.stream), options_.pool),
      std::move(name), Handshake(options_.self, std::move(link.authentication), direction, expect, random_),
      limits,
      Connection::Events{[this](Connection& c) { on_established(c); }, [this](Connection& c) { on_ready(c); },
                         [this](Connection& c, PeerMessage m) {
                           deliver_downs();
                           events_.message(c.peer(), std::move(m));
                         },
                         [this](Connection& c, const std::string& why) { on_closed(c, why); }});
  return made->is_open() ? made : nullptr;  // it failed before it was stored
}

void PeerNet::on_accept() {
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  Fd fd(
      ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd) return take_caller(std::move(fd), from);
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause_accepting(errno);
}

// The caller stays in the kernel's queue, and the listener stays ready. The pause avoids a busy loop.
void PeerNet::pause_accepting(int error) {
  notice_of_caller(fail_errno(error, "no connection can be accepted").error().message);
  loop_.change(listener_.get(), 0);
  accept_timer_ = loop_.after(accept_pause, [this] {
    accept_timer_ = 0;
    loop_.change(listener_.get(), ports::Loop::readable);
  });
}

void PeerNet::take_caller(Fd fd, const sockaddr_storage& from) {
  auto way = streams_->way_of_caller(from);
  if (!way) return notice_of_caller(way.error().message);
  if (streams_->is_at_cable(from)) stay_on_cable(fd.get());
  if (*way != Way::tls || !streams_->accepts_old()) return take_caller(std::move(fd), from, *way);
  undecided_->wait(std::move(fd), host_of(from), [this, from](Fd caller, bool has_spoken) {
    on_first_bytes(std::move(caller), from, has_spoken);
  });
}

// The rules may be others by now.
void PeerNet::on_first_bytes(Fd fd, const sockaddr_storage& from, bool has_spoken) {
  auto way = streams_->way_of_caller(from);
  if (!way) return notice_of_caller(way.error().message);
  if (*way == Way::tls && !has_spoken && streams_->accepts_old()) way = Way::old_release;
  take_caller(std::move(fd), from, *way);
}

void PeerNet::take_caller(Fd fd, const sockaddr_storage& from, Way way) {
  std::string host = host_of(from);
  make_room(host);
  auto made = make_connection(std::move(fd), "the caller at " + host, way, from,
                              Handshake::Direction::accepted, 0);
  if (made) callers_.push_back({std::move(made), std::move(host)});
}

void PeerNet::make_room(const std::string& host) {
  auto count = [&](const std::string& h) {
    return static_cast<std::size_t>(
        std::count_if(callers_.begin(), callers_.end(), [&](const Caller& c) { return c.host == h; }));
  };
  const std::string* crowded = nullptr;
  if (count(host) >= callers_per_host_max) {
    crowded = &host;
  } else if (callers_.size() >= callers_max) {
    crowded = &std::max_element(callers_.begin(), callers_.end(), [&](const Caller& a, const Caller& b) {
                 return count(a.host) < count(b.host);
               })->host;
  }
  if (!crowded) return;
  auto oldest = std::find_if(callers_.begin(), callers_.end(),
                             [&](const Caller& c) { return c.host == *crowded; });
  std::shared_ptr<Connection> goes = oldest->connection;
  goes->close(fmt::format("too many connections at a time: {} was closed without a message", goes->name()));
}

// ---- dialing

void PeerNet::dial(Peer& p) {
  p.redial_timer = 0;
  if (p.connection || !p.wanted || p.looking_up) return;
  if (auto numeric = numeric_address(p.config.address)) return connect(p, *numeric);
  p.looking_up = true;
  lookup_->start(p.config.address, [this, id = p.config.id](Result<std::vector<Address>> found) {
    on_found(*find(id), found);
  });
}

void PeerNet::on_found(Peer& p, const Result<std::vector<Address>>& found) {
  p.looking_up = false;
  if (p.connection || !p.wanted) return;
  if (found) {
    p.lookups_failed = 0;
    return connect(p, (*found)[p.attempts++ % found->size()]);
  }
  notice(p, fmt::format("replica {} cannot be looked up: {}", p.config.id, found.error().message));
  redial_later(
      p, std::min(options_.redial * (1 << std::min(p.lookups_failed++, 10u)), options_.lookup_pause_max));
}

void PeerNet::connect(Peer& p, const Address& address) {
  auto way = streams_->way_to(p.config.id, address);
  if (!way) {
    notice(p, way.error().message);
    return redial_later(p, options_.redial_refused);
  }
  if (*way == Way::tls && p.is_old && streams_->accepts_old() && !p.config.needs_tls) way = Way::old_release;
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return redial_later(p, options_.redial);
  if (streams_->is_at_cable(address.storage)) stay_on_cable(fd.get());
  int rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length);
  if (rc < 0 && errno != EINPROGRESS) {
    notice(p, fail_errno(errno, "cannot connect to {}", address.text).error().message);
    return redial_later(p, options_.redial);
  }
  p.connection = make_connection(std::move(fd), fmt::format("replica {} at {}", p.config.id, address.text),
                                 *way, address.storage, Handshake::Direction::dialed, p.config.id);
  if (!p.connection) redial_later(p, options_.redial);
}

// A peer that can be connected, but receives no data, is not tried again at once, since clients may wait
// after each connection.
Duration PeerNet::pause_after(Peer& p, const Connection& c) {
  if (!c.is_established()) return options_.redial * 2;
  if (p.up && loop_.now() - p.up_since >= steady_time) p.stuck = 0;
  if (c.was_stuck()) ++p.stuck;
  return std::min(options_.redial * (1 << std::min(p.stuck, 10u)), options_.redial_max);
}

void PeerNet::redial_later(Peer& p, Duration delay) {
  if (options_.self.replica > p.config.id || p.redial_timer) return;
  p.redial_timer = loop_.after(delay, [this, id = p.config.id] { dial(*find(id)); });
}

void PeerNet::on_established(Connection& c) {
  Peer* p = find(c.peer());
  if (!p) return c.close(fmt::format("replica {} is not a peer of this volume", c.peer()));
  if (!p->wanted)
    return c.close(fmt::format("replica {} was disconnected here by the administrator", c.peer()));
  if (c.is_of_old_release() && p->config.needs_tls)
    return c.close(
        fmt::format("the link to replica {} is buffered, and needs TLS: its release has none", c.peer()));
  if (c.is_of_old_release() && p->has_spoken_tls)
    return c.close(fmt::format("replica {} has spoken TLS before, and now comes without it", c.peer()));
  auto caller = std::find_if(callers_.begin(), callers_.end(),
                             [&](const Caller& k) { return k.connection.get() == &c; });
  if (caller != callers_.end()) {
    // The peer calls again while its old connection is open: the old connection is dead, which was not
    // detected yet.
    if (p->connection) p->connection->close("replaced by a newer connection");
    p->connection = std::move(caller->connection);
    callers_.erase(caller);
  }
}

void PeerNet::on_ready(Connection& c) {
  Peer* p = find(c.peer());
  deliver_downs();
  p->up = true;
  p->up_since = loop_.now();
  c.set_packing(p->config.packing);
  c.set_shaping({p->config.rate, options_.bandwidth});
  p->last_notice.clear();
  using Kind = LinkProtection::Kind;
  Kind kind = LinkStreams::protection_of(c.stream(), c.is_of_old_release()).kind;
  p->has_spoken_tls = p->has_spoken_tls || kind == Kind::secret || kind == Kind::certificate;
  if (kind == Kind::old_release)
    events_.notice(
        p->config.id,
        fmt::format("replica {} runs a release without TLS: the connection is in clear text. Upgrade "
                    "it, then remove `accept_old_release`",
                    p->config.id));
  events_.up(p->config.id);
}

// The next attempt uses what this one has found, once.
void PeerNet::look_for_old_release(Peer& p, const Connection& c) {
  const auto* secure = dynamic_cast<const stream::TlsStream*>(&c.stream());
  p.is_old = secure && secure->clear_text() == old_greeting && !p.has_spoken_tls;
}

// The connection is still on the call stack, so it is destroyed in a later turn.
void PeerNet::retire(Connection& c) {
  std::shared_ptr<Connection> keep;
  auto caller = std::find_if(callers_.begin(), callers_.end(),
                             [&](const Caller& k) { return k.connection.get() == &c; });
  if (caller != callers_.end()) {
    keep = std::move(caller->connection);
    callers_.erase(caller);
  } else if (Peer* p = owner_of(c)) {
    keep = std::move(p->connection);
    p->connection = nullptr;
  }
  if (keep) loop_.post([keep = std::move(keep)] {});
}

void PeerNet::on_closed(Connection& c, const std::string& reason) {
  Peer* p = owner_of(c);
  if (tell_unfit(c, reason)) {
  } else if (p)
    notice(*p, reason);
  else
    notice_of_caller(reason);
  retire(c);
  if (!p) return;
  look_for_old_release(*p, c);
  Duration pause = pause_after(*p, c);
  bool was_up = std::exchange(p->up, false);
  redial_later(*p, pause);
  if (!was_up) return;
  downs_.push_back(p->config.id);
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) deliver_downs();
  });
}

// Reports a peer with other settings, for connections in both directions. True: the connection ended for this
// reason.
bool PeerNet::tell_unfit(const Connection& c, const std::string& reason) {
  Peer* p = c.disagrees() ? find(c.peer()) : nullptr;
  if (!p || p->up || !events_.unfit) return false;
  p->last_notice = reason;
  loop_.post([this, alive = std::weak_ptr(alive_), id = p->config.id, reason,
              other_arbiter = c.has_other_arbiter()] {
    if (!alive.expired()) events_.unfit(id, reason, other_arbiter);
  });
  return true;
}

// In order with later events: before the next event, and at the latest in the next turn.
void PeerNet::deliver_downs() {
  for (ReplicaId id : std::exchange(downs_, {})) events_.down(id);
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
  if (wanted)
    redial_later(*p, Duration(0));
  else if (p->connection)
    p->connection->close("disconnected by the administrator");
}

void PeerNet::set_address(ReplicaId id, const std::string& address) {
  Peer* p = find(id);
  if (!p || p->config.address == address) return;
  p->config.address = address;
  p->stuck = p->lookups_failed = p->attempts = 0;
}

bool PeerNet::is_wanted(ReplicaId id) const {
  const Peer* p = find(id);
  return p && p->wanted;
}

std::string PeerNet::trouble(ReplicaId id) const {
  const Peer* p = find(id);
  if (!p || p->up) return "";
  if (!p->last_notice.empty()) return p->last_notice;
  bool calls_here = options_.self.replica > id, listens = static_cast<bool>(listener_);
  if (calls_here && !listen_trouble_.empty()) return listen_trouble_;
  if (calls_here ? listens : !p->looking_up) return "";
  return fmt::format("\"{}\" is being looked up: no name server has answered yet",
                     calls_here ? options_.listen : p->config.address);
}

std::uint64_t PeerNet::features(ReplicaId id) const {
  const Peer* p = find(id);
  return p && p->up ? p->connection->features() : 0;
}

std::optional<LinkProtection> PeerNet::protection(ReplicaId id) const {
  const Peer* p = find(id);
  if (!p || !p->up) return std::nullopt;
  return LinkStreams::protection_of(p->connection->stream(), p->connection->is_of_old_release());
}

std::optional<stream::PackingStatus> PeerNet::packing_status(ReplicaId id) const {
  const Peer* p = find(id);
  if (!p || !p->up || !p->connection->has_frames()) return std::nullopt;
  return p->connection->packing_status();
}

void PeerNet::set_rate(ReplicaId id, stream::Rate rate) {
  Peer* p = find(id);
  if (!p || p->config.rate == rate) return;
  p->config.rate = rate;
  if (p->up) p->connection->set_shaping({rate, options_.bandwidth});
}

void PeerNet::set_packing(ReplicaId id, const stream::Packing& packing) {
  Peer* p = find(id);
  if (!p) return;
  p->config.packing = packing;
  if (p->up) p->connection->set_packing(packing);
}

void PeerNet::send(ReplicaId id, const PeerMessage& message) {
  Peer* p = find(id);
  if (!p || !p->up) return;
  if (const auto* record = std::get_if<RecordMessage>(&message)) return send_copy(*p, *record);
  auto& bytes = encoded_.emplace_back();
  encode_peer_message(message, bytes);
  ByteSpan payload = bytes;
  p->connection->send(wire_type(message), {&payload, 1});
}

// Of a record that was read from a disk. Its memory is not there until flush().
void PeerNet::send_copy(Peer& p, const RecordMessage& m) {
  auto& copy = encoded_.emplace_back(m.meta);
  copy.insert(copy.end(), m.payload.begin(), m.payload.end());
  ByteSpan piece = copy;
  send_record(p, m.epoch, static_cast<std::uint32_t>(m.meta.size()), {&piece, 1});
}

void PeerNet::send_record(ReplicaId id, const Epoch& epoch, std::uint32_t meta_bytes,
                          std::span<const ByteSpan> pieces) {
  if (Peer* p = find(id); p && p->up) send_record(*p, epoch, meta_bytes, pieces);
}

void PeerNet::send_record(Peer& p, const Epoch& epoch, std::uint32_t meta_bytes,
                          std::span<const ByteSpan> pieces) {
  static const std::uint16_t whole = wire_type(PeerMessage(RecordMessage{}));
  bool knows_short = (p.connection->features() & feature_short_records & options_.self.features) != 0;
  if (knows_short) shorter_->set(meta_bytes, pieces);
  bool is_short = knows_short && !shorter_->runs().empty();
  auto& prefix = encoded_.emplace_back();
  if (is_short)
    encode_short_record_prefix(epoch, meta_bytes, shorter_->runs(), prefix);
  else
    encode_record_prefix(epoch, meta_bytes, prefix);
  std::vector<ByteSpan> payload{prefix};
  if (is_short)
    shorter_->add_parts(payload);
  else
    payload.insert(payload.end(), pieces.begin(), pieces.end());
  p.connection->send(is_short ? static_cast<std::uint16_t>(WireType::short_record) : whole, payload);
}

void PeerNet::flush() {
  for (Peer& p : peers_)
    if (p.up && p.connection) p.connection->flush();
  encoded_.clear();
}

}  // namespace twinloft::repl::net
