// The input of a client: commands, messages, chunks. The first byte sets the size of the pieces, whether TLS
// is required, and whether there are filters. Replies and deliveries are the same for every split, and every
// reply can be parsed. Each accepted recipient was looked up. Clear-text input has no effect over TLS.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/lmtpd/session/session.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace {

constexpr std::uint64_t message_bytes_max = 300, header_bytes_max = 100;
constexpr std::uint32_t recipients_max = 3, refused_max = 4;
constexpr std::string_view own_address = "192.0.2.7", starttls = "STARTTLS\r\n";
// the most that a single call adds, with all replies to a command
constexpr std::size_t replies_max = 16 * 1024 + 8 * 512;

struct Outcome {
  std::string sent;
  std::vector<std::string> messages;  // the delivered messages, with their envelopes
  bool closed = false;
  bool operator==(const Outcome&) const = default;
};

// An owner that answers at once.
class Owner {
 public:
  Owner(TlsPolicy policy, bool has_filters)
      : policy_(policy),
        config_{.hostname = "h",
                .message_bytes_max = message_bytes_max,
                .header_bytes_max = header_bytes_max,
                .recipients_max = recipients_max,
                .bad_commands_max = 40,
                .refused_max = refused_max,
                .new_id = [this] { return std::to_string(++ids_); },
                .recipients = {.has_limits = [](const User& u) { return u.name.starts_with("full"); },
                               .takes_utf8 = [](const User& u) { return u.name != "old"; }},
                .has_filters = has_filters},
        session_(config_) {
    session_.start({std::string(own_address), true, policy});
    carry_out();
  }
  // Returns false if the session is closed.
  bool receive(std::string_view bytes) {
    if (session_.closed()) return false;
    said_ += bytes;
    session_.receive(as_bytes(bytes));
    carry_out();
    return true;
  }
  void shake_hands() {
    if (!session_.in_handshake()) return;
    said_.clear();
    session_.tls_started("TLS");
    carry_out();
  }
  Outcome outcome() const { return {sent_, messages_, session_.closed()}; }

 private:
  void carry_out() {
    for (;;) {
      session_.take_actions(actions_);
      std::size_t sent = 0;
      bool waits = false;  // waits for this owner
      for (const Action& action : actions_) {
        if (const auto* send = std::get_if<SendBytes>(&action)) {
          TL_CHECK(!send->bytes.empty());
          sent += send->bytes.size();
        }
        waits = waits || std::holds_alternative<Ask>(action) || std::holds_alternative<Deliver>(action);
      }
      TL_CHECK(sent <= replies_max);
      TL_CHECK(!session_.holds_back() || (!waits && !session_.wants_input()));
      for (const Action& action : actions_) std::visit([this](const auto& what) { on(what); }, action);
      if (session_.holds_back())
        session_.replies_sent();
      else if (!waits)
        return;
    }
  }
  void on(const SendBytes& send) { sent_ += send.bytes; }
  void on(const Refused& refused) { TL_CHECK(refused.reply.code >= 400); }
  void on(const BeginBody&) {
    TL_CHECK(!std::exchange(receiving_, true));
    body_.clear();
  }
  void on(const BodyBytes& body) {
    TL_CHECK(receiving_);
    for (ByteSpan piece : body.pieces) body_ += as_text(piece);
    TL_CHECK(body_.size() <= message_bytes_max);
  }
  void on(const AbortBody&) { TL_CHECK(std::exchange(receiving_, false)); }
  void on(const Ask& ask) {
    TL_CHECK(ask.id > std::exchange(asked_, ask.id));
    std::visit([&](const auto& question) { session_.answer(ask.id, find_out(question)); }, ask.question);
  }
  void on(const Deliver& what) {
    TL_CHECK(std::exchange(receiving_, false));
    deliver(*what.envelope);
  }
  void on(const ForgetTransaction&) { TL_CHECK(config_.has_filters); }
  void on(const BeginTls&) { TL_CHECK(session_.in_handshake()); }
  void on(const Close&) { TL_CHECK(session_.closed()); }
  static MailboxState find_out(const MailboxQuestion& question) {
    TL_CHECK(question.user.name.starts_with("full"));
    return {.room = Room::full};
  }
  FilterVerdict find_out(const FilterCommand& command) {
    TL_CHECK(config_.has_filters);
    std::string address;
    if (const auto* mail = std::get_if<FilterMail>(&command)) address = mail->envelope->from;
    if (const auto* rcpt = std::get_if<FilterRcpt>(&command)) address = rcpt->recipient;
    if (address.starts_with("f")) return {make_reply_of_lines(550, "5.7.1", {"filtered", address})};
    if (address.starts_with("x")) return {Reply{421, "4.7.0", "leave"}, true};
    return {};
  }
  LookupResult find_out(const LookupRequest& request) {
    if (std::exchange(transaction_, session_.transaction()) != session_.transaction()) lookups_ = 0;
    TL_CHECK(++lookups_ <= 2 * recipients_max);
    if (request.local_part.starts_with("broken")) return fail(Errc::unavailable, "away");
    if (request.local_part.starts_with("nobody")) return std::nullopt;
    User user;
    user.name = request.local_part;
    user.uid = user.gid = 1;
    return Resolved{user};
  }
  void deliver(const Envelope& envelope) {
    TL_CHECK(body_.size() <= message_bytes_max);
    TL_CHECK(!envelope.recipients.empty() && envelope.recipients.size() <= recipients_max);
    TL_CHECK(policy_ != TlsPolicy::required || !envelope.tls.empty());
    bool is_own = envelope.client == own_address && envelope.client_name.empty();
    TL_CHECK(is_own || said_has("XCLIENT"));
    TL_CHECK(envelope.origin.name.empty() || said_has("XFORWARD"));
    std::string all = envelope.from + (envelope.smtputf8 ? " utf8" : "");
    for (const Recipient& r : envelope.recipients)
      all += " " + r.text + "(" + r.local_part + "|" + r.detail + "|" + r.domain + ")" + r.notify +
             r.original_to;
    messages_.push_back(all + "\n" + body_);
    for (std::size_t i = envelope.recipients.size(); i-- > 0;)
      session_.delivery_done(i, {250, "2.0.0", "delivered"});
  }

