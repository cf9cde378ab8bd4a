// The chunks of a link of several paths, from a peer that may send anything. The first byte selects a part.
//
// A header that is accepted says the same when it is written again. The input gives each byte once, in order,
// whatever pieces arrive, within its bound. The output keeps a byte until the other side has it, whatever
// the other side says.
#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/spool-repl/chunks/chunk.h"
#include "twinloft/spool-repl/chunks/chunk_input.h"
#include "twinloft/spool-repl/chunks/chunk_output.h"

using namespace twinloft;
using namespace twinloft::repl::chunks;

namespace {

using Bytes = std::vector<std::byte>;
constexpr std::size_t window = 4096;

std::byte content(std::uint64_t position) {
  return std::byte(position * 7 + position / 251);
}

Bytes range(std::uint64_t position, std::size_t count) {
  Bytes out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = content(position + i);
  return out;
}

void header(ByteSpan in) {
  Bytes bytes(in.begin(), in.end());
  bytes.resize(chunk_header_bytes);
  store_le(bytes.data() + chunk_header_bytes - 4, crc32c(ByteSpan(bytes).first(chunk_header_bytes - 4)));
  auto found = decode_chunk_header(bytes);
  if (!found) return;
  auto again = encode_chunk_header(*found);
  TL_CHECK(std::equal(again.begin(), again.end(), bytes.begin()));
  TL_CHECK(found->bytes <= chunk_bytes_max);
}

void input(Reader& r) {
  ChunkInput in(window);
  std::uint64_t taken = 0;
  while (r.remaining() >= 4) {
    auto first = r.get<std::uint16_t>(), second = r.get<std::uint16_t>();
    if (first & 1) {
      Bytes into(second % 600);
      iovec place{into.data(), into.size()};
      std::size_t got = in.read({&place, 1});
      into.resize(got);
      TL_CHECK(into == range(taken, got));
      taken += got;
    } else {
      std::uint64_t position = taken + second % (window + 8) - std::min<std::uint64_t>(taken, 300);
      std::size_t count = 1 + first / 2 % 700;
      Status added = in.add(position, range(position, count));
      if (!added) return;  // the owner gives the path up
      TL_CHECK(position + count <= taken + window);
    }
    TL_CHECK(in.taken() == taken);
  }
}

void output(Reader& r) {
  ChunkOutput out(window, window / 2);
  std::optional<ChunkOutput::Chunk> writing[3];
  std::uint64_t sent = 0;
  while (r.remaining() >= 4) {
    auto first = r.get<std::uint16_t>(), second = r.get<std::uint16_t>();
    unsigned path = first / 8 % 3;
    auto& chunk = writing[path];
    switch (first % 8) {
      case 0:
      case 1: {
        Bytes more = range(out.end(), second % 3000);
        iovec from{more.data(), more.size()};
        std::size_t room = out.room();
        TL_CHECK(out.accept({&from, 1}) == std::min(room, more.size()));
        break;
      }
      case 2:
      case 3:
        if (chunk || !out.has_next()) break;
        chunk = out.next(path, 1 + second % 900);
        sent = std::max(sent, chunk->end());
        break;
      case 4:
        if (chunk) out.finished(*chunk);
        chunk.reset();
        break;
      case 5:
        out.lost(path);
        chunk.reset();
        break;
      default:
        TL_CHECK(out.taken(second).has_value() == (second <= sent));
    }
    for (const auto& each : writing) {
      if (!each) continue;
      Bytes got;
      out.for_each_part(*each, 0, [&](ByteSpan part) { got.insert(got.end(), part.begin(), part.end()); });
      TL_CHECK(got == range(each->position, each->bytes));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteSpan in(reinterpret_cast<const std::byte*>(data), size);
  if (in.empty()) return 0;
  Reader r(in.subspan(1));
  switch (data[0] % 3) {
    case 0:
      header(in.subspan(1));
      break;
    case 1:
      input(r);
      break;
    default:
      output(r);
  }
  return 0;
}
