// Groups, marks and segments of an intake log, from a disk that may have rotted. The first byte selects the
// kind of input. It also selects whether checksums are corrected, because they would stop the fuzzer.
//
// An accepted mark is encoded to the same bytes, and so is an accepted group. The scan of any segments ends,
// within its bound, and names each needed group as found or damaged.
#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/intake_log/entries.h"
#include "twinloft/intake_log/group.h"
#include "twinloft/intake_log/mark.h"
#include "twinloft/intake_log/scan.h"

using namespace twinloft;
using namespace twinloft::intake_log;

namespace {

using Bytes = std::vector<std::byte>;
const Uuid incarnation = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();
constexpr LogShape shape{8 * block_bytes, 2};

// Both checksums of a group.
void seal(MutableByteSpan group) {
  store_le(group.data() + 12, crc32c(group.subspan(group_header_bytes)));
  store_le(group.data() + 8, std::uint32_t{0});
  store_le(group.data() + 8, crc32c(group.first(group_header_bytes)));
}

void mark(Bytes in, bool repair) {
  if (repair && in.size() >= mark_fixed_bytes) {
    store_le(in.data(), std::uint32_t{0x4d494c54});
    store_le(in.data() + 8, std::uint32_t{0});
    std::ranges::copy(incarnation.bytes, in.begin() + 12);
    store_le(in.data() + 8, crc32c(in));
  }
  auto read = Mark::decode(in, incarnation);
  if (!read) return;
  TL_CHECK(read->encode() == in && read->prefix() <= read->end() && read->end() <= read->room());
  TL_CHECK(!read->is_settled(read->prefix()));
  Mark both = *read;
  both.merge(*read);
  TL_CHECK(both == *read);
}

void check_again(const Group& group, ByteSpan in) {
  Bytes memory(group_bytes_max);
  GroupBuilder builder(memory);
  std::uint64_t entries = 0;
  for (const Record& record : group.records) {
    if (const auto* message = std::get_if<MessageRecord>(&record)) {
      TL_CHECK(message->first_entry == group.header.first_entry + entries);
      TL_CHECK(builder.add_message(message->names, message->content).has_value());
      entries += message->names.size();
    } else {
      TL_CHECK(builder.add_cancel(std::get<CancelRecord>(record).entry).has_value());
    }
  }
  auto again = decode_group(builder.finish(group.header));
  TL_CHECK(again && again->records == group.records && again->header.bytes == in.size());
}

void group(Bytes in, bool repair) {
  in.resize(whole_blocks(std::max<std::size_t>(in.size(), 1)));
  if (repair) {
    store_le(in.data(), std::uint32_t{0x47494c54});
    store_le(in.data() + 4, std::uint16_t{1});
    store_le(in.data() + 56, static_cast<std::uint32_t>(in.size()));
    seal(in);
  }
  auto read = decode_group(in);
  if (read) check_again(*read, in);
}

class Segments final : public SegmentReader {
 public:
  Status read(std::uint32_t segment, std::uint64_t offset, MutableByteSpan out) const override {
    TL_CHECK(segment < shape.segments && offset + out.size() <= shape.segment_bytes);
    bytes_read += out.size();
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(segment * shape.segment_bytes + offset),
                out.size(), out.begin());
    return {};
  }
  Bytes bytes = Bytes(shape.bytes());
  mutable std::uint64_t bytes_read = 0;
};

// Twelve bytes make a group: where it is, its number, its first entry, and so on.
void segments(ByteSpan in) {
  Segments disk;
  Bytes memory(4 * block_bytes);
  const std::vector<EntryName> names{{"a", "", "n"}};
  for (; in.size() >= 12; in = in.subspan(12)) {
    auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(in[i]); };
    GroupBuilder builder(memory);
    (void)builder.add_message(names, std::string(at(0) * 40, 'x'));
    GroupHeader header;
    header.incarnation = incarnation;
    header.number = at(1) % 16;
    header.first_entry = at(2) % 32;
    header.retired = std::min<std::uint64_t>(at(3) % 32, header.first_entry);
    header.at = {at(4) % 2, at(5) % 8 * block_bytes};
    header.oldest_number = std::min<std::uint64_t>(at(6) % 16, header.number);
    header.oldest = {at(7) % 2, at(8) % 8 * block_bytes};
    if (header.oldest_number == header.number) header.oldest = header.at;
    if (header.oldest_number != header.number && header.oldest == header.at) continue;
    const ByteSpan made = builder.finish(header);
    auto to = disk.bytes.begin() +
              static_cast<std::ptrdiff_t>(header.at.segment * shape.segment_bytes + header.at.offset);
    const auto room = static_cast<std::size_t>(disk.bytes.end() - to);
    std::copy_n(made.begin(), std::min(room, made.size()), to);
    if (at(9) % 4 == 0) *(to + static_cast<std::ptrdiff_t>(at(10) * 16)) ^= std::byte(at(11));
  }
  auto found = scan(shape, incarnation, disk);
  TL_CHECK(disk.bytes_read <= 3 * (shape.bytes() + group_bytes_max));
  if (!found) return;
  TL_CHECK(found->end.segment < shape.segments && found->end.offset < shape.segment_bytes);
  std::uint64_t last = 0;
  for (const GroupHeader& g : found->groups) {
    TL_CHECK(g.number < found->next_group && g.end_entry() <= found->next_entry && g.number >= last);
    last = g.number;
  }
  for (const Damage& d : found->damage)
    TL_CHECK(d.first_group < d.end_group && d.end_group <= found->next_group);
  (void)LogEntries::read(*found, disk);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  auto* bytes = reinterpret_cast<const std::byte*>(data);
  const bool repair = (data[0] & 1) != 0;
  if (data[0] & 2)
    segments({bytes + 1, size - 1});
  else if (data[0] & 4)
    mark(Bytes(bytes + 1, bytes + size), repair);
  else
    group(Bytes(bytes + 1, bytes + size), repair);
  return 0;
}
