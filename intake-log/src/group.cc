#include "twinloft/intake_log/group.h"

#include <algorithm>

#include "twinloft/base/check.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::intake_log {

namespace {

constexpr std::uint32_t magic = 0x47494c54;  // "TLIG"
constexpr std::size_t crc_offset = 8;
constexpr std::uint64_t number_max = std::uint64_t{1} << 62;  // sums of numbers never overflow
constexpr std::uint32_t message_kind = 1, cancel_kind = 2;
constexpr std::size_t record_header_bytes = 8;   // kind, bytes of the rest
constexpr std::size_t message_header_bytes = 8;  // names, bytes of the content
constexpr std::size_t text_header_bytes = 4;
static_assert(cancel_bytes == record_header_bytes + sizeof(std::uint64_t));
static_assert(group_header_bytes < block_bytes && group_bytes_max % block_bytes == 0);

std::uint32_t header_crc(ByteSpan header) {
  constexpr std::array<std::byte, 4> zero{};
  std::uint32_t crc = crc32c(header.first(crc_offset));
  crc = crc32c(zero, crc);
  return crc32c(header.subspan(crc_offset + 4, group_header_bytes - crc_offset - 4), crc);
}

// Appends to memory that is large enough.
class Cursor {
 public:
  explicit Cursor(std::byte* at) : at_(at) {}
  template <std::unsigned_integral T>
  void put(T value) {
    store_le(at_, value);
    at_ += sizeof value;
  }
  void put_bytes(ByteSpan bytes) { at_ = std::copy(bytes.begin(), bytes.end(), at_); }
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_bytes(as_bytes(text));
  }

 private:
  std::byte* at_;
};

void put_header(std::byte* at, const GroupHeader& h) {
  Cursor c(at);
  c.put(magic);
  c.put(group_version);
  c.put(std::uint16_t{0});
  c.put(std::uint32_t{0});  // the checksum
  c.put(h.records_crc);
  c.put_bytes(h.incarnation.bytes);
  c.put(h.number);
  c.put(h.first_entry);
  c.put(h.entries);
  c.put(h.records);
  c.put(h.bytes);
  c.put(h.used);
  c.put_bytes(h.mount.boot_id.bytes);
  c.put(h.mount.diskseq);
  c.put(h.mount.sysfs_inode);
  c.put(h.retired);
  c.put(h.oldest_number);
  c.put(h.oldest.offset);
  c.put(h.at.offset);
  c.put(h.oldest.segment);
  c.put(h.at.segment);
  store_le(at + crc_offset, header_crc({at, group_header_bytes}));
}

// What every version has in the same place.
struct Common {
  std::uint16_t version = 0;
  std::uint32_t records_crc = 0;
  Uuid incarnation;
  std::uint64_t number = 0;
};

// nullopt: no header, or a damaged one.
std::optional<Common> get_common(Reader& r, ByteSpan header) {
  Common common;
  const auto kind = r.get<std::uint32_t>();
  common.version = r.get<std::uint16_t>();
  r.skip(2);
  const auto crc = r.get<std::uint32_t>();
  common.records_crc = r.get<std::uint32_t>();
  r.get_into(common.incarnation.bytes);
  common.number = r.get<std::uint64_t>();
  if (!r.ok() || kind != magic || header.size() < group_header_bytes || crc != header_crc(header))
    return std::nullopt;
  return common;
}

GroupHeader get_rest(Reader& r, const Common& common) {
  GroupHeader h;
  h.records_crc = common.records_crc;
  h.incarnation = common.incarnation;
  h.number = common.number;
  h.first_entry = r.get<std::uint64_t>();
  h.entries = r.get<std::uint32_t>();
  h.records = r.get<std::uint32_t>();
  h.bytes = r.get<std::uint32_t>();
  h.used = r.get<std::uint32_t>();
  r.get_into(h.mount.boot_id.bytes);
  h.mount.diskseq = r.get<std::uint64_t>();
  h.mount.sysfs_inode = r.get<std::uint64_t>();
  h.retired = r.get<std::uint64_t>();
  h.oldest_number = r.get<std::uint64_t>();
  h.oldest.offset = r.get<std::uint64_t>();
  h.at.offset = r.get<std::uint64_t>();
  h.oldest.segment = r.get<std::uint32_t>();
  h.at.segment = r.get<std::uint32_t>();
  return h;
}

bool is_place(Position at) {
  return at.segment < segments_max && at.offset % block_bytes == 0 && at.offset < segment_bytes_max;
}

