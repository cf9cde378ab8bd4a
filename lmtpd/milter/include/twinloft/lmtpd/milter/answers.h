// What a filter says: its answers to events, and its changes to a message at the end of that message.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/milter/packet.h"

namespace twinloft::lmtpd::milter {

// Verdicts.
struct Continue {
  bool operator==(const Continue&) const = default;
};
struct Accept {  // no further event of this message, or of this client before a message
  bool operator==(const Accept&) const = default;
};
struct Reject {
  bool operator==(const Reject&) const = default;
};
struct Tempfail {
  bool operator==(const Tempfail&) const = default;
};
struct Discard {  // the message is taken, and not delivered
  bool operator==(const Discard&) const = default;
};
// A reply with a text of the filter's own.
struct FilterReply {
  int code = 0;                    // 400 to 599
  std::string enhanced;            // "5.7.1"; empty: the filter gave none
  std::vector<std::string> lines;  // at least one
  bool operator==(const FilterReply&) const = default;
};
// The client gets 421, and its connection ends.
struct EndConnection {
  bool operator==(const EndConnection&) const = default;
};
using Verdict = std::variant<Continue, Accept, Reject, Tempfail, Discard, FilterReply, EndConnection>;

// No further part of this kind is wanted: body chunks, header fields or recipients (SMFIR_SKIP).
struct Skip {
  bool operator==(const Skip&) const = default;
};
// The filter is at work: the time limit begins anew.
struct Progress {
  bool operator==(const Progress&) const = default;
};

// Changes. Texts are as the filter sent them.
struct AddHeader {
  std::string name, value;
  bool operator==(const AddHeader&) const = default;
};
struct InsertHeader {
  std::uint32_t at = 0;  // the number of fields before it
  std::string name, value;
  bool operator==(const InsertHeader&) const = default;
};
struct ChangeHeader {
  std::uint32_t which = 0;  // among the fields of this name, from 1
  std::string name, value;  // an empty value removes the field
  bool operator==(const ChangeHeader&) const = default;
};
struct ReplaceBody {  // the next part of the new body
  std::string bytes;
  bool operator==(const ReplaceBody&) const = default;
};
struct ChangeSender {
  std::string address, parameters;
  bool operator==(const ChangeSender&) const = default;
};
struct AddRecipient {
  std::string address, parameters;
  bool operator==(const AddRecipient&) const = default;
};
struct RemoveRecipient {
  std::string address;
  bool operator==(const RemoveRecipient&) const = default;
};
struct Quarantine {
  std::string reason;
  bool operator==(const Quarantine&) const = default;
};
using Change = std::variant<AddHeader, InsertHeader, ChangeHeader, ReplaceBody, ChangeSender, AddRecipient,
                            RemoveRecipient, Quarantine>;

// The flags of protocol.h (may::*) of which a filter needs one for the change.
std::uint32_t rights_for(const Change& change);

using Answer = std::variant<Verdict, Skip, Progress, Change>;

// Errors (Errc::invalid): an unknown kind, missing or surplus data, a header name that no field can have, a
// reply code outside 400 to 599.
Result<Answer> parse_answer(const Packet& packet);

}  // namespace twinloft::lmtpd::milter
