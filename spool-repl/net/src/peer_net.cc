#include "twinloft/spool-repl/net/peer_net.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "connection.h"
#include "first_bytes.h"
#include "link_streams.h"
#include "listener.h"
#include "name_lookup.h"
#include "path_calls.h"
#include "short_record.h"
#include "twinloft/spool-repl/stream/tls_stream.h"

namespace twinloft::repl::net {

namespace {

constexpr std::size_t callers_max = 64;          // connections before the end of their handshake
constexpr std::size_t callers_per_host_max = 8;  // of these
constexpr unsigned caller_notices_max = 6;  // in caller_notice_time, so that strangers cannot fill the log
constexpr Duration caller_notice_time = std::chrono::minutes(1);
constexpr std::string_view old_greeting = "TLWR";  // a release without TLS speaks first
constexpr Duration second = std::chrono::seconds(1);
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
    streams_->add_peer(p.id, p.certificate_name, p.direct_cable ? p.addresses : std::vector<std::string>());
    if (p.needs_tls) streams_->require_tls(p.id);
  }
}

PeerNet::~PeerNet() {
  for (Peer& p : peers_)
    if (p.redial_timer) loop_.cancel(p.redial_timer);
}

void PeerNet::set_security(LinkSecurity security) {
  streams_->set_security(std::move(security));
  if (streams_->accepts_old()) return;
  for (Peer& p : peers_)
    if (p.connection && p.connection->is_of_old_release())
      p.connection->close(fmt::format("replica {} has no TLS, which is required from now on", p.config.id));
}

Status PeerNet::start() {
  for (const std::string& text : options_.listen) {
    TL_TRY(check_address(text));
    if (auto numeric = numeric_address(text)) TL_TRY(streams_->check_listen(*numeric));
  }
  for (const NetPeer& p : options_.peers)
    for (const std::string& text : p.addresses) {
      TL_TRY(check_address(text));
      if (auto numeric = numeric_address(text)) TL_TRY(streams_->way_to(p.id, *numeric));
    }
  for (const std::string& text : options_.listen) {
    Listener::Events events{
        [this](Fd caller, const sockaddr_storage& from) { take_caller(std::move(caller), from); },
        [this](const std::string& said) { events_.notice(0, said); },
        [this](const std::string& said) { notice_of_caller(said); },
        [this](const Address& address) { return streams_->check_listen(address); }};
    listeners_.push_back(
        std::make_unique<Listener>(loop_, *lookup_, text, options_.listen_again, std::move(events)));
    listeners_.back()->listen();
  }
  for (Peer& p : peers_)
    if (dials(p)) dial(p);
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
                                                     const sockaddr_storage& other, const Peer* dialed_peer,
                                                     const JoinPath* join) {
  Connection::Limits limits{options_.timeout, std::min(options_.handshake, options_.timeout),
                            options_.unsent_bytes_max};
  auto direction = dialed_peer ? Handshake::Direction::dialed : Handshake::Direction::accepted;
  bool several = dialed_peer && dialed_peer->config.addresses.size() > 1;
  // connect() is part of it. With another address to try, a lost path costs less time.
  if (dialed_peer) limits.handshake = options_.timeout;
  if (several)
    limits.handshake = std::max<Duration>(options_.timeout / 3, std::min<Duration>(options_.timeout, second));
  if (dialed_peer) limits.paths = dialed_peer->config.paths;
  Identity self = options_.self;
  if (dialed_peer && !several) self.features &= ~feature_paths;
  set_options(fd.get(), limits.timeout);
  LinkStream link = streams_->make(std::move(fd), way, direction, other);
  Handshake handshake(self, std::move(link.authentication), direction,
                      dialed_peer ? dialed_peer->config.id : 0, random_);
  if (join) handshake.join(*join);
  auto made = std::make_shared<Connection>(
      loop_, std::move(link.stream), options_.pool, std::move(name), std::move(handshake), limits,
      Connection::Events{[this](Connection& c) { on_established(c); }, [this](Connection& c) { on_ready(c); },
                         [this](Connection& c, PeerMessage m) {
                           deliver_downs();
                           events_.message(c.peer(), std::move(m));
                         },
                         [this](Connection& c, const std::string& why) { on_closed(c, why); },
                         [this](Connection& c, unsigned n) { on_path_usable(c, n); },
                         [this](Connection& c, const auto& path) { on_path_lost(c, path); }},
      dialed_peer ? dialed_peer->number : 0);
  return made->is_open() ? made : nullptr;  // it failed before it was stored
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
  auto made = make_connection(std::move(fd), "the caller at " + host, way, from, nullptr, nullptr);
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
  p.number = p.attempts % static_cast<unsigned>(p.config.addresses.size());
  p.first_place = p.config.addresses[p.number];
  p.looking_up = true;
  find_addresses(p.first_place, [this, id = p.config.id](const auto& found) { on_found(*find(id), found); });
}

