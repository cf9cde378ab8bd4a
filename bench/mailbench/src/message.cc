#include "twinloft/mailbench/message.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <unordered_set>

#include "twinloft/base/check.h"
#include "twinloft/mailbench/corpus.h"

namespace twinloft::mailbench {

namespace {

constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/";
constexpr std::size_t kLineMax = 998;  // without CRLF, RFC 5322 section 2.1.1

// Mostly lines as in text and base64. Some have forms that have broken mail programs: empty lines, leading
// dots, a single dot, "From ", and very long lines.
std::string make_line(SeededRandom& random) {
  std::string line;
  std::size_t length = 40 + random.below(38);
  switch (random.below(32)) {
    case 0:
      return {};
    case 1:
      line = ".";
      break;
    case 2:
      return ".";
    case 3:
      line = "..";
      break;
    case 4:
      line = "From ";
      break;
    case 5:
      length = 900 + random.below(kLineMax - 900);
      break;
    default:
      break;
  }
  line.reserve(length);
  while (line.size() < length) {
    std::uint64_t bits = random.draw();
    for (int i = 0; i < 10 && line.size() < length; ++i, bits >>= 6) line += kAlphabet[bits & 63];
  }
  return line;
}

}  // namespace

TextBlock::TextBlock(std::uint64_t seed, bool dot_stuffed, std::size_t size_min) : dot_stuffed_(dot_stuffed) {
  SeededRandom random(seed ^ 0x6d61696c626c6f63);
  while (wire_.size() < size_min) add_line(make_line(random));
  canonical_at_.push_back(canonical_.size());
  wire_at_.push_back(wire_.size());
}

void TextBlock::add_line(std::string_view line) {
  canonical_at_.push_back(canonical_.size());
  wire_at_.push_back(wire_.size());
  canonical_.append(line) += '\n';
  if (dot_stuffed_ && line.starts_with('.')) wire_ += '.';
  wire_.append(line) += "\r\n";
}

TextBlock::Slice TextBlock::slice(std::size_t first, std::uint64_t size_max, std::size_t& next) const {
  // The size with CRLF of the lines before line i: each LF counts twice.
  auto size_before = [&](std::size_t i) { return canonical_at_[i] + i; };
  std::size_t low = first, high = line_count();
  while (low < high) {
    std::size_t middle = (low + high + 1) / 2;
    if (size_before(middle) - size_before(first) <= size_max)
      low = middle;
    else
      high = middle - 1;
  }
  next = low == line_count() ? 0 : low;
  Slice s;
  s.canonical = std::string_view(canonical_)
                    .substr(canonical_at_[first], canonical_at_[low] - canonical_at_[first]);
  s.wire = std::string_view(wire_).substr(wire_at_[first], wire_at_[low] - wire_at_[first]);
  s.size = size_before(low) - size_before(first);
  return s;
}

namespace {
Status check_address(std::string_view address) {
  bool printable = std::ranges::all_of(address, [](unsigned char c) { return c > ' ' && c != 127; });
  if (address.empty() || !printable || address.find_first_of("<>") != address.npos)
    return fail(Errc::invalid, "'{}' is not an address: it is empty, or has blanks, control bytes or <>",
                address);
  return {};
}
}  // namespace

Result<Users> Users::from_format(std::string format, std::uint64_t first, std::uint64_t count) {
  Users users;
  bool seen = false;
  for (std::size_t i = 0; i < format.size(); ++i) {
    std::string& part = seen ? users.after_ : users.before_;
    if (format[i] != '%') {
      part += format[i];
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == '%') {
      part += format[++i];
      continue;
    }
    const char* end = format.data() + format.size();
    int width = 0;
    auto parsed = std::from_chars(format.data() + i + 1, end, width);
    bool has_width = parsed.ec == std::errc{};
    const char* letter = has_width ? parsed.ptr : format.data() + i + 1;
    if (seen || letter == end || *letter != 'u' || (has_width && (format[i + 1] != '0' || width > 20)))
      return fail(Errc::invalid, "user format '{}': write %u or %0Nu once, and %% for a percent sign",
                  format);
    users.width_ = width;
    seen = true;
    i = static_cast<std::size_t>(letter - format.data());
  }
  if (count == 0) return fail(Errc::invalid, "the number of users is 0");
  if (!seen && count > 1)
    return fail(Errc::invalid, "user format '{}' has no %u, but there are {} users", format, count);
  users.first_ = first;
  users.count_ = count;
  users.numbered_ = seen;
  TL_TRY(check_address(users.address(0)));
  return users;
}

Result<Users> Users::from_list(std::vector<std::string> addresses) {
  if (addresses.empty()) return fail(Errc::invalid, "the list of users is empty");
  for (const std::string& address : addresses) TL_TRY(check_address(address));
  Users users;
  std::unordered_set<std::string> seen;
  std::erase_if(addresses, [&](const std::string& address) { return !seen.insert(address).second; });
  users.count_ = addresses.size();
  users.list_ = std::move(addresses);
  return users;
}

std::string Users::address(std::uint64_t index) const {
  TL_CHECK(index < count_);
  if (!list_.empty()) return list_[index];
  if (!numbered_) return before_;
  return fmt::format("{}{:0{}}{}", before_, first_ + index, width_, after_);
}

Hash128 digest_of_body(std::string_view body, Hasher128& hasher) {
  hasher.reset();
  while (!body.empty()) {
    std::size_t crlf = body.find("\r\n");
    hasher.update(as_bytes(body.substr(0, crlf)));
    if (crlf == body.npos) break;
    body.remove_prefix(crlf + 1);  // continues at the LF
  }
  return hasher.digest();
}

void HeadDigest::add(std::string_view name, std::string_view value) {
  hasher_.update(as_bytes(name));
  hasher_.update(as_bytes(": "));
  hasher_.update(as_bytes(value));
  hasher_.update(as_bytes("\n"));
}

std::string format_date(WallTime time) {
  static constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  using namespace std::chrono;
  sys_seconds seconds{std::chrono::seconds(time.seconds)};
  sys_days day = floor<std::chrono::days>(seconds);
  year_month_day ymd(day);
  hh_mm_ss clock(seconds - day);
  return fmt::format("{}, {} {} {} {:02}:{:02}:{:02} +0000", days[weekday(day).c_encoding()],
                     static_cast<unsigned>(ymd.day()), months[static_cast<unsigned>(ymd.month()) - 1],
                     static_cast<int>(ymd.year()), clock.hours().count(), clock.minutes().count(),
                     clock.seconds().count());
}

MessageFactory::MessageFactory(Settings settings, const Users& users, const TextBlock& block)
    : settings_(std::move(settings)),
      users_(users),
      block_(block),
      popularity_(users.size(), settings_.zipf),
      from_("<" + settings_.from + ">"),
      date_(format_date(settings_.date)) {
  TL_CHECK(settings_.recipients_per_message >= 1 && settings_.recipients_per_message <= users.size());
}

void MessageFactory::make(std::uint64_t number, Message& out) {
  SeededRandom random(SeededRandom(settings_.seed + number * 0x9e3779b97f4a7c15ULL).draw());
  out.number = number;
  out.id = fmt::format("{}-{}", settings_.run, number);
  draw_recipients(random, out);
  if (settings_.corpus != nullptr)
    make_from_corpus(random, out);
  else
    make_own(random, out);
}

void MessageFactory::make_own(SeededRandom& random, Message& out) {
  std::uint64_t wanted = settings_.size.draw(random);
  write_header(out);
  write_body(random, wanted > header_.size() ? wanted - header_.size() : 0, out);
  out.size += header_.size();
  std::string digest = out.digest.hex();
  header_.replace(digest_at_, digest.size(), digest);
  out.head.assign(header_).append(first_line_).append("\r\n");
}

// Few of many users are drawn until all are different. If that takes long, because few users get nearly all
// mail or most users are wanted, the users after the last drawn one follow.
void MessageFactory::draw_recipients(SeededRandom& random, Message& out) {
  std::size_t wanted = settings_.recipients_per_message;
  std::size_t draws = wanted * 2 > users_.size() ? 1 : wanted * 4;
  chosen_.clear();
  std::uint64_t user = 0;
  auto is_new = [&] { return std::ranges::find(chosen_, user) == chosen_.end(); };
  for (std::size_t i = 0; i < draws && chosen_.size() < wanted; ++i) {
    user = popularity_.draw(random);
    if (is_new()) chosen_.push_back(user);
  }
  for (; chosen_.size() < wanted; user = (user + 1) % users_.size())
    if (is_new()) chosen_.push_back(user);
  out.recipients.clear();
  for (std::uint64_t one : chosen_) out.recipients.push_back(users_.address(one));
}

void MessageFactory::make_from_corpus(SeededRandom& random, Message& out) {
  const auto& messages = settings_.corpus->messages();
  const CorpusMessage& from = messages[random.below(messages.size())];
  std::string message_id = fmt::format("<{}@mailbench.invalid>", out.id);
  HeadDigest head(hasher_);
  for (std::size_t i = 0; i < std::size(kHeadFields); ++i)
    head.add(kHeadFields[i], kHeadFields[i] == "Message-ID" ? message_id : from.fields[i]);
  out.digest = from.digest;
  out.eight_bit = from.eight_bit;
  out.head = fmt::format(
      "X-Mailbench-Id: {}\r\nX-Mailbench-Digest: {}\r\nX-Mailbench-Head: {}\r\nMessage-ID: {}\r\n", out.id,
      out.digest.hex(), head.digest().hex(), message_id);
  out.size = out.head.size() + from.header_size + 2 + from.body_size;
  out.middle = {from.header, "\r\n", from.body};
  out.tail = settings_.dot_stuffed ? ".\r\n" : "";
}

// The To: field is folded with a recipient on each line, so that no line is too long.
// The body's digest is not known yet: its place is in digest_at_.
void MessageFactory::write_header(const Message& out) {
  to_.clear();
  for (const std::string& recipient : out.recipients)
    to_.append(to_.empty() ? "<" : ">,\n <").append(recipient);
  to_ += '>';
  message_id_.assign("<").append(out.id).append("@mailbench.invalid>");
  subject_.assign("mailbench ").append(out.id);
  const std::string_view values[] = {from_, to_, date_, message_id_, subject_};
  HeadDigest head(hasher_);
  header_.clear();
  for (std::size_t i = 0; i < std::size(kHeadFields); ++i) {
    head.add(kHeadFields[i], values[i]);
    header_.append(kHeadFields[i]).append(": ");
    for (std::string_view rest = values[i];;) {
      std::size_t lf = rest.find('\n');
      header_.append(rest.substr(0, lf)).append("\r\n");
      if (lf == rest.npos) break;
      rest.remove_prefix(lf + 1);
    }
  }
  header_.append("X-Mailbench-Id: ").append(out.id).append("\r\nX-Mailbench-Digest: ");
  digest_at_ = header_.size();
  header_.append(2 * sizeof(Hash128::bytes), '0');
  header_.append("\r\nX-Mailbench-Head: ").append(head.digest().hex()).append("\r\n\r\n");
}

// Exactly body_size bytes with CRLF, but at least the first line, which is unique, so that all bodies differ.
void MessageFactory::write_body(SeededRandom& random, std::uint64_t body_size, Message& out) {
  first_line_ = fmt::format("message {} {:016x}", out.id, random.draw());
  std::uint64_t used = first_line_.size() + 2;
  std::uint64_t left = body_size > used ? body_size - used : 0;
  std::size_t line = random.below(block_.line_count());
  out.middle.clear();
  std::vector<TextBlock::Slice> slices;
  while (left > 0) {
    std::size_t next = 0;
    TextBlock::Slice slice = block_.slice(line, left, next);
    if (slice.size > 0) slices.push_back(slice);
    left -= slice.size;
    used += slice.size;
    line = next;
    if (next != 0 || slice.size == 0) break;  // the line after the slice does not fit
  }
  std::string filler;
  if (left == 1) {  // no line with CRLF has one byte, so the first line gets longer
    first_line_ += '.';
    ++used;
  } else if (left >= 2) {
    filler.assign(left - 2, '=');
    used += left;
  }
  out.size = used;

  hasher_.reset();
  hasher_.update(as_bytes(first_line_));
  hasher_.update(as_bytes("\n"));
  for (const TextBlock::Slice& slice : slices) {
    hasher_.update(as_bytes(slice.canonical));
    out.middle.push_back(slice.wire);
  }
  out.tail.clear();
  if (left >= 2) {
    hasher_.update(as_bytes(filler));
    hasher_.update(as_bytes("\n"));
    out.tail = filler + "\r\n";
  }
  out.digest = hasher_.digest();
  if (settings_.dot_stuffed) out.tail += ".\r\n";
}

}  // namespace twinloft::mailbench
