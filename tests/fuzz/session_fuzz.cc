// The input is what a client sends, behind one byte that says how it is cut into pieces: commands, messages, chunks. What the session says and
// delivers is the same in every split; every reply is one that a client can read; and what is accepted has been looked at as it should.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/lmtpd/session/session.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace {

constexpr std::uint64_t message_bytes_max = 300, header_bytes_max = 100;
constexpr std::uint32_t recipients_max = 3;
constexpr std::size_t replies_max = 16 * 1024 + 8 * 512;  // that one call may add, with all of one command

struct Outcome {
  std::string sent;
  std::vector<std::string> messages;  // what was delivered, with its envelope
  bool closed = false;
  bool operator==(const Outcome&) const = default;
};

// An owner that answers at once.
class Owner {
 public:
  Owner() : config_{.hostname = "h", .message_bytes_max = message_bytes_max, .header_bytes_max = header_bytes_max, .recipients_max = recipients_max,
                    .bad_commands_max = 40, .new_id = [this] { return std::to_string(++ids_); }, .takes_utf8 = [](const User& u) { return u.name != "old"; }},
            session_(config_) {
    session_.start({"192.0.2.7", true, TlsPolicy::offered});
    carry_out();
  }
  // False once it wants no more: closed, or in a handshake, behind which nothing is looked at.
  bool receive(std::string_view bytes) {
    if (session_.closed() || session_.in_handshake()) return false;
    session_.receive(as_bytes(bytes));
    carry_out();
    return true;
  }
  Outcome outcome() const { return {sent_, messages_, session_.closed()}; }

 private:
  void carry_out() {
    for (;;) {
      Actions actions = session_.take_actions();
      sent_ += actions.send;
      if (actions.begin_body) body_.clear();
      for (ByteSpan piece : actions.body) body_ += as_text(piece);
      if (actions.abort_body) body_.clear();
      TL_CHECK(body_.size() <= message_bytes_max + 4096);
      if (actions.deliver) deliver(*actions.deliver);
      if (actions.lookup) look_up(*actions.lookup);
      TL_CHECK(actions.send.size() <= replies_max);
      TL_CHECK(!session_.holds_back() || (!actions.deliver && !actions.lookup && !session_.wants_input()));
      if (session_.holds_back()) session_.replies_sent();
      else if (!actions.deliver && !actions.lookup) return;
    }
  }
  void look_up(const LookupRequest& request) {
    if (request.local_part.starts_with("broken")) return session_.lookup_done(fail(Errc::unavailable, "away"));
    if (request.local_part.starts_with("nobody")) return session_.lookup_done(std::nullopt);
    User user;
    user.name = request.local_part;
    user.uid = user.gid = 1;
    session_.lookup_done(Resolved{user});
  }
  void deliver(const Envelope& envelope) {
    TL_CHECK(body_.size() <= message_bytes_max);
    TL_CHECK(!envelope.recipients.empty() && envelope.recipients.size() <= recipients_max);
    std::string all = envelope.from + (envelope.smtputf8 ? " utf8" : "");
    for (const Recipient& r : envelope.recipients) all += " " + r.text + "(" + r.local_part + "|" + r.detail + "|" + r.domain + ")" + r.notify + r.original_to;
    messages_.push_back(all + "\n" + body_);
    for (std::size_t i = envelope.recipients.size(); i-- > 0;) session_.delivery_done(i, {250, "2.0.0", "delivered"});
  }

  int ids_ = 0;
  SessionConfig config_;
  Session session_;
  std::string sent_, body_;
  std::vector<std::string> messages_;
};

// Lines of at most 512 bytes that print, each of a reply.
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

Outcome run(std::string_view input, std::size_t piece_bytes) {
  Owner owner;
  for (std::size_t at = 0; at < input.size(); at += piece_bytes)
    if (!owner.receive(std::string(input.substr(at, piece_bytes)))) break;
  return owner.outcome();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = run(input, std::max<std::size_t>(1, input.size()));
  check_replies(whole.sent);
  TL_CHECK(run(input, 1) == whole);
  TL_CHECK(run(input, 1 + data[0]) == whole);
  return 0;
}