void PeerNet::find_addresses(const std::string& text, Found then) {
  if (auto numeric = numeric_address(text)) return then(std::vector<Address>{*numeric});
  lookup_->start(text, std::move(then));
}

void PeerNet::on_found(Peer& p, const Result<std::vector<Address>>& found) {
  p.looking_up = false;
  if (p.connection || !p.wanted) return;
  std::size_t round = p.attempts++ / p.config.addresses.size();
  if (found) {
    p.lookups_failed = 0;
    return connect(p, (*found)[round % found->size()]);
  }
  notice(p, fmt::format("replica {} cannot be looked up: {}", p.config.id, found.error().message));
  redial_later(
      p, std::min(options_.redial * (1 << std::min(p.lookups_failed++, 10u)), options_.lookup_pause_max));
}

void PeerNet::connect(Peer& p, const Address& address) {
  auto made = call(p, address);
  if (made) {
    p.connection = std::move(*made);
    return;
  }
  if (!made.error().message.empty()) notice(p, made.error().message);
  redial_later(p, made.error().code == Errc::invalid ? options_.redial_refused : options_.redial);
}

// Errors: Errc::invalid (clear text is not allowed there), others (without a message: a known one).
Result<std::shared_ptr<Connection>> PeerNet::call(Peer& p, const Address& address, const JoinPath* join) {
  TL_TRY_ASSIGN(Way way, streams_->way_to(p.config.id, address));
  bool as_old = p.is_old && streams_->accepts_old() && !p.config.needs_tls && !join;
  if (way == Way::tls && as_old) way = Way::old_release;
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail(Errc::unavailable, "");
  if (streams_->is_at_cable(address.storage)) stay_on_cable(fd.get());
  int rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length);
  if (rc < 0 && errno != EINPROGRESS) return fail_errno(errno, "cannot connect to {}", address.text);
  auto made = make_connection(std::move(fd), fmt::format("replica {} at {}", p.config.id, address.text), way,
                              address.storage, &p, join);
  if (!made) return fail(Errc::unavailable, "");
  return made;
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
  if (!dials(p) || p.redial_timer) return;
  p.redial_timer = loop_.after(delay, [this, id = p.config.id] { dial(*find(id)); });
}

void PeerNet::on_established(Connection& c) {
  if (c.joined()) return on_joining(c);
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
    p->first_place = caller->host;
    callers_.erase(caller);
  }
  p->places = {{dials(*p) ? p->number : 0, p->first_place}};  // of a called side until its number is known
  p->lost.clear();
  p->is_old = c.is_of_old_release();
}