// Whether the members of a header are possible together.
bool is_consistent(const GroupHeader& h) {
  return h.number <= number_max && h.first_entry <= number_max && h.bytes % block_bytes == 0 &&
         h.bytes <= group_bytes_max && h.used >= group_header_bytes && whole_blocks(h.used) == h.bytes &&
         h.records <= h.used / cancel_bytes && h.entries <= h.used / text_header_bytes && is_place(h.at) &&
         is_place(h.oldest) && h.retired <= h.first_entry && h.oldest_number <= h.number &&
         (h.oldest_number == h.number) == (h.oldest == h.at);
}

bool is_component(std::string_view text) {
  return !text.empty() && text != "." && text != ".." && text.find('\0') == text.npos;
}

bool is_relative_path(std::string_view path) {
  while (true) {
    const std::size_t slash = path.find('/');
    if (!is_component(path.substr(0, slash))) return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::size_t name_bytes(const EntryName& n) {
  return 3 * text_header_bytes + n.maildir.size() + n.folder.size() + n.name.size();
}

Result<EntryName> get_name(Reader& r) {
  EntryName name;
  auto maildir = r.get_text(maildir_bytes_max);
  auto folder = r.get_text(folder_bytes_max);
  auto file = r.get_text(name_bytes_max);
  if (!maildir || !folder || !file) return fail(Errc::corrupt, "a name is cut off, or too long");
  name = {*maildir, *folder, *file};
  if (auto allowed = check_name(name); !allowed) return fail(Errc::corrupt, "{}", allowed.error().message);
  return name;
}

Result<MessageRecord> get_message(Reader r, std::uint64_t first_entry) {
  MessageRecord message;
  message.first_entry = first_entry;
  const auto names = r.get<std::uint32_t>();
  const auto content_bytes = r.get<std::uint32_t>();
  if (!r.ok() || names == 0 || names > names_max) return fail(Errc::corrupt, "a message has {} names", names);
  for (std::uint32_t i = 0; i < names; ++i) {
    TL_TRY_ASSIGN(EntryName name, get_name(r));
    message.names.push_back(name);
  }
  if (r.remaining() != content_bytes)
    return fail(Errc::corrupt, "a message has {} bytes of content instead of {}", r.remaining(),
                content_bytes);
  message.content = as_text(r.get_bytes(content_bytes));
  return message;
}

Result<CancelRecord> get_cancel(Reader r, std::uint64_t first_entry) {
  CancelRecord cancel{r.get<std::uint64_t>()};
  if (!r.ok() || r.remaining() != 0) return fail(Errc::corrupt, "a cancel record has another size");
  if (cancel.entry >= first_entry)
    return fail(Errc::corrupt, "a cancel record names entry {}, which is in no earlier group", cancel.entry);
  return cancel;
}

// One record. next_entry: of the next message record.
Result<Record> get_record(Reader& r, const GroupHeader& header, std::uint64_t next_entry) {
  const auto kind = r.get<std::uint32_t>();
  const auto bytes = r.get<std::uint32_t>();
  ByteSpan rest = r.get_bytes(bytes);
  if (!r.ok()) return fail(Errc::corrupt, "a record is cut off");
  if (kind == message_kind) return get_message(Reader(rest), next_entry);
  if (kind == cancel_kind) return get_cancel(Reader(rest), header.first_entry);
  return fail(Errc::corrupt, "a record has the unknown kind {}", kind);
}

Result<GroupHeader> get_header(Reader& r, ByteSpan bytes) {
  auto common = get_common(r, bytes);
  if (!common) return fail(Errc::corrupt, "this is no group, or the checksum of its header is wrong");
  if (common->version != group_version)
    return fail(Errc::invalid, "the group {} has version {}, and this program reads version {}",
                common->number, common->version, group_version);
  GroupHeader header = get_rest(r, *common);
  if (!is_consistent(header))
    return fail(Errc::corrupt, "the header of the group {} contradicts itself", header.number);
  return header;
}

}  // namespace

Status check_name(const EntryName& n) {
  if (n.maildir.size() > maildir_bytes_max || !is_relative_path(n.maildir))
    return fail(Errc::invalid, "\"{}\" is no path of a Maildir in the spool", n.maildir);
  if (n.folder.size() > folder_bytes_max || (!n.folder.empty() && !is_relative_path(n.folder)))
    return fail(Errc::invalid, "\"{}\" is no path of a folder", n.folder);
  if (n.name.size() > name_bytes_max || !is_component(n.name) || n.name.find('/') != n.name.npos)
    return fail(Errc::invalid, "\"{}\" is no name of a file", n.name);
  return {};
}

std::size_t message_bytes(std::span<const EntryName> names, std::size_t content_bytes) {
  std::size_t bytes = record_header_bytes + message_header_bytes + content_bytes;
  for (const EntryName& name : names) bytes += name_bytes(name);
  return bytes;
}

GroupBuilder::GroupBuilder(MutableByteSpan memory) : memory_(memory) {
  TL_CHECK(!memory.empty() && memory.size() % block_bytes == 0 && memory.size() <= group_bytes_max);
}

Status GroupBuilder::add_message(std::span<const EntryName> names, std::string_view content) {
  if (names.empty() || names.size() > names_max)
    return fail(Errc::invalid, "a message of the log has 1 to {} names, not {}", names_max, names.size());
  for (const EntryName& name : names) TL_TRY(check_name(name));
  const std::size_t bytes = message_bytes(names, content.size());
  if (content.size() > group_bytes_max || bytes > room())
    return fail(Errc::exhausted, "the group has {} bytes left, and the message takes {}", room(), bytes);
  Cursor c(memory_.data() + used_);
  c.put(message_kind);
  c.put(static_cast<std::uint32_t>(bytes - record_header_bytes));
  c.put(static_cast<std::uint32_t>(names.size()));
  c.put(static_cast<std::uint32_t>(content.size()));
  for (const EntryName& name : names) {
    c.put_text(name.maildir);
    c.put_text(name.folder);
    c.put_text(name.name);
  }
  c.put_bytes(as_bytes(content));
  used_ += bytes;
  entries_ += static_cast<std::uint32_t>(names.size());
  ++records_;
  return {};
}

Status GroupBuilder::add_cancel(std::uint64_t entry) {
  if (cancel_bytes > room()) return fail(Errc::exhausted, "the group has no room for a cancel record");
  Cursor c(memory_.data() + used_);
  c.put(cancel_kind);
  c.put(static_cast<std::uint32_t>(sizeof entry));
  c.put(entry);
  used_ += cancel_bytes;
  ++records_;
  return {};
}

ByteSpan GroupBuilder::finish(GroupHeader header) {
  header.entries = entries_;
  header.records = records_;
  header.used = static_cast<std::uint32_t>(used_);
  header.bytes = static_cast<std::uint32_t>(whole_blocks(used_));
  MutableByteSpan group = memory_.first(header.bytes);
  std::ranges::fill(group.subspan(used_), std::byte{0});
  header.records_crc = crc32c(group.subspan(group_header_bytes));
  TL_CHECK(is_consistent(header));
  put_header(group.data(), header);
  return group;
}

void GroupBuilder::clear() {
  used_ = group_header_bytes;
  entries_ = records_ = 0;
}

BlockHeader look_at_block(ByteSpan block, const Uuid& incarnation, Position at) {
  Reader r(block);
  auto common = get_common(r, block);
  if (!common) return {};
  BlockHeader found;
  found.version = common->version;
  found.header.number = common->number;
  if (common->incarnation != incarnation) {
    found.kind = BlockKind::foreign;
    found.header.incarnation = common->incarnation;
    return found;
  }
  if (common->version != group_version) {
    found.kind = BlockKind::version;
    return found;
  }
  found.header = get_rest(r, *common);
  if (!is_consistent(found.header) || found.header.at != at) return {};
  found.kind = BlockKind::group;
  return found;
}

bool has_whole_records(const GroupHeader& header, ByteSpan bytes) {
  return bytes.size() == header.bytes && crc32c(bytes.subspan(group_header_bytes)) == header.records_crc;
}

Result<Group> decode_group(ByteSpan bytes) {
  Reader r(bytes);
  Group group;
  TL_TRY_ASSIGN(group.header, get_header(r, bytes));
  const GroupHeader& header = group.header;
  if (!has_whole_records(header, bytes))
    return fail(Errc::corrupt, "the checksum of the records of group {} is wrong", header.number);
  Reader records(bytes.first(header.used).subspan(group_header_bytes));
  std::uint64_t next_entry = header.first_entry;
  for (std::uint32_t i = 0; i < header.records; ++i) {
    auto record = get_record(records, header, next_entry);
    if (!record)
      return fail(Errc::corrupt, "record {} of group {}: {}", i, header.number, record.error().message);
    if (const auto* message = std::get_if<MessageRecord>(&*record)) next_entry += message->names.size();
    group.records.push_back(std::move(*record));
  }
  if (records.remaining() != 0 || next_entry != header.end_entry())
    return fail(Errc::corrupt, "the records of group {} are not those of its header", header.number);
  return group;
}

}  // namespace twinloft::intake_log
