#include "twinloft/lmtpd/policy/quota.h"

#include <fmt/format.h>

namespace twinloft::lmtpd {

Result<OverQuota> parse_over_quota(std::string_view text) {
  if (text == "reject") return OverQuota::reject;
  if (text == "defer") return OverQuota::defer;
  return fail(Errc::invalid, "unknown setting \"{}\": use \"reject\" or \"defer\"", text);
}

std::string quota_text(const QuotaLimit& limit) {
  if (limit.unlimited()) return "none";
  std::string out;
  if (limit.bytes != 0) out = fmt::format("{} bytes", limit.bytes);
  if (limit.messages != 0) out += fmt::format("{}{} messages", out.empty() ? "" : ", ", limit.messages);
  return out;
}

Reply reply_of(Room lacking, OverQuota over, const User& user) {
  if (user.is_old) lacking = Room::full, over = OverQuota::defer;
  if (lacking == Room::never)
    return make_reply(552, "5.2.3", "The message is larger than the limit of this mailbox");
  if (over == OverQuota::defer) return make_reply(452, "4.2.2", "The mailbox is full, try again later");
  return make_reply(552, "5.2.2", "The mailbox is full");
}

Reply quota_unknown() {
  return make_reply(451, "4.3.0", "Quota lookup temporarily unavailable");
}

Reply quota_held() {
  return make_reply(451, "4.3.0", "The mailbox seems to be full, try again later");
}

}  // namespace twinloft::lmtpd