void PeerNet::on_ready(Connection& c) {
  Peer* p = find(c.peer());
  deliver_downs();
  p->up = true;
  p->up_since = loop_.now();
  c.paths().set_use(p->config.paths);
  c.set_packing(p->config.packing);
  c.set_shaping({p->config.rate, options_.bandwidth});
  p->last_notice.clear();
  using Kind = LinkProtection::Kind;
  Kind kind = protection_of(c).kind;
  p->has_spoken_tls = p->has_spoken_tls || kind == Kind::secret || kind == Kind::certificate;
  if (kind == Kind::old_release)
    events_.notice(
        p->config.id,
        fmt::format("replica {} runs a release without TLS: the connection is in clear text. Upgrade "
                    "it, then remove `accept_old_release`",
                    p->config.id));
  if (c.has_paths() && dials(*p)) call_further_paths(*p);
  if (dials(*p) && p->config.addresses.size() > 1 && !c.has_paths())
    events_.notice(p->config.id,
                   fmt::format("replica {} runs a release that knows one path for each link: its "
                               "further addresses are spares for the next connection",
                               p->config.id));
  events_.up(p->config.id);
}

// The weakest of its paths.
LinkProtection PeerNet::protection_of(const Connection& c) {
  std::optional<LinkProtection> out;
  c.paths().for_each_path([&](const stream::Stream& line) {
    LinkProtection one = LinkStreams::protection_of(line, c.is_of_old_release());
    if (!out || one.kind == LinkProtection::Kind::clear_text) out = one;
  });
  return out.value_or(LinkProtection{});
}

// ---- the end of connections

// The next attempt uses what this one has found, once.
void PeerNet::look_for_old_release(Peer& p, const Connection& c) {
  c.paths().for_each_path([&](const stream::Stream& line) {
    const auto* secure = dynamic_cast<const stream::TlsStream*>(&line);
    p.is_old = secure && secure->clear_text() == old_greeting && !p.has_spoken_tls;
  });
}

bool PeerNet::is_caller(const Connection& c) const {
  return std::any_of(callers_.begin(), callers_.end(),
                     [&](const Caller& k) { return k.connection.get() == &c; });
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
  for (Peer& each : peers_)
    if (each.calls && each.calls->owns(c)) return each.calls->on_closed(c, reason);
  Peer* p = owner_of(c);
  if (tell_unfit(c, reason)) {
  } else if (p)
    notice(*p, reason);
  else if (is_caller(c))
    notice_of_caller(reason);
  retire(c);
  if (!p) return;
  p->calls = nullptr;
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

void PeerNet::set_addresses(ReplicaId id, const std::vector<std::string>& addresses) {
  Peer* p = find(id);
  if (!p || p->config.addresses == addresses) return;
  std::vector<std::string> before = std::exchange(p->config.addresses, addresses);
  p->lost.clear();
  p->stuck = p->lookups_failed = p->attempts = 0;
  if (!p->calls) return;
  for (unsigned n = 0; n < before.size(); ++n)
    if (n >= addresses.size() || addresses[n] != before[n]) p->calls->done(n);
  drop_stale_paths(*p);
  call_further_paths(*p);
}

void PeerNet::set_path_use(ReplicaId id, stream::PathUse use) {
  Peer* p = find(id);
  if (!p) return;
  p->config.paths = use;
  if (p->up) p->connection->paths().set_use(use);
}

bool PeerNet::is_wanted(ReplicaId id) const {
  const Peer* p = find(id);
  return p && p->wanted;
}

namespace {
std::string looked_up(const std::string& name) {
  return fmt::format("\"{}\" is being looked up: no name server has answered yet", name);
}
}  // namespace

std::string PeerNet::trouble(ReplicaId id) const {
  const Peer* p = find(id);
  if (!p || p->up) return "";
  if (!p->last_notice.empty()) return p->last_notice;
  if (dials(*p)) return p->looking_up ? looked_up(p->first_place) : "";
  for (const auto& listener : listeners_)
    if (!listener->trouble().empty()) return listener->trouble();
  for (const auto& listener : listeners_)
    if (!listener->is_listening()) return looked_up(listener->text());
  return "";
}

std::uint64_t PeerNet::features(ReplicaId id) const {
  const Peer* p = find(id);
  return p && p->up ? p->connection->features() : 0;
}

std::optional<LinkProtection> PeerNet::protection(ReplicaId id) const {
  const Peer* p = find(id);
  if (!p || !p->up) return std::nullopt;
  return protection_of(*p->connection);
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
