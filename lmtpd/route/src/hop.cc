#include "hop.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

// A limit of simultaneous attempts, since all of them may wait for an unreachable hop.
constexpr std::uint32_t opening_max = 4;

// The reply if no connection is possible. The hop may be up and refuse, or this process may be out of
// descriptors.
Reply reply_of_failed_open(const Error& error) {
  switch (error.code) {
    case Errc::conflict:
      return {451, "4.3.0", "The mail store cannot be used now"};
    case Errc::corrupt:
      return {451, "4.5.0", "The mail store does not answer as it should"};
    case Errc::exhausted:
      return {451, "4.3.2", "The mail system is out of open files or memory, try again later"};
    default:
      return {451, "4.4.1", "The mail store cannot be reached now"};
  }
}

std::vector<Reply> for_all(std::size_t count, const Reply& reply) {
  return std::vector<Reply>(count, reply);
}

}  // namespace

// give_up() can end it.
struct Hop::InUse {
  Hop& hop;
  Dialogue* dialogue;
  InUse(Hop& h, Dialogue* d) : hop(h), dialogue(d) {
    std::lock_guard lock(hop.mutex_);
    hop.in_use_.push_back(dialogue);
    if (hop.given_up_) dialogue->shut();
  }
  ~InUse() {
    std::lock_guard lock(hop.mutex_);
    std::erase(hop.in_use_, dialogue);
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
};

Hop::~Hop() {
  for (Idle& idle : idle_) idle.dialogue->quit();
}

// A delivery in flight. Router::limits keeps their number within connections_max.
struct Hop::Slot {
  Hop& hop;
  explicit Slot(Hop& h) : hop(h) {
    std::lock_guard lock(hop.mutex_);
    ++hop.taken_;
  }
  ~Slot() {
    std::lock_guard lock(hop.mutex_);
    --hop.taken_;
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
};

// A connection that already has this client's attributes, otherwise any: XCLIENT needs two round trips, and
// a new connection more.
std::unique_ptr<Dialogue> Hop::take_idle(const Envelope& envelope) {
  std::list<Idle> found;
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      auto at = std::find_if(idle_.begin(), idle_.end(),
                             [&](const Idle& i) { return i.dialogue->speaks_for(envelope); });
      if (at == idle_.end())
        at = std::find_if(idle_.begin(), idle_.end(),
                          [&](const Idle& i) { return i.dialogue->can_speak_for(envelope); });
      if (at == idle_.end()) return nullptr;
      found.splice(found.begin(), idle_, at);
    }
    if (clock_.now() - found.front().since < config_.spec.idle_timeout && found.front().dialogue->is_idle())
      return std::move(found.front().dialogue);
    found.clear();
  }
}

// Takes the least recently used connections, so that all connections are within connections_max. They are
// closed without the lock, since this takes time. The caller has mutex_.
std::list<Hop::Idle> Hop::take_surplus(std::size_t in_use) {
  std::list<Idle> surplus;
  while (!idle_.empty() && idle_.size() + in_use > config_.spec.connections_max)
    surplus.splice(surplus.end(), idle_, std::prev(idle_.end()));
  return surplus;
}

void Hop::quit(std::list<Idle> idle) {
  for (Idle& each : idle) each.dialogue->quit();
}

void Hop::put_back(std::unique_ptr<Dialogue> dialogue) {
  if (!dialogue->is_idle()) return;
  std::list<Idle> surplus;
  {
    std::lock_guard lock(mutex_);
    if (given_up_) return;
    idle_.push_front({std::move(dialogue), clock_.now()});
    surplus = take_surplus(taken_ - 1);  // without this connection
  }
  quit(std::move(surplus));
}

void Hop::close_idle() {
  std::list<Idle> old;
  {
    std::lock_guard lock(mutex_);
    Instant now = clock_.now();
    while (!idle_.empty() && now - idle_.back().since >= config_.spec.idle_timeout)
      old.splice(old.end(), idle_, std::prev(idle_.end()));
  }
  quit(std::move(old));
}

void Hop::give_up() {
  std::lock_guard lock(mutex_);
  given_up_ = true;
  for (Dialogue* dialogue : in_use_) dialogue->shut();
  opened_.notify_all();
}

// ---- connections

Result<std::unique_ptr<Dialogue>> Hop::connect(Instant latest) {
  TL_TRY_ASSIGN(Fd socket, connector_.connect(config_.target));
  auto dialogue = std::make_unique<Dialogue>(make_socket_stream(std::move(socket), clock_), config_.spec,
                                             all_.hostname, delimiter_, clock_);
  InUse use(*this, dialogue.get());
  TL_TRY(dialogue->open(config_.tls.get()));  // within connect_timeout
  dialogue->end_by(latest);
  return dialogue;
}

// The end of this attempt is always recorded.
Result<std::unique_ptr<Dialogue>> Hop::connect_safely(std::list<Idle> instead_of, Instant latest) {
  try {
    quit(std::move(instead_of));
    return connect(latest);
  } catch (const std::exception& e) {
    return fail(Errc::internal, "unexpectedly: {}", e.what());
  }
}

