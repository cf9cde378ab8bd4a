// The input is all that a next hop sends. The first byte sets the size of the pieces. Whatever the input is:
// - each recipient gets one reply, and none is a 250 that the next hop has not sent;
// - what the next hop receives has no line end but CR LF, and no command within a command.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "dialogue.h"
#include "twinloft/base/check.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace {

class StillClock final : public Clock {
 public:
  Instant now() const override { return {}; }
  WallTime wall() const override { return {}; }
};

class Scripted final : public Stream {
 public:
  Scripted(std::string input, std::size_t piece, std::string& said)
      : input_(std::move(input)), piece_(piece), said_(said) {}
  Result<std::size_t> read(MutableByteSpan into, Instant) override {
    std::size_t count = std::min({into.size(), piece_, input_.size() - at_});
    if (count == 0) return fail(Errc::unavailable, "the end");
    std::memcpy(into.data(), input_.data() + at_, count);
    at_ += count;
    return count;
  }
  Status write(std::string_view bytes, Instant) override {
    said_ += bytes;
    return {};
  }
  Status start_tls(const TlsClientContext&, Instant) override { return fail(Errc::denied, "no"); }
  bool has_news() override { return false; }  // the hop sends each line only when the client waits for it
  void shut() override {}

 private:
  const std::string input_;
  const std::size_t piece_;
  std::string& said_;
  std::size_t at_ = 0;
};

Envelope three_recipients() {
  Envelope envelope;
  envelope.from = "a@example.net";
  envelope.client = "192.0.2.1";
  for (const char* name : {"ann", "bob", "\"c d\""}) {
    Recipient r;
    r.text = std::string(name) + "@example.org";
    r.user.name = "c\" d@example.org";
    envelope.recipients.push_back(r);
  }
  return envelope;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string input(reinterpret_cast<const char*>(data) + 1, size - 1), said;
  static const StillClock clock;
  static const std::string hostname = "proxy.example", delimiter = "+";
  static const Envelope envelope = three_recipients();
  NextHopSpec spec;
  spec.xclient = spec.xforward = true;
  spec.recipient = data[0] % 2 == 0 ? HopRecipient::address : HopRecipient::user;
  MessageBody body;
  body.memory = "Subject: x\n.\n\r.\r\n.\r\nx";
  body.size = body.memory.size();
  Dialogue dialogue(std::make_unique<Scripted>(input, data[0] + 1u, said), spec, hostname, delimiter, clock);
  if (!dialogue.open(nullptr) || !dialogue.speak_for(envelope)) return 0;
  const std::size_t all[] = {0, 1, 2};
  Handed handed = dialogue.hand_over(envelope, all, body, "Received: x\n");
  TL_CHECK(handed.replies.size() == 3);
  auto good = std::count_if(handed.replies.begin(), handed.replies.end(),
                            [](const Reply& r) { return r.code == 250; });
  for (const Reply& reply : handed.replies)
    TL_CHECK(reply.code == 250 || (reply.code >= 400 && reply.code < 600 && reply.code != 421));
  // Greeting, LHLO, MAIL, and for each good recipient the replies to RCPT and to the message.
  TL_CHECK(std::count(input.begin(), input.end(), '2') >= (good == 0 ? 0 : 3 + 2 * good));
  TL_CHECK(good == 0 || said.find("BDAT") != std::string::npos || said.ends_with("\r\n.\r\n") ||
           said.ends_with("QUIT\r\n"));
  return 0;
}
