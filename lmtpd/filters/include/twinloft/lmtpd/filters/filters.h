// The filters (milters) of lmtpd's transactions: several, in the configured order.
//
// At a command, the filters hear it one after the other, until one refuses it. At the end of the message each
// filter hears the message as the filters before it have left it. The changes of a filter count once it has
// accepted the message; a filter that fails has changed nothing.
//
// A filter that cannot be reached, does not answer in time or breaks the protocol does its default action for
// this message, and is asked again at the next one. A filter that cannot be reached is not tried again at
// once (connect/target_health.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/connect/connector.h"
#include "twinloft/lmtpd/connect/target.h"
#include "twinloft/lmtpd/milter/filter_spec.h"
#include "twinloft/lmtpd/session/filtering.h"

namespace twinloft::lmtpd {

struct FiltersConfig {
  std::vector<milter::FilterSpec> order;
  // The mailbox of quarantined messages, as an address. Empty: none, and a message that a filter wants there
  // gets 451 4.7.1.
  std::string quarantine;
  std::string hostname;                 // the macro "j"
  std::uint64_t message_bytes_max = 0;  // also of a changed message, which otherwise gets 552 5.3.4
  std::uint64_t header_bytes_max = 0;   // likewise
  std::uint32_t recipients_max = 0;     // that a single filter may add, or remove
};

// For check-config: connects from this process, and negotiates. Errors: why no message would be filtered.
Status try_filter(const milter::FilterSpec& spec, const ConnectTarget& target, const Clock& clock);

// The references outlive the filters.
std::unique_ptr<Filters> make_filters(FiltersConfig config, Connector& connector, const Clock& clock);

}  // namespace twinloft::lmtpd
