// The input of a client that has an export: requests, and the payload of writes. The first byte sets the size
// of the pieces, which must not matter. No request beyond the volume is accepted.
#include <cstdint>
#include <tuple>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/export/nbd_protocol.h"

using namespace twinloft;
using namespace twinloft::repl::nbd;

namespace {

constexpr std::uint64_t volume_bytes = 64u << 20;

struct Read {
  Request request;
  std::vector<std::byte> payload;
  bool operator==(const Read& o) const {
    auto fields = [](const Request& r) {
      return std::tuple(r.flags, r.command, r.cookie, r.offset, r.length);
    };
    return fields(request) == fields(o.request) && payload == o.payload;
  }
};
struct Stream {
  std::vector<Read> all;
  std::uint32_t payload_left = 0;
  bool bad = false;
  bool operator==(const Stream&) const = default;
};

Stream read(ByteSpan in, std::size_t piece) {
  RequestReader reader;
  Stream s;
  while (!in.empty() && !s.bad) {
    ByteSpan part = in.first(std::min(piece, in.size()));
    in = in.subspan(part.size());
    for (bool more = true; more && !s.bad;) {
      ByteSpan payload;
      std::size_t before = part.size();
      switch (reader.next(part, payload)) {
        case RequestReader::Event::need_input:
          TL_CHECK(part.empty());
          more = false;
          break;
        case RequestReader::Event::bad_magic:
          s.bad = true;
          break;
        case RequestReader::Event::request:
          s.all.push_back({reader.request(), {}});
          break;
        case RequestReader::Event::payload:
          TL_CHECK(!payload.empty() && !s.all.empty() && before - part.size() == payload.size());
          s.all.back().payload.insert(s.all.back().payload.end(), payload.begin(), payload.end());
          break;
      }
    }
  }
  s.payload_left = s.bad ? 0 : reader.payload_left();
  return s;
}

void check(const Read& r, bool last) {
  const Request& q = r.request;
  std::array<std::byte, request_bytes> bytes;
  encode_request(q, bytes);
  auto again = decode_request(bytes);
  TL_CHECK(again && Read({*again, {}}) == Read({q, {}}));
  TL_CHECK(r.payload.size() <= (q.is(Command::write) ? q.length : 0u));
  if (!last && q.is(Command::write)) TL_CHECK(r.payload.size() == q.length);
  WireError verdict = check_request(q, volume_bytes);
  if (verdict == WireError::none && !q.is(Command::disconnect)) {
    TL_CHECK(q.offset <= volume_bytes && q.length <= volume_bytes - q.offset);
    if (q.is(Command::read) || q.is(Command::write)) TL_CHECK(q.length > 0 && q.length <= max_payload_bytes);
  }
  for (bool structured : {false, true}) {
    ReplyHeader h = encode_reply(q, verdict, structured);
    TL_CHECK(h.size <= max_reply_header_bytes && load_be<std::uint64_t>(h.bytes.data() + 8) == q.cookie);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  ByteSpan in(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  Stream whole = read(in, in.size() + 1);
  TL_CHECK(whole == read(in, 1) && whole == read(in, data[0] + 1u));
  for (std::size_t i = 0; i < whole.all.size(); ++i) check(whole.all[i], i + 1 == whole.all.size());
  return 0;
}
