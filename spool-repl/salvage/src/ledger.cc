#include "twinloft/spool-repl/salvage/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "beneath.h"
#include "fields.h"
#include "read_file.h"
#include "twinloft/base/crc32c.h"

namespace twinloft::repl::salvage {

namespace {

constexpr std::string_view magic = "#twinloft-salvage-ledger ";
constexpr std::size_t ledger_bytes_max = std::size_t{4} << 30;
constexpr std::size_t record_bytes_max = 16 << 10;  // a path of 4096 bytes, each of them encoded, and the
                                                    // rest
constexpr const char* mark_names[] = {"intent", "delivered", "present", "undone"};

std::string where() {
  return fmt::format("{}/{}", ledger_directory_name, ledger_file_name);
}

std::optional<Mark> parse_mark(std::string_view text) {
  for (std::size_t i = 0; i < std::size(mark_names); ++i)
    if (text == mark_names[i]) return static_cast<Mark>(i);
  return std::nullopt;
}

// Seeded with the record's position, so that a record is valid at its position alone.
std::string checksum(std::string_view fields, std::uint64_t offset) {
  return fmt::format("{:08x}", crc32c(as_bytes(fields), static_cast<std::uint32_t>(offset)));
}

// `line` without its line end.
bool take_record(std::string_view line, std::uint64_t offset, LedgerContent& out) {
  std::size_t blank = line.rfind(' ');
  if (blank == line.npos || line.substr(blank + 1) != checksum(line.substr(0, blank), offset)) return false;
  auto fields = decode_fields(line.substr(0, blank));
  if (!fields || fields->size() != 3) return false;
  auto mark = parse_mark((*fields)[0]);
  auto content = Sha256::parse((*fields)[2]);
  if (!mark || !content) return false;
  out.marks[{std::move((*fields)[1]), *content}] = *mark;
  return true;
}

// Whether the bytes from `at` on can be the record that was being written when the process or the machine
// ended. Every record was durable before the next, so it is at most one line, and contains no complete
// record.
bool may_be_torn(std::string_view text, std::size_t at) {
  std::size_t lf = text.find('\n', at);
  if (lf == text.npos) return true;
  if (lf + 1 != text.size() || lf - at > record_bytes_max) return false;
  LedgerContent scratch;
  for (std::size_t from = at + 1; from < lf; ++from)
    if (take_record(text.substr(from, lf - from), from, scratch)) return false;
  return true;
}

}  // namespace

std::string ledger_first_line() {
  return std::string(magic) + "1\n";
}

std::string encode_ledger_record(const LedgerKey& key, Mark mark, std::uint64_t offset) {
  std::string fields = encode_fields(
      {mark_names[static_cast<std::size_t>(mark)], key.maildir, key.content.hex()});
  return fmt::format("{} {}\n", fields, checksum(fields, offset));
}

Result<LedgerContent> decode_ledger(std::string_view text) {
  LedgerContent out;
  const std::string first = ledger_first_line();
  if (text.size() < first.size() && first.starts_with(text)) {
    out.torn = !text.empty();
    return out;
  }
  if (!text.starts_with(first)) {
    if (text.starts_with(magic))
      return fail(Errc::invalid, "{}: of another version of spool-repl; this release reads version 1",
                  where());
    return fail(Errc::corrupt,
                "{}: its first line is damaged: it is unknown what was delivered. Restore the file", where());
  }
  std::size_t at = first.size();
  for (std::size_t number = 2; at < text.size(); ++number) {
    std::size_t lf = text.find('\n', at);
    if (lf != text.npos && take_record(text.substr(at, lf - at), at, out)) {
      at = lf + 1;
      continue;
    }
    out.torn = may_be_torn(text, at);
    if (out.torn) break;
    return fail(Errc::corrupt,
                "{}: line {} is damaged, and is not the last line: it is unknown what was delivered. Restore "
                "the file, or remove the line if you know its content",
                where(), number);
  }
  out.good_bytes = at;
  return out;
}

Status Ledger::begin() {
  TL_TRY_ASSIGN(struct stat about, stat_of(dir_.get()));
  if (about.st_uid != ::geteuid() || (about.st_mode & 022) != 0)
    return fail(Errc::denied,
                "{}: belongs to user {}, mode {:o}; it must belong to the user that delivers ({}), and no "
                "other user may have write permission",
                ledger_directory_name, about.st_uid, about.st_mode & 0777, ::geteuid());
  auto file = open_beneath(dir_.get(), ledger_file_name, O_RDWR | O_APPEND | O_NOFOLLOW);
  if (!file && file.error().sys == ENOENT) {
    TL_TRY(ops_->create(dir_.get(), ledger_file_name));
    file = open_beneath(dir_.get(), ledger_file_name, O_RDWR | O_APPEND | O_NOFOLLOW);
  }
  if (!file) return std::unexpected(std::move(file).error());
  file_ = std::move(*file);
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(Errc::unavailable, "{}: another spool-repl salvage deliver is running", where());
  return {};
}

Status Ledger::load() {
  std::string text;
  TL_TRY(read_pieces(file_.get(), [&](ByteSpan piece) -> Result<bool> {
    text += as_text(piece);
    if (text.size() > ledger_bytes_max)
      return fail(Errc::exhausted, "{}: larger than {} bytes", where(), ledger_bytes_max);
    return true;
  }));
  TL_TRY_ASSIGN(content_, decode_ledger(text));
  return {};
}

// Removes an incomplete record, and writes a missing first line. Makes both durable, with the directory
// entries of the file.
Status Ledger::make_new() {
  if (content_.torn) TL_TRY(ops_->truncate(file_.get(), content_.good_bytes));
  if (content_.good_bytes == 0) {
    std::string first = ledger_first_line();
    TL_TRY(ops_->write(file_.get(), as_bytes(first)));
    content_.good_bytes = first.size();
  }
  TL_TRY(ops_->sync(file_.get()));
  TL_TRY(ops_->sync(dir_.get()));
  return ops_->sync(root_);
}

Result<Ledger> Ledger::open(int root, FileOps& ops) {
  Ledger out;
  out.ops_ = &ops;
  out.root_ = root;
  auto dir = open_directory(root, ledger_directory_name);
  if (!dir && dir.error().sys == ENOENT) {
    TL_TRY(ops.make_directory(root, ledger_directory_name));
    dir = open_directory(root, ledger_directory_name);
  }
  if (!dir) return std::unexpected(std::move(dir).error());
  out.dir_ = std::move(*dir);
  TL_TRY(out.begin());
  TL_TRY(out.load());
  TL_TRY(out.make_new());
  return out;
}

Result<Ledger> Ledger::open_to_look(int root) {
  Ledger out;
  out.failed_ = Error{Errc::internal, "a ledger that was opened for reading takes no records", 0};
  auto file = open_beneath(root, where(), O_RDONLY | O_NOFOLLOW);
  if (!file && file.error().sys == ENOENT) return out;
  if (!file) return std::unexpected(std::move(file).error());
  out.file_ = std::move(*file);
  TL_TRY(out.load());
  return out;
}

std::optional<Mark> Ledger::find(const LedgerKey& key) const {
  auto found = content_.marks.find(key);
  if (found == content_.marks.end()) return std::nullopt;
  return found->second;
}

Status Ledger::append(const LedgerKey& key, Mark mark) {
  if (failed_) return std::unexpected(*failed_);
  std::string record = encode_ledger_record(key, mark, content_.good_bytes);
  Status written = ops_->write(file_.get(), as_bytes(record));
  if (written) written = ops_->sync(file_.get());
  if (!written) {
    failed_ = Error{written.error().code, fmt::format("{}: {}", where(), written.error().message),
                    written.error().sys};
    return std::unexpected(*failed_);
  }
  content_.good_bytes += record.size();
  content_.marks[key] = mark;
  return {};
}

}  // namespace twinloft::repl::salvage
