#include "twinloft/lmtpd/maildir/headers.h"

#include <fmt/format.h>
#include <strings.h>

#include <cstring>
#include <ctime>

#include "twinloft/lmtpd/maildir/message_writer.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::uint64_t header_scan_bytes_max = 1u << 20;
constexpr std::size_t line_kept_bytes = 2048;  // longer than any Delivered-To that can match

std::string clean(std::string_view value) {
  std::string out(value);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return out;
}

// The sender is kept byte for byte, except bytes that would end the line.
std::string kept(std::string_view sender) {
  std::string out(sender);
  for (char& c : out)
    if (c == '\0' || c == '\r' || c == '\n') c = '?';
  return out;
}

bool starts_with_nocase(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && ::strncasecmp(text.data(), prefix.data(), prefix.size()) == 0;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

}  // namespace

std::string format_date(WallTime now) {
  static constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::time_t seconds = static_cast<std::time_t>(now.seconds);
  std::tm t{};
  ::gmtime_r(&seconds, &t);
  return fmt::format("{}, {} {} {} {:02}:{:02}:{:02} +0000", days[t.tm_wday], t.tm_mday, months[t.tm_mon],
                     t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

namespace {

// For a comment in parentheses. The value must not end the comment.
std::string comment(std::string_view value) {
  std::string out = clean(value);
  for (char& c : out)
    if (c == '(' || c == ')' || c == '\\') c = '?';
  return out;
}

// RFC 3848 and RFC 6531 section 4.3.
const char* protocol_of(const Envelope& envelope) {
  if (envelope.smtputf8) return envelope.tls.empty() ? "UTF8LMTP" : "UTF8LMTPS";
  return envelope.tls.empty() ? "LMTP" : "LMTPS";
}

std::string received(const Envelope& envelope, const std::string& to, std::string_view hostname,
                     WallTime now) {
  std::string client = comment(envelope.client);
  if (!envelope.client_name.empty()) client = fmt::format("{} [{}]", comment(envelope.client_name), client);
  std::string tls = envelope.tls.empty() ? "" : fmt::format("\t(using {})\n", comment(envelope.tls));
  std::string whom = to.empty() ? "; " : fmt::format("\n\tfor <{}>; ", to);
  return fmt::format("Received: from {} ({})\n{}\tby {} with {} id {}{}{}\n", clean(envelope.lhlo), client,
                     tls, clean(hostname), protocol_of(envelope), clean(envelope.id), whom, format_date(now));
}

}  // namespace

std::string delivery_header(const Envelope& envelope, const Recipient& recipient, const HeaderChoice& choice,
                            std::string_view hostname, WallTime now) {
  std::string out;
  std::string to = clean(recipient.text);
  if (choice.return_path) out += fmt::format("Return-Path: <{}>\n", kept(envelope.from));
  if (choice.delivered_to) out += fmt::format("Delivered-To: {}\n", to);
  if (choice.original_to && !recipient.original_to.empty()) {
    out += fmt::format("X-Original-To: {}\n", clean(recipient.original_to));
    if (!recipient.original_type.empty())
      out += fmt::format("Original-Recipient: {};{}\n", clean(recipient.original_type),
                         clean(recipient.original_to));
  }
  if (choice.received) out += received(envelope, to, hostname, now);
  return out;
}

std::string shared_header(const Envelope& envelope, std::string_view hostname, WallTime now) {
  return fmt::format("Return-Path: <{}>\n", kept(envelope.from)) + received(envelope, {}, hostname, now);
}

std::string received_header(const Envelope& envelope, const Recipient* recipient, std::string_view hostname,
                            WallTime now) {
  return received(envelope, recipient ? clean(recipient->text) : std::string(), hostname, now);
}

LoopScanner::LoopScanner(std::string_view recipient, std::string_view hostname) : recipient_(recipient) {
  if (!hostname.empty()) by_ = fmt::format("\tby {} with ", clean(hostname));
}

void LoopScanner::take_line(std::string_view line) {
  constexpr std::string_view delivered = "delivered-to:";
  if (line.empty() || line == "\r") {
    ended_ = true;
  } else if (starts_with_nocase(line, "received:")) {
    ++received_count_;
  } else if (!by_.empty() && starts_with_nocase(line, by_)) {
    ++passes_;
  } else if (starts_with_nocase(line, delivered)) {
    std::string_view value = trimmed(line.substr(delivered.size()));
    if (!recipient_.empty() && value.size() == recipient_.size() && starts_with_nocase(value, recipient_))
      delivered_here_ = true;
  }
}

void LoopScanner::feed(std::string_view chunk) {
  while (!ended_ && !chunk.empty()) {
    std::size_t lf = chunk.find('\n');
    std::string_view piece = chunk.substr(0, lf);
    if (lf == std::string_view::npos) {
      if (partial_.size() < line_kept_bytes) partial_.append(piece.substr(0, line_kept_bytes));
      return;
    }
    if (partial_.empty()) {
      take_line(piece);
    } else {
      partial_.append(piece.substr(0, line_kept_bytes));
      take_line(partial_);
      partial_.clear();
    }
    chunk.remove_prefix(lf + 1);
  }
}

void LoopScanner::finish() {
  if (!ended_ && !partial_.empty()) take_line(partial_);
  ended_ = true;
}

namespace {

// Feeds the header, or its first 1 MiB, to the scanner.
Status scan(const MessageBody& body, LoopScanner& scanner) {
  const LoopScanner fresh = scanner;
  // Most headers end in the first few KiB, so more is read only if needed.
  std::uint64_t limit = std::min<std::uint64_t>(body.size, body.in_memory() ? header_scan_bytes_max : 16384);
  for (;;) {
    scanner = fresh;
    TL_TRY(read_body(body, limit, [&](std::string_view chunk) -> Status {
      scanner.feed(chunk);
      return {};
    }));
    if (scanner.ended() || limit == body.size || limit == header_scan_bytes_max) break;
    limit = std::min(body.size, header_scan_bytes_max);
  }
  scanner.finish();
  return {};
}

}  // namespace

Result<std::optional<std::string>> find_loop(const MessageBody& body, const Recipient& recipient,
                                             const LoopSigns& signs) {
  LoopScanner scanner(signs.delivered_to ? clean(recipient.text) : std::string());
  TL_TRY(scan(body, scanner));
  if (scanner.delivered_here())
    return fmt::format("mail loop: already delivered to {}", clean(recipient.text));
  if (scanner.received_count() > signs.received_max)
    return fmt::format("mail loop: {} Received fields", scanner.received_count());
  return std::nullopt;
}

Result<std::optional<std::string>> find_route_loop(const MessageBody& body, std::string_view hostname,
                                                   std::uint32_t received_max, std::uint32_t passes_max) {
  LoopScanner scanner({}, hostname);
  TL_TRY(scan(body, scanner));
  if (scanner.passes() > passes_max)
    return fmt::format("mail loop: the message has passed this host {} times", scanner.passes());
  if (scanner.received_count() > received_max)
    return fmt::format("mail loop: {} Received fields", scanner.received_count());
  return std::nullopt;
}

}  // namespace twinloft::lmtpd
