// A configured filter, and what happens if it cannot be asked.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd::milter {

// What becomes of a message whose filter cannot be reached, does not answer in time, or breaks the protocol.
enum class DefaultAction {
  tempfail,    // 451 4.7.1
  reject,      // 550 5.7.1
  accept,      // the message is delivered without this filter
  quarantine,  // the message goes to the configured mailbox
};
Result<DefaultAction> parse_default_action(std::string_view text);
std::string_view to_string(DefaultAction action);

struct FilterSpec {
  std::string name;        // for log lines
  std::size_t target = 0;  // the connector's index of its address
  // With the defaults, a filter and an external agent take less than the 600 s that Postfix waits.
  std::chrono::milliseconds command_timeout = std::chrono::seconds(20);   // for each answer
  std::chrono::milliseconds message_timeout = std::chrono::seconds(120);  // for the answer to a complete
                                                                          // message
  // A filter that reports progress gets its time anew, but never more than this for one message.
  std::chrono::milliseconds message_most = std::chrono::seconds(120);
  DefaultAction on_failure = DefaultAction::tempfail;
};

}  // namespace twinloft::lmtpd::milter