  // Only input since the handshake, if there was one.
  bool said_has(std::string_view verb) const {
    return std::search(said_.begin(), said_.end(), verb.begin(), verb.end(),
                       [](char a, char b) { return (a & ~0x20) == b; }) != said_.end();
  }

  const TlsPolicy policy_;
  std::string said_;
  std::uint64_t transaction_ = 0;
  std::uint32_t lookups_ = 0;
  int ids_ = 0;
  SessionConfig config_;
  Session session_;
  Actions actions_;
  QuestionId asked_ = 0;
  bool receiving_ = false;
  std::string sent_, body_;
  std::vector<std::string> messages_;
};

// Each line belongs to a reply, is printable, and has at most 512 bytes.
void check_replies(std::string_view sent) {
  while (!sent.empty()) {
    std::size_t end = sent.find("\r\n");
    TL_CHECK(end != std::string_view::npos && end <= 510 && end >= 4);
    std::string_view line = sent.substr(0, end);
    TL_CHECK(std::all_of(line.begin(), line.end(), [](char c) { return c >= 32 && c < 127; }));
    TL_CHECK(line[0] >= '2' && line[0] <= '5' && (line[3] == ' ' || line[3] == '-'));
    sent.remove_prefix(end + 2);
  }
}

// A piece ends after each STARTTLS, because clear-text input in the same piece is discarded.
Outcome run(std::string_view input, std::size_t piece_bytes, TlsPolicy policy, bool has_filters) {
  Owner owner(policy, has_filters);
  while (!input.empty()) {
    std::size_t found = input.find(starttls);
    std::string_view part = input.substr(0,
                                         found == std::string_view::npos ? found : found + starttls.size());
    input.remove_prefix(part.size());
    for (std::size_t at = 0; at < part.size(); at += piece_bytes)
      if (!owner.receive(std::string(part.substr(at, piece_bytes)))) return owner.outcome();
    owner.shake_hands();
  }
  return owner.outcome();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const TlsPolicy policy = data[0] & 0x80 ? TlsPolicy::required : TlsPolicy::offered;
  const bool has_filters = data[0] & 0x40;
  const Outcome whole = run(input, std::max<std::size_t>(1, input.size()), policy, has_filters);
  check_replies(whole.sent);
  TL_CHECK(run(input, 1, policy, has_filters) == whole);
  TL_CHECK(run(input, 1 + data[0] % 0x40, policy, has_filters) == whole);
  return 0;
}
