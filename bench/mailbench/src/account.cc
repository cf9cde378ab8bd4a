#include "twinloft/mailbench/account.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "twinloft/base/check.h"
#include "twinloft/base/durable.h"

namespace twinloft::mailbench {

namespace {

constexpr std::string_view kMagic = "#mailbench-account 1 run=";
constexpr std::string_view kStarted = " started=";
constexpr std::string_view kEnd = "#end lines=";
constexpr Outcome kOutcomes[] = {Outcome::acknowledged, Outcome::deferred, Outcome::refused, Outcome::unknown,
                                 Outcome::unsent};

template <class T>
bool parse_number(std::string_view text, T& value) {
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  return ec == std::errc{} && end == text.data() + text.size();
}

std::optional<Outcome> parse_outcome(std::string_view word) {
  for (Outcome o : kOutcomes)
    if (to_string(o) == word) return o;
  return {};
}

}  // namespace

void append_line(const AccountLine& line, std::string& out) {
  fmt::format_to(std::back_inserter(out), "{} {} {} {} {} {:03} {} {}\n", line.id, line.recipient,
                 line.digest.hex(), line.size, to_string(line.outcome), line.code, line.attempt,
                 line.since_us);
}

Result<Hash128> parse_digest(std::string_view hex) {
  Hash128 hash;
  bool good = hex.size() == 2 * hash.bytes.size();
  for (std::size_t i = 0; good && i < hash.bytes.size(); ++i) {
    std::uint8_t byte = 0;
    auto [end, ec] = std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, byte, 16);
    good = ec == std::errc{} && end == hex.data() + 2 * i + 2;
    hash.bytes[i] = std::byte{byte};
  }
  if (!good) return fail(Errc::corrupt, "a digest is 32 hexadecimal digits");
  return hash;
}

Result<AccountLine> parse_line(std::string_view line) {
  std::string_view field[8];
  std::size_t count = 0;
  for (std::string_view rest = line; count < 8; ++count) {
    std::size_t blank = rest.find(' ');
    field[count] = rest.substr(0, blank);
    if (blank == rest.npos) {
      ++count;
      break;
    }
    if (count == 7) return fail(Errc::corrupt, "the line has more than 8 fields");
    rest.remove_prefix(blank + 1);
  }
  if (count != 8) return fail(Errc::corrupt, "the line has {} fields, not 8", count);
  AccountLine out;
  out.id = field[0];
  out.recipient = field[1];
  TL_TRY_ASSIGN(out.digest, parse_digest(field[2]));
  auto outcome = parse_outcome(field[4]);
  bool numbers = parse_number(field[3], out.size) && parse_number(field[5], out.code) &&
                 parse_number(field[6], out.attempt) && parse_number(field[7], out.since_us);
  if (!outcome || !numbers || out.id.empty() || out.recipient.empty() || out.attempt == 0)
    return fail(Errc::corrupt, "a field of the line is not what it should be");
  out.outcome = *outcome;
  return out;
}

Result<AccountWriter> AccountWriter::create(const std::string& path, std::string_view run, WallTime started) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd) return fail_errno(errno, "account {}", path);
  struct stat st{};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(errno, "account {}", path);
  if (st.st_size != 0)
    return fail(Errc::conflict, "account {}: it exists and holds another run; name a new file", path);
  AccountWriter writer(std::move(fd), path);
  std::string head = fmt::format("{}{}{}{}.{:06}\n", kMagic, run, kStarted, started.seconds,
                                 started.microseconds);
  TL_TRY(write_all(writer.fd_.get(), as_bytes(head)));
  return writer;
}

Status AccountWriter::append(std::string_view lines) {
  if (lines.empty()) return {};
  std::scoped_lock lock(mutex_);
  if (failed_) return fail(Errc::unavailable, "account {}: an earlier line could not be written", path_);
  if (auto written = write_all(fd_.get(), as_bytes(lines)); !written) {
    // A part of a line may be there. Lines behind it would make the whole account unreadable.
    failed_ = true;
    return fail(written.error().code, "account {}: {}", path_, written.error().message);
  }
  line_count_ += static_cast<std::uint64_t>(std::ranges::count(lines, '\n'));
  return {};
}

