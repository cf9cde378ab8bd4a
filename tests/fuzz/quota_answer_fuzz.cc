// The answers of Dovecot's quota-status, and the user name in the question. Only an answer about a full
// mailbox causes a refusal. Any name stays on one line.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "twinloft/base/check.h"
#include "twinloft/lmtpd/proto/path.h"
#include "twinloft/lmtpd/quota_status/policy.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string_view action = policy_action(text);
  TL_CHECK(action.find('\n') == std::string_view::npos);
  auto room = room_of_action(action);
  if (room && *room == Room::full)
    TL_CHECK(action.find(".2.2") != std::string_view::npos || action.find("52") != std::string_view::npos);
  if (room && *room == Room::never) TL_CHECK(action.find("5.2.3") != std::string_view::npos);
  if (auto recipient = policy_recipient(text, "+")) {
    std::string request = policy_request(*recipient, size);
    TL_CHECK(std::count(request.begin(), request.end(), '\n') == 6 && request.ends_with("\n\n"));
    if (auto path = parse_address(*recipient)) TL_CHECK(text.starts_with(path->local_part));
  }
  return 0;
}
