// The input from a peer or from any caller at the port. The first byte selects a message decoder, the wire
// header, the peer's settings, or a handshake with messages from the input.
#include <cstdint>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/format/short_record.h"
#include "twinloft/spool-repl/format/wire.h"
#include "twinloft/spool-repl/net/handshake.h"

using namespace twinloft;
using namespace twinloft::repl;

namespace {

// Encoded anew, it has the same meaning, and the content is sent once.
void short_record(ByteSpan in) {
  auto found = decode_short_record(in);
  if (!found) return;
  TL_CHECK(found->payload.size() <= record_payload_blocks_max * block_size);
  std::vector<const std::byte*> blocks;
  for (std::size_t at = 0; at < found->payload.size(); at += block_size)
    blocks.push_back(found->payload.data() + at);
  auto runs = find_runs(blocks);
  if (runs.empty()) return;
  std::vector<std::byte> again;
  encode_short_record_prefix(found->epoch, static_cast<std::uint32_t>(found->meta.size()), runs, again);
  again.insert(again.end(), found->meta.begin(), found->meta.end());
  std::size_t at = 0;
  for (const PayloadRun& run : runs) {
    if (run.kind == PayloadRun::Kind::content)
      again.insert(again.end(), blocks[at], blocks[at] + run.blocks * block_size);
    at += run.blocks;
  }
  // Another encoder may join runs of zeros with repetitions.
  TL_CHECK(again.size() <= in.size() + record_payload_blocks_max * 5);
  TL_CHECK(*decode_short_record(again) == *found);
}

void message(std::uint16_t type, ByteSpan payload) {
  if (type == static_cast<std::uint16_t>(WireType::short_record)) return short_record(payload);
  auto out = decode_peer_message(type, payload);
  if (!out) return;
  TL_CHECK(wire_type(*out) == type);
  std::vector<std::byte> again;
  encode_peer_message(*out, again);
  TL_CHECK(again.size() == payload.size());
  TL_CHECK(*decode_peer_message(type, again) == *out);
}

void header(ByteSpan in) {
  if (in.size() < wire_header_bytes) return;
  auto out = decode_wire_header(in.first(wire_header_bytes));
  if (!out) return;
  TL_CHECK(out->payload_bytes <= wire_payload_max);
  std::vector<std::byte> again(wire_header_bytes);
  encode_wire_header(*out, again);
  TL_CHECK(std::memcmp(again.data(), in.data(), wire_header_bytes) == 0);
}

// Any settings of a peer give valid lines for the log.
void settings(ByteSpan in) {
  std::string ours = "protocol=C\non_peer_loss=suspend\n",
              theirs(as_text(in.first(std::min(in.size(), agreement_bytes_max))));
  std::string told = disagreement(ours, theirs);
  TL_CHECK(told.empty() == (ours == theirs));
  TL_CHECK(told.size() < 800);
  for (char c : told) TL_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  TL_CHECK(disagreement(theirs, theirs).empty());
}

// Type, length, payload, repeated. A caller that nothing vouches for never completes the handshake.
void handshake(net::Authentication authentication, ByteSpan in) {
  SeededRandom random(1);
  net::Identity self{Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value(), 1000, 1,
                     [](ReplicaId) { return std::string("protocol=C\n"); }};
  net::Handshake h(self, std::move(authentication), net::Handshake::Direction::accepted, 0, random);
  while (in.size() >= 2) {
    auto type = static_cast<std::uint16_t>(in[0]);
    std::size_t length = std::min<std::size_t>(static_cast<std::size_t>(in[1]), in.size() - 2);
    auto done = h.receive(type, in.subspan(2, length));
    TL_CHECK(!done || !*done);
    TL_CHECK(!h.disagrees());
    if (!done) return;
    for (const auto& m : h.take_output()) TL_CHECK(m.payload.size() <= net::handshake_payload_max);
    in = in.subspan(2 + length);
  }
}

Status vouch_for_none(ReplicaId) {
  return fail(Errc::denied, "no certificate");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  ByteSpan rest(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  if (data[0] < 64)
    message(data[0], rest);
  else if (data[0] < 96)
    header(rest);
  else if (data[0] < 128)
    settings(rest);
  else if (data[0] < 192)
    handshake(net::OldRelease{"a secret that the fuzzer does not have"}, rest);
  else
    handshake(net::ByStream{vouch_for_none}, rest);
  return 0;
}
