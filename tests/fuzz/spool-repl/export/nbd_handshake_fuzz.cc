// The input of a client before it has chosen an export. The first byte sets the size of the pieces, which
// must not matter, and whether TLS is required. Every reply is complete and answers a requested option. No
// client gets further without an existing export, nor without a required STARTTLS.
#include <cstdint>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/export/nbd_handshake.h"

using namespace twinloft;
using namespace twinloft::repl::nbd;

namespace {

constexpr std::uint64_t export_bytes = 64u << 20;

Exports exports() {
  Exports e;
  e.find = [](std::string_view name) { return name == "spool" ? std::optional(export_bytes) : std::nullopt; };
  e.list = [] { return std::vector<std::string>{"spool", std::string(300, 'x')}; };
  return e;
}

struct Outcome {
  Handshake::State state;
  std::string name, why;
  bool structured;
  unsigned secured;  // how often TLS has begun
  std::vector<std::byte> out;
  std::size_t rest;  // number of bytes that belong to requests
  bool operator==(const Outcome&) const = default;
};

Outcome feed(ByteSpan in, std::size_t piece, Handshake::Tls tls) {
  Exports shown = exports();
  Handshake h(shown, tls);
  Outcome o{};
  while (!in.empty() && h.state() == Handshake::State::negotiating) {
    ByteSpan part = in.first(std::min(piece, in.size()));
    std::size_t before = part.size();
    h.consume(part, o.out);
    in = in.subspan(before - part.size());
    TL_CHECK(part.empty() || h.state() != Handshake::State::negotiating);
    if (h.state() != Handshake::State::starting_tls) continue;
    h.secured();
    ++o.secured;
  }
  o.state = h.state(), o.structured = h.structured_replies(), o.rest = in.size();
  if (o.state == Handshake::State::transmission) o.name = h.export_name();
  if (o.state == Handshake::State::broken) o.why = std::string(h.why());
  return o;
}

// Replies to options. The reply to EXPORT_NAME has no frame, and can only be the last.
void check_replies(const Outcome& o) {
  ByteSpan left(o.out);
  while (left.size() >= 20 && load_be<std::uint64_t>(left.data()) == option_reply_magic) {
    std::size_t bytes = load_be<std::uint32_t>(left.data() + 16);
    TL_CHECK(bytes <= left.size() - 20);
    bool error = (load_be<std::uint32_t>(left.data() + 12) & 0x80000000u) != 0;
    if (error) TL_CHECK(bytes > 0);
    left = left.subspan(20 + bytes);
  }
  TL_CHECK(left.empty() || o.state == Handshake::State::transmission);
  TL_CHECK(left.empty() || left.size() == 10 || left.size() == 134);
  if (!left.empty()) TL_CHECK(load_be<std::uint64_t>(left.data()) == export_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  ByteSpan in(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  auto tls = data[0] < 128 ? Handshake::Tls::none : Handshake::Tls::required;
  Outcome whole = feed(in, in.size() + 1, tls);
  TL_CHECK(whole == feed(in, 1, tls) && whole == feed(in, data[0] % 128 + 1u, tls));
  TL_CHECK(whole.secured <= (tls == Handshake::Tls::required ? 1u : 0u));
  if (whole.state == Handshake::State::transmission && tls == Handshake::Tls::required)
    TL_CHECK(whole.secured == 1);
  check_replies(whole);
  if (whole.state == Handshake::State::transmission) TL_CHECK(whole.name == "spool");
  if (whole.state == Handshake::State::broken) TL_CHECK(!whole.why.empty());
  if (whole.state == Handshake::State::negotiating) TL_CHECK(whole.rest == 0);
  return 0;
}