Result<std::unique_ptr<Dialogue>> Hop::open(Instant latest) {
  std::list<Idle> surplus;
  {
    std::unique_lock lock(mutex_);
    // Waits for a slow hop. An unreachable hop ends the wait of all deliveries, by health_.
    bool turn = opened_.wait_for(lock, latest - clock_.now(),
                                 [this] { return opening_ < opening_max || given_up_; });
    if (!turn || clock_.now() >= latest)
      return fail(Errc::timeout, "other deliveries are waiting for a connection to it");
    if (given_up_) return fail(Errc::unavailable, "this server is being stopped");
    if (!health_.may_try(clock_.now()))
      return fail(Errc::unavailable, "it was unreachable a moment ago; the next attempt is soon");
    ++opening_;
    surplus = take_surplus(taken_);
  }
  auto dialogue = connect_safely(std::move(surplus), latest);
  bool was_down, is_down;
  {
    std::lock_guard lock(mutex_);
    --opening_;
    was_down = health_.down();
    // A hop that has answered counts as reachable, with any reply.
    const bool here = !dialogue && dialogue.error().code == Errc::exhausted;  // not an error of the hop
    if (dialogue || dialogue.error().code == Errc::conflict)
      health_.worked();
    else if (!here)
      health_.failed(clock_.now());
    is_down = health_.down();
  }
  opened_.notify_all();
  if (!was_down && is_down)
    log_error("{} ({}) cannot be {}: {}", text_of_hop(config_.spec.name), config_.spec.target.text,
              dialogue.error().code == Errc::corrupt ? "used" : "reached", dialogue.error().message);
  if (was_down && !is_down)
    log_info("{} ({}) is reachable again", text_of_hop(config_.spec.name), config_.spec.target.text);
  return dialogue;
}

// ---- messages

Handed Hop::hand_over_by(std::unique_ptr<Dialogue> dialogue, const Envelope& envelope,
                         std::span<const std::size_t> recipients, const MessageBody& body,
                         const std::string& header) {
  Handed handed;
  {
    InUse use(*this, dialogue.get());
    if (Status spoken = dialogue->speak_for(envelope); !spoken)
      return {for_all(recipients.size(), {451, "4.3.0", "The mail store cannot be used now"}), false, true,
              spoken.error().code == Errc::conflict, spoken.error().message};
    handed = dialogue->hand_over(envelope, recipients, body, header);
  }
  if (handed.reusable && !dialogue->speaks_for_nobody()) put_back(std::move(dialogue));
  return handed;
}

Handed Hop::hand_over(const Envelope& envelope, std::span<const std::size_t> recipients,
                      const MessageBody& body, const std::string& header, Instant latest) {
  // A local hop keeps its mail on this machine, and needs the client's name for its log only.
  bool anonymous = false;
  auto is_refused = [&](const Handed& handed) { return handed.client_refused && config_.spec.local(); };
  if (auto idle = take_idle(envelope)) {
    idle->end_by(latest);
    Handed handed = hand_over_by(std::move(idle), envelope, recipients, body, header);
    if (!handed.untouched) return handed;
    anonymous = is_refused(handed);
  }
  for (;;) {
    auto opened = open(latest);
    if (!opened)
      return {for_all(recipients.size(), reply_of_failed_open(opened.error())), false, false, false,
              opened.error().message};
    if (anonymous) (*opened)->speak_for_nobody();
    Handed handed = hand_over_by(std::move(*opened), envelope, recipients, body, header);
    if (anonymous || !is_refused(handed)) return handed;
    anonymous = true;
  }
}

std::vector<Hop::Outcome> Hop::deliver(const Envelope& envelope, std::span<const std::size_t> recipients,
                                       const MessageBody& body, const std::string& header,
                                       const GivenUp& given_up) {
  std::vector<Outcome> out;
  auto end = [&](const Reply& reply, std::string problem) {
    out.resize(recipients.size(), {reply, std::move(problem)});
  };
  Slot slot(*this);
  // The client waits for all replies, and would give up without any.
  const Instant latest = clock_.now() + config_.spec.data_timeout;
  while (out.size() < recipients.size()) {
    if (auto rest = given_up ? given_up() : std::nullopt) {
      end(*rest, "not begun");
      break;
    }
    if (!out.empty() && clock_.now() >= latest) {
      end({451, "4.4.2", "The mail store takes too long now"}, "the previous transactions took too long");
      break;
    }
    auto some = recipients.subspan(
        out.size(), std::min<std::size_t>(config_.spec.recipients_max, recipients.size() - out.size()));
    Handed handed = hand_over(envelope, some, body, header, latest);
    for (Reply& reply : handed.replies) out.push_back({std::move(reply), handed.problem});
    if (!handed.reusable)
      end({451, "4.4.2", "The mail store cannot be used now"},
          "not begun, because the previous transaction failed");
  }
  return out;
}

}  // namespace twinloft::lmtpd
