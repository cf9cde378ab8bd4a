#include "message_pass.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "twinloft/base/crc32c.h"
#include "twinloft/base/utf8.h"
#include "twinloft/lmtpd/proto/command.h"

namespace twinloft::lmtpd {

namespace {

// Behind the header: the line that ends it.
constexpr std::size_t rest_of_header = 4096;

constexpr std::size_t recipients_named_max = 100;  // in a header field

// Before the parse, which needs memory for each line.
bool has_too_many_lines(std::string_view message) {
  std::size_t lines = 0;
  for (std::size_t at = 0; at < message.size() && message[at] != '\r' && message[at] != '\n';) {
    std::size_t end = message.find('\n', at);
    if (end == std::string_view::npos) break;
    if (++lines > MessagePass::header_lines_max) return true;
    at = end + 1;
  }
  return false;
}

// Reads up to into.size() bytes. At the end of the file: fewer.
Result<std::size_t> read_part(int file, std::span<char> into, std::uint64_t at) {
  std::size_t done = 0;
  while (done < into.size()) {
    ssize_t n = ::pread(file, into.data() + done, into.size() - done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "reading a stored message");
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

class Sink final : public milter::BodySink {
 public:
  explicit Sink(std::shared_ptr<StoredBody> body) : body_(std::move(body)) {}
  Status append(std::string_view bytes) override { return body_->append(bytes); }
  std::shared_ptr<StoredBody> take() { return std::move(body_); }

 private:
  std::shared_ptr<StoredBody> body_;
};

std::string as_command(const char* verb, const std::string& address, const std::string& parameters) {
  return fmt::format("{}<{}>{}{}", verb, address, parameters.empty() ? "" : " ", parameters);
}

// The parameters are those that a client may send, so the commands' parser reads them.
template <class Kind>
Result<Kind> parse_as(const char* verb, std::string address, const std::string& parameters) {
  if (address.starts_with('<') && address.ends_with('>')) address = address.substr(1, address.size() - 2);
  auto command = parse_command(as_command(verb, address, parameters));
  if (!command)
    return fail(Errc::invalid, "\"{}\" with \"{}\": {}", address, parameters, command.error().text);
  Kind* kind = std::get_if<Kind>(&*command);
  if (!kind) return fail(Errc::invalid, "\"{}\" is not an address", address);
  return std::move(*kind);
}
Result<Mail> parse_sender(const std::string& address, const std::string& parameters) {
  if (is_ascii(address)) return parse_as<Mail>("MAIL FROM:", address, parameters);
  return parse_as<Mail>("MAIL FROM:", address, parameters.empty() ? "SMTPUTF8" : parameters + " SMTPUTF8");
}
Result<Rcpt> parse_recipient(const std::string& address, const std::string& parameters) {
  return parse_as<Rcpt>("RCPT TO:", address, parameters);
}

// Holds the envelope that it was made of, whose memory is charged.
struct ChangedEnvelope : Envelope {
  explicit ChangedEnvelope(std::shared_ptr<const Envelope> other)
      : Envelope(*other), original(std::move(other)) {}
  std::shared_ptr<const Envelope> original;
};

bool is_to(const Recipient& recipient, const Path& path) {
  if (recipient.text == path.text) return true;
  const std::string bracketed = "<" + recipient.text + ">";
  std::string_view rest = bracketed;
  auto known = take_path(rest, PathOf::recipient);
  return known && milter::same_mailbox(*known, path);
}

// A text for a header field: without line ends and control characters.
std::string printable(std::string_view text) {
  std::string out(text.substr(0, 500));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return out;
}

}  // namespace

Status MessagePass::load() {
  const MessageBody& body = body_->body();
  std::string buffer;
  std::string_view front = body.memory;
  if (!body.in_memory()) {
    buffer.resize(std::min<std::uint64_t>(body.size, config_.header_bytes_max + rest_of_header));
    TL_TRY_ASSIGN(std::size_t got, read_part(body.file.get(), buffer, 0));
    front = std::string_view(buffer).substr(0, got);
  }
  if (has_too_many_lines(front))
    return fail(Errc::invalid, "the header has more than {} lines", header_lines_max);
  header_ = milter::MessageHeader::parse(front);
  body_begin_ = header_.bytes_in_message();
  return {};
}

// The part of the stored message at this place, of at most milter::data_bytes_max bytes.
Result<std::string_view> MessagePass::read(std::uint64_t at, std::string& buffer) const {
  const MessageBody& body = body_->body();
  const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(body.size - at, milter::data_bytes_max));
  if (body.in_memory()) return std::string_view(body.memory).substr(at, want);
  buffer.resize(want);
  TL_TRY_ASSIGN(std::size_t got, read_part(body.file.get(), buffer, at));
  if (got != want) return fail(Errc::corrupt, "a stored message is shorter than it was");
  return std::string_view(buffer);
}

Result<milter::Verdict> MessagePass::for_each_part(const Each& each) const {
  std::string buffer;
  read_error_.reset();
  for (std::uint64_t at = body_begin_; at < body_->body().size;) {
    auto part = read(at, buffer);
    if (!part) {
      read_error_ = part.error();
      return std::unexpected(std::move(part).error());
    }
    at += part->size();
    TL_TRY_ASSIGN(milter::Verdict verdict, each(*part));
    if (!std::holds_alternative<milter::Continue>(verdict)) return verdict;
  }
  return milter::Verdict(milter::Continue{});
}

milter::MessageEdit MessagePass::begin_edit(bool leading_space) const {
  milter::EditLimits limits{config_.message_bytes_max, body_->body().size - body_begin_,
                            config_.header_bytes_max, config_.recipients_max};
  return {header_, leading_space, limits,
          [this]() -> std::unique_ptr<milter::BodySink> { return std::make_unique<Sink>(make_body_()); }};
}

Status MessagePass::check(const milter::Change& change) {
  if (const auto* sender = std::get_if<milter::ChangeSender>(&change))
    TL_TRY(parse_sender(sender->address, sender->parameters));
  if (const auto* added = std::get_if<milter::AddRecipient>(&change))
    TL_TRY(parse_recipient(added->address, added->parameters));
  return {};
}

void MessagePass::take(milter::MessageEdit::Edited&& edited, const std::string& filter) {
  changed_ = changed_ || edited.changes_content();
  header_ = std::move(edited.header);
  if (edited.body) {
    body_ = static_cast<Sink&>(*edited.body).take();
    body_begin_ = 0;
    new_body_ = true;
  }
  if (edited.sender) take_sender(*edited.sender);
  for (const Path& path : edited.removed) remove(path);
  for (milter::Addressed& added : edited.added) add(std::move(added), filter);
}

void MessagePass::take_sender(const milter::Addressed& sender) {
  auto mail = parse_sender(sender.path.text, sender.parameters);
  if (!mail) return;  // check() has refused it
  auto changed = std::make_shared<ChangedEnvelope>(envelope_);
  changed->from = mail->from.text;
  changed->smtputf8 = changed->smtputf8 || mail->smtputf8;
  if (!mail->ret.empty()) changed->ret = mail->ret;
  if (!mail->envelope_id.empty()) changed->envelope_id = mail->envelope_id;
  envelope_ = std::move(changed);
}

void MessagePass::remove(const Path& path) {
  std::erase_if(added_, [&](const auto& added) { return milter::same_mailbox(added.command.to, path); });
  removed_.resize(envelope_->recipients.size());
  for (std::size_t i = 0; i < removed_.size(); ++i)
    if (is_to(envelope_->recipients[i], path)) removed_[i] = true;
}

// A recipient that the message has already is not added.
void MessagePass::add(milter::Addressed&& added, const std::string& filter) {
  auto command = parse_recipient(added.path.text, added.parameters);
  if (!command) return;  // check() has refused it
  for (std::size_t i = 0; i < envelope_->recipients.size(); ++i) {
    bool here = removed_.empty() || !removed_[i];
    if (here && is_to(envelope_->recipients[i], command->to)) return;
  }
  for (const auto& known : added_)
    if (milter::same_mailbox(known.command.to, command->to)) return;
  added_.push_back({std::move(*command), filter});
}

void MessagePass::quarantine(const std::string& filter, const std::string& reason) {
  auto command = parse_recipient(config_.quarantine, {});
  if (!command) return;  // the configuration was checked
  std::string recipients;
  std::size_t named = 0;
  for (std::size_t i = 0; i < envelope_->recipients.size(); ++i) {
    if ((!removed_.empty() && removed_[i]) || ++named > recipients_named_max) continue;
    if (!recipients.empty()) recipients += ",\n ";
    recipients += "<" + printable(envelope_->recipients[i].text) + ">";
  }
  if (named > recipients_named_max)
    recipients += fmt::format(",\n and {} more", named - recipients_named_max);
  header_.apply(milter::InsertHeader{0, "X-Quarantine-Recipients", recipients}, false);
  header_.apply(
      milter::InsertHeader{0, "X-Quarantine-Reason", fmt::format("{}: {}", filter, printable(reason))},
      false);
  changed_ = quarantined_ = true;
  removed_.assign(envelope_->recipients.size(), true);
  added_.clear();
  added_.push_back({std::move(*command), filter});
}

// As a whole: the deliveries read one message.
Status MessagePass::store() {
  using NewBody = milter::MessageHeader::NewBody;
  std::shared_ptr<StoredBody> whole = make_body_();
  TL_TRY(whole->append(header_.text(new_body_ ? NewBody::yes : NewBody::no)));
  TL_TRY(copy_body(*whole));
  body_ = std::move(whole);
  return {};
}

// Reads all of the stored message, as a delivery would: the file is never synced, so the file system may lose
// written bytes without an error at read.
Status MessagePass::copy_body(StoredBody& to) const {
  const MessageBody& body = body_->body();
  std::string buffer;
  std::uint32_t checksum = 0;
  for (std::uint64_t at = 0; at < body.size;) {
    TL_TRY_ASSIGN(std::string_view part, read(at, buffer));
    if (body.checksum) checksum = crc32c(as_bytes(part), checksum);
    const std::uint64_t end = at + part.size();
    if (end > body_begin_)
      TL_TRY(to.append(part.substr(body_begin_ - std::min<std::uint64_t>(at, body_begin_))));
    at = end;
  }
  if (body.checksum && checksum != *body.checksum)
    return fail(Errc::corrupt, "a stored message of {} bytes differs from what was written", body.size);
  return {};
}

Result<FilteredMessage::Passed> MessagePass::finish() {
  if (changed_) TL_TRY(store());
  return FilteredMessage::Passed{envelope_, std::move(removed_), std::move(added_), std::move(body_),
                                 quarantined_};
}

}  // namespace twinloft::lmtpd
