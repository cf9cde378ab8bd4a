#include "twinloft/lmtpd/milter/answers.h"

#include <algorithm>
#include <cctype>

namespace twinloft::lmtpd::milter {

namespace {

// A byte of a kind as text for an error: 'r', or its number.
std::string named(char kind) {
  auto byte = static_cast<unsigned char>(kind);
  return byte > 32 && byte < 127 ? fmt::format("\"{}\"", kind) : fmt::format("number {}", byte);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// RFC 5322 section 2.2: printable ASCII without the colon.
bool is_field_name(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > 32 && c < 127 && c != ':'; });
}

char line_class(int code) {
  return static_cast<char>('0' + code / 100);
}

// Takes "5.7.1" and the blank behind it from the front. Empty: `text` does not begin with a status of this
// class, and so belongs to the text.
std::string take_enhanced(std::string_view& text, char status_class) {
  if (!text.starts_with(status_class)) return {};
  std::size_t at = 0;
  for (int part = 0; part < 3; ++part) {
    std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    if (at == begin || at - begin > 3) return {};
    if (part < 2 && (at == text.size() || text[at++] != '.')) return {};
  }
  if (at < text.size() && text[at] != ' ') return {};
  std::string found(text.substr(0, at));
  text.remove_prefix(std::min(text.size(), at + 1));
  return found;
}

// smfi_setreply() and smfi_setmlreply() write a percent sign twice.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '%' && i + 1 < text.size() && text[i + 1] == '%') ++i;
  }
  return out;
}

// "550 5.7.1 text", or several lines "550-5.7.1 text" that CR LF separates. The first line's code counts: a
// refusal with a slip in its form is still a refusal.
Result<Answer> parse_reply(std::string_view text) {
  FilterReply reply;
  while (!text.empty()) {
    std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    bool coded = line.size() >= 3 && std::all_of(line.begin(), line.begin() + 3, is_digit) &&
                 (line.size() == 3 || line[3] == ' ' || line[3] == '-');
    if (!coded) return fail(Errc::invalid, "a line of a reply has no code");
    int code = (line[0] - '0') * 100 + (line[1] - '0') * 10 + (line[2] - '0');
    line.remove_prefix(std::min<std::size_t>(line.size(), 4));
    if (reply.lines.empty()) reply.code = code;
    std::string enhanced = take_enhanced(line, line_class(reply.code));
    if (reply.lines.empty()) reply.enhanced = std::move(enhanced);
    reply.lines.push_back(unescaped(line));
  }
  if (reply.lines.empty()) return fail(Errc::invalid, "a reply without a code");
  if (reply.code < 400 || reply.code > 599)
    return fail(Errc::invalid, "a reply has the code {}, which is neither 4xx nor 5xx", reply.code);
  return Verdict(std::move(reply));
}

Status check_field_name(std::string_view name) {
  if (is_field_name(name)) return {};
  return fail(Errc::invalid,
              "a header field's name is empty, or has a blank, a colon or a control character");
}

Result<Answer> parse_change(const Packet& packet) {
  DataReader in(packet.data);
  Change change;
  switch (packet.kind) {
    case answer::add_header: {
      AddHeader c{std::string(in.text()), std::string(in.text())};
      TL_TRY(check_field_name(c.name));
      change = std::move(c);
      break;
    }
    case answer::insert_header: {
      InsertHeader c{in.number(), std::string(in.text()), std::string(in.text())};
      TL_TRY(check_field_name(c.name));
      change = std::move(c);
      break;
    }
    case answer::change_header: {
      ChangeHeader c{in.number(), std::string(in.text()), {}};
      if (!in.at_end()) c.value = in.text();  // smfi_chgheader() without a value
      TL_TRY(check_field_name(c.name));
      change = std::move(c);
      break;
    }
    case answer::change_sender: {
      ChangeSender c{std::string(in.text()), {}};
      if (!in.at_end()) c.parameters = in.text();
      change = std::move(c);
      break;
    }
    case answer::add_recipient:
      change = AddRecipient{std::string(in.text()), {}};
      break;
    case answer::add_recipient_with_parameters: {
      AddRecipient c{std::string(in.text()), {}};
      if (!in.at_end()) c.parameters = in.text();
      change = std::move(c);
      break;
    }
    case answer::remove_recipient:
      change = RemoveRecipient{std::string(in.text())};
      break;
    case answer::quarantine:
      change = Quarantine{in.at_end() ? std::string() : std::string(in.text())};
      break;
    default:
      return fail(Errc::invalid, "an answer of the unknown kind {}", named(packet.kind));
  }
  if (!in.ok()) return fail(Errc::invalid, "an answer of the kind {} is too short", named(packet.kind));
  if (!in.at_end())
    return fail(Errc::invalid, "an answer of the kind {} has surplus data", named(packet.kind));
  return change;
}

}  // namespace

std::uint32_t rights_for(const Change& change) {
  struct {
    std::uint32_t operator()(const AddHeader&) const { return may::add_headers; }
    std::uint32_t operator()(const InsertHeader&) const { return may::add_headers; }
    std::uint32_t operator()(const ChangeHeader&) const { return may::change_headers; }
    std::uint32_t operator()(const ReplaceBody&) const { return may::replace_body; }
    std::uint32_t operator()(const ChangeSender&) const { return may::change_sender; }
    std::uint32_t operator()(const AddRecipient& c) const {
      return may::add_recipients_with_parameters | (c.parameters.empty() ? may::add_recipients : 0);
    }
    std::uint32_t operator()(const RemoveRecipient&) const { return may::remove_recipients; }
    std::uint32_t operator()(const Quarantine&) const { return may::quarantine; }
  } right;
  return std::visit(right, change);
}

Result<Answer> parse_answer(const Packet& packet) {
  switch (packet.kind) {
    case answer::continue_:
      return Verdict(Continue{});
    case answer::accept:
      return Verdict(Accept{});
    case answer::reject:
      return Verdict(Reject{});
    case answer::tempfail:
      return Verdict(Tempfail{});
    case answer::discard:
      return Verdict(Discard{});
    case answer::shut_down:
    case answer::fail_connection:
      return Verdict(EndConnection{});
    case answer::skip:
      return Skip{};
    case answer::progress:
      return Progress{};
    case answer::replace_body:
      return Change(ReplaceBody{std::string(packet.data)});
    case answer::reply_code: {
      DataReader in(packet.data);
      return parse_reply(in.text());
    }
    default:
      return parse_change(packet);
  }
}

}  // namespace twinloft::lmtpd::milter
