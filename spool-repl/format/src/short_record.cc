#include "twinloft/spool-repl/format/short_record.h"

#include <algorithm>
#include <array>
#include <bit>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/format/digest.h"

namespace twinloft::repl {

namespace {

using Kind = PayloadRun::Kind;
constexpr std::size_t run_bytes = 5;

// Differs for most blocks that differ. Equal keys are compared whole.
std::uint64_t key_of(const std::byte* block) {
  std::uint64_t key = 0;
  for (std::size_t at : {0u, 1024u, 2048u, 3072u, block_size - 8})
    key = (std::rotl(key, 23) ^ load_le<std::uint64_t>(block + at)) * 0x9e3779b97f4a7c15u;
  return key;
}

// Finds an earlier block with the same content: the last one with the same key.
class Earlier {
 public:
  explicit Earlier(std::span<const std::byte* const> blocks)
      : blocks_(blocks), mask_(std::bit_ceil(2 * blocks.size()) - 1) {
    std::fill_n(last_.begin(), mask_ + 1, none);
  }

  // Remembers the block with this index. Returns `none`, if no earlier block is found.
  std::uint16_t find(std::uint16_t index) {
    std::uint16_t& slot = last_[key_of(blocks_[index]) >> 32 & mask_];
    std::uint16_t before = std::exchange(slot, index);
    bool same = before != none && std::memcmp(blocks_[before], blocks_[index], block_size) == 0;
    return same ? before : none;
  }
  static constexpr std::uint16_t none = 0xffff;

 private:
  std::span<const std::byte* const> blocks_;
  std::size_t mask_;
  std::array<std::uint16_t, 2 * record_payload_blocks_max> last_;  // by key. The rest has no value
};

void add(std::vector<PayloadRun>& runs, Kind kind, std::uint16_t from) {
  if (!runs.empty() && runs.back().kind == kind &&
      (kind != Kind::repeat || runs.back().from + runs.back().blocks == from)) {
    ++runs.back().blocks;
    return;
  }
  runs.push_back({kind, 1, kind == Kind::repeat ? from : std::uint16_t{0}});
}

std::unexpected<Error> corrupt(std::string_view what) {
  return fail(Errc::corrupt, "a short record: {}", what);
}

Result<std::vector<PayloadRun>> get_runs(Reader& r) {
  auto count = r.get<std::uint16_t>();
  if (count > record_payload_blocks_max || r.remaining() < count * run_bytes)
    return corrupt("a wrong number of runs");
  std::vector<PayloadRun> runs;
  std::size_t at = 0;
  for (unsigned i = 0; i < count; ++i) {
    auto kind = r.get<std::uint8_t>();
    PayloadRun run{static_cast<Kind>(kind), r.get<std::uint16_t>(), r.get<std::uint16_t>()};
    bool repeats = run.kind == Kind::repeat;
    if (kind > static_cast<std::uint8_t>(Kind::repeat) || run.blocks == 0 ||
        (repeats ? run.from >= at : run.from != 0))
      return corrupt("a run that cannot be");
    at += run.blocks;
    if (at > record_payload_blocks_max) return corrupt("more blocks than a record may have");
    runs.push_back(run);
  }
  return runs;
}

}  // namespace

std::vector<PayloadRun> find_runs(std::span<const std::byte* const> blocks) {
  TL_CHECK(blocks.size() <= record_payload_blocks_max);
  std::vector<PayloadRun> runs;
  if (blocks.empty()) return runs;
  Earlier earlier(blocks);
  for (std::uint16_t i = 0; i < blocks.size(); ++i) {
    std::uint16_t from = Earlier::none;
    Kind kind = is_zero({blocks[i], block_size})                                 ? Kind::zeros
                : blocks.size() > 1 && (from = earlier.find(i)) != Earlier::none ? Kind::repeat
                                                                                 : Kind::content;
    // Most records have content alone: they cost no memory.
    if (kind == Kind::content && runs.empty()) continue;
    if (runs.empty() && i > 0) runs.push_back({Kind::content, i, 0});
    add(runs, kind, from);
  }
  return runs;
}

void encode_short_record_prefix(const Epoch& epoch, std::uint32_t meta_bytes,
                                std::span<const PayloadRun> runs, std::vector<std::byte>& out) {
  encode_record_prefix(epoch, meta_bytes, out);
  Writer w(out);
  w.put(static_cast<std::uint16_t>(runs.size()));
  for (const PayloadRun& run : runs) {
    w.put(static_cast<std::uint8_t>(run.kind));
    w.put(run.blocks);
    w.put(run.from);
  }
}

Result<RecordMessage> decode_short_record(ByteSpan payload) {
  Reader r(payload);
  RecordMessage m;
  TL_TRY_ASSIGN(m.epoch, get_epoch(r));
  auto meta_bytes = r.get<std::uint32_t>();
  TL_TRY_ASSIGN(auto runs, get_runs(r));
  if (!r.ok() || meta_bytes > r.remaining()) return corrupt("a body of a wrong length");
  ByteSpan meta = r.get_bytes(meta_bytes);
  m.meta.assign(meta.begin(), meta.end());
  std::size_t content = 0, all = 0;
  for (const PayloadRun& run : runs) {
    all += run.blocks;
    if (run.kind == Kind::content) content += run.blocks;
  }
  if (r.remaining() != content * block_size) return corrupt("blocks of a wrong length");
  m.payload.reserve(all * block_size);
  for (const PayloadRun& run : runs) {
    std::size_t bytes = run.blocks * block_size;
    if (run.kind == Kind::content) {
      ByteSpan part = r.get_bytes(bytes);
      m.payload.insert(m.payload.end(), part.begin(), part.end());
      continue;
    }
    std::size_t at = m.payload.size();
    m.payload.resize(at + bytes);
    // Block by block: a run may repeat its own first blocks.
    for (std::size_t b = 0; run.kind == Kind::repeat && b < run.blocks; ++b)
      std::memcpy(m.payload.data() + at + b * block_size, m.payload.data() + (run.from + b) * block_size,
                  block_size);
  }
  return m;
}

}  // namespace twinloft::repl
