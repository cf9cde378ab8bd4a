// The header fields that a delivery adds, and the loop checks that read them back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

struct HeaderChoice {
  bool return_path = true;
  bool delivered_to = true;
  bool original_to = true;  // if it is known
  bool received = true;
};

// Return-Path and Received (RFC 5321 section 4.4; "with LMTP" of RFC 3848, "with UTF8LMTP" of RFC 6531
// section 4.3), Delivered-To, X-Original-To and Original-Recipient (RFC 8098 section 2.3); LF line ends.
// Control bytes in a value become "?".
std::string delivery_header(const Envelope& envelope, const Recipient& recipient, const HeaderChoice& choice,
                            std::string_view hostname, WallTime now);

// The fields of a message that several recipients share: Return-Path and Received, which name no recipient.
std::string shared_header(const Envelope& envelope, std::string_view hostname, WallTime now);

// The Received field of a message for a next hop. recipient: null for several recipients, which are not named
// (RFC 5321 section 7.2).
std::string received_header(const Envelope& envelope, const Recipient* recipient, std::string_view hostname,
                            WallTime now);

// RFC 5322 section 3.3, in UTC: "Sat, 21 Nov 2026 05:00:35 +0000".
std::string format_date(WallTime now);

// Whether the message is in a loop: its header has a Delivered-To for this recipient, or more than
// `received_max` Received fields. Returns the reason; nullopt: no loop. Reads at most 1 MiB of the header.
struct LoopSigns {
  bool delivered_to = true;  // false: the Delivered-To fields do not count
  std::uint32_t received_max = 100;
};
Result<std::optional<std::string>> find_loop(const MessageBody& body, const Recipient& recipient,
                                             const LoopSigns& signs);

// The same for a message for a next hop: more than `received_max` Received fields, or more than `passes_max`
// of this host.
Result<std::optional<std::string>> find_route_loop(const MessageBody& body, std::string_view hostname,
                                                   std::uint32_t received_max, std::uint32_t passes_max);

// Scans the text of a header, in any split, for find_loop() and find_route_loop().
class LoopScanner {
 public:
  // An empty argument is not searched for.
  explicit LoopScanner(std::string_view recipient, std::string_view hostname = {});
  void feed(std::string_view chunk);
  void finish();
  bool ended() const { return ended_; }  // the empty line was found
  std::uint32_t received_count() const { return received_count_; }
  bool delivered_here() const { return delivered_here_; }
  std::uint32_t passes() const { return passes_; }  // Received fields of received_header() for this host name

 private:
  void take_line(std::string_view line);
  std::string recipient_;
  std::string by_;       // the begin of the second line of such a field
  std::string partial_;  // the begin of a line that continues in the next chunk, with a maximum length
  std::uint32_t received_count_ = 0;
  std::uint32_t passes_ = 0;
  bool delivered_here_ = false;
  bool ended_ = false;
};

}  // namespace twinloft::lmtpd