Status AccountWriter::discard() {
  TL_CHECK(line_count_ == 0);
  if (::ftruncate(fd_.get(), 0) != 0) return fail_errno(errno, "account {}", path_);
  return {};
}

Status AccountWriter::close() {
  std::scoped_lock lock(mutex_);
  TL_TRY(write_all(fd_.get(), as_bytes(fmt::format("{}{}\n", kEnd, line_count_))));
  // A pipe or a terminal has no sync.
  struct stat about{};
  if (::fstat(fd_.get(), &about) != 0) return fail_errno(errno, "account {}", path_);
  if (S_ISREG(about.st_mode)) {
    if (auto synced = sync_file_and_name(); !synced)
      return fail(synced.error().code, "account {}: {}", path_, synced.error().message);
  }
  fd_.reset();
  return {};
}

Status AccountWriter::sync_file_and_name() {
  TL_TRY(sync_durably(fd_.get()));
  std::size_t slash = path_.rfind('/');
  std::string parent = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  Fd directory(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return fail_errno(errno, "{}", parent);
  return sync_durably(directory.get());
}

Result<AccountReader> AccountReader::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "account {}", path);
  AccountReader reader(path, std::move(fd));
  TL_TRY(reader.read_head());
  return reader;
}

Status AccountReader::read_head() {
  std::string_view text;
  TL_TRY_ASSIGN(bool there, next_text(text));
  if (!there || !text.starts_with(kMagic) || text.size() == kMagic.size())
    return fail(Errc::corrupt, "{}: it is not an account of mailbench (version 1)", path_);
  text.remove_prefix(kMagic.size());
  std::size_t blank = text.find(' ');
  run_ = text.substr(0, blank);
  if (blank == text.npos) return {};
  std::string_view rest = text.substr(blank);
  std::size_t dot = rest.find('.');
  WallTime at;
  bool good = rest.starts_with(kStarted) && dot != rest.npos &&
              parse_number(rest.substr(kStarted.size(), dot - kStarted.size()), at.seconds) &&
              parse_number(rest.substr(dot + 1), at.microseconds);
  if (!good)
    return fail(Errc::corrupt, "{}: the first line says '{}'; wanted is{}SECONDS.MICROSECONDS", path_, rest,
                kStarted);
  started_ = at;
  return {};
}

// The next line without its line feed; `text` is valid until the next call.
Result<bool> AccountReader::next_text(std::string_view& text) {
  for (;;) {
    std::size_t lf = buffer_.find('\n', at_);
    if (lf != buffer_.npos) {
      text = std::string_view(buffer_).substr(at_, lf - at_);
      at_ = lf + 1;
      ++line_number_;
      return true;
    }
    if (end_of_file_) {
      torn_ = at_ < buffer_.size();
      return false;
    }
    buffer_.erase(0, std::exchange(at_, 0));
    std::size_t old = buffer_.size();
    buffer_.resize(old + (1 << 20));
    ssize_t n = ::read(fd_.get(), buffer_.data() + old, buffer_.size() - old);
    if (n < 0 && errno != EINTR) return fail_errno(errno, "account {}", path_);
    buffer_.resize(old + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    end_of_file_ = n == 0;
  }
}

Result<bool> AccountReader::next(AccountLine& line) {
  std::string_view text;
  TL_TRY_ASSIGN(bool there, next_text(text));
  if (!there) return false;
  if (complete_) return fail(Errc::corrupt, "{}:{}: a line after the closing line", path_, line_number_);
  if (text.starts_with(kEnd)) {
    std::uint64_t count = 0;
    if (!parse_number(text.substr(kEnd.size()), count) || count != line_count_)
      return fail(Errc::corrupt, "{}:{}: the closing line says '{}', but {} lines came before it", path_,
                  line_number_, text, line_count_);
    complete_ = true;
    return next(line);
  }
  auto parsed = parse_line(text);
  if (!parsed) return fail(Errc::corrupt, "{}:{}: {}", path_, line_number_, parsed.error().message);
  ++line_count_;
  line = *parsed;
  return true;
}

}  // namespace twinloft::mailbench
