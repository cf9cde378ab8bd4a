#include "twinloft/lmtpd/milter/message_edit.h"

#include <algorithm>
#include <utility>

namespace twinloft::lmtpd::milter {

namespace {

// An address with or without brackets, as smfi_addrcpt(3) and smfi_chgfrom(3) take it.
Result<Path> parse_path(std::string_view text, PathOf whose) {
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 32 || c == 127; }))
    return fail(Errc::invalid, "an address with a control character");
  std::string bracketed = text.starts_with('<') ? std::string(text) : fmt::format("<{}>", text);
  std::string_view rest = bracketed;
  auto path = take_path(rest, whose);
  if (!path || !rest.empty())
    return fail(Errc::invalid, "\"{}\" is not an address{}", text, path ? "" : ": " + path.error().message);
  if (whose == PathOf::recipient && path->is_null())
    return fail(Errc::invalid, "a recipient without an address");
  return path;
}

}  // namespace

bool same_mailbox(const Path& a, const Path& b) {
  auto lower = [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; };
  return a.local_part == b.local_part &&
         std::equal(a.domain.begin(), a.domain.end(), b.domain.begin(), b.domain.end(),
                    [&](unsigned char x, unsigned char y) { return lower(x) == lower(y); });
}

Status MessageEdit::take(Change&& change) {
  const ReplaceBody* part = std::get_if<ReplaceBody>(&change);
  if ((!part || part->bytes.empty()) && ++changes_ > changes_max)
    return fail(Errc::exhausted, "the filter makes more than {} changes", changes_max);
  return std::visit([this](auto&& c) { return apply(std::move(c)); }, std::move(change));
}

Status MessageEdit::check_sizes() {
  const std::uint64_t header = edited_.header.bytes();
  const std::uint64_t body = edited_.body ? edited_.body_bytes : limits_.body_bytes;
  is_too_large_ = header > limits_.header_bytes_max || header + body > limits_.message_bytes_max;
  if (header > limits_.header_bytes_max)
    return fail(Errc::exhausted, "the filter makes the header longer than {} bytes",
                limits_.header_bytes_max);
  if (is_too_large_)
    return fail(Errc::exhausted, "the filter makes the message longer than {} bytes",
                limits_.message_bytes_max);
  return {};
}

template <class HeaderChange>
Status MessageEdit::change_header(const HeaderChange& change) {
  edited_.header.apply(change, leading_space_);
  return check_sizes();
}

Status MessageEdit::apply(ReplaceBody&& c) {
  if (!edited_.body) edited_.body = make_sink_();
  edited_.body_bytes += c.bytes.size();
  TL_TRY(check_sizes());
  return edited_.body->append(c.bytes);
}

Status MessageEdit::apply(ChangeSender&& c) {
  TL_TRY_ASSIGN(Path path, parse_path(c.address, PathOf::sender));
  edited_.sender = Addressed{std::move(path), std::move(c.parameters)};
  return {};
}

Status MessageEdit::apply(AddRecipient&& c) {
  TL_TRY_ASSIGN(Path path, parse_path(c.address, PathOf::recipient));
  std::erase_if(edited_.removed, [&](const Path& removed) { return same_mailbox(removed, path); });
  const std::size_t most = std::min(limits_.recipients_max, added_recipients_max);
  if (edited_.added.size() == most)
    return fail(Errc::exhausted, "the filter adds more than {} recipients", most);
  edited_.added.push_back({std::move(path), std::move(c.parameters)});
  return {};
}

// The last change of a recipient counts.
Status MessageEdit::apply(RemoveRecipient&& c) {
  TL_TRY_ASSIGN(Path path, parse_path(c.address, PathOf::recipient));
  std::erase_if(edited_.added, [&](const Addressed& added) { return same_mailbox(added.path, path); });
  bool known = std::any_of(edited_.removed.begin(), edited_.removed.end(),
                           [&](const Path& removed) { return same_mailbox(removed, path); });
  if (known) return {};
  if (edited_.removed.size() == limits_.recipients_max)
    return fail(Errc::exhausted, "the filter removes more than {} recipients", limits_.recipients_max);
  edited_.removed.push_back(std::move(path));
  return {};
}

Status MessageEdit::apply(Quarantine&& c) {
  edited_.quarantine = std::move(c.reason);
  return {};
}

}  // namespace twinloft::lmtpd::milter
