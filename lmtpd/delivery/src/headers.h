// The header fields that final delivery adds, and the loop check that reads them back.
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
  bool original_to = true;  // only where it is known
  bool received = true;
};

// Return-Path and Received (RFC 5321 section 4.4; "with LMTP" of RFC 3848, "with UTF8LMTP" of RFC 6531 section 4.3), Delivered-To,
// X-Original-To and Original-Recipient (RFC 8098 section 2.3); LF line ends. Control bytes in a value become "?".
std::string delivery_header(const Envelope& envelope, const Recipient& recipient, const HeaderChoice& choice,
                            std::string_view hostname, WallTime now);

// RFC 5322 section 3.3, in UTC: "Sat, 21 Nov 2026 05:00:35 +0000".
std::string format_date(WallTime now);

// Why the message is in a loop: its header has a Delivered-To for this recipient already, or more than
// `received_max` Received fields. nullopt: it is not. Reads the header only, at most 1 MiB of it.
Result<std::optional<std::string>> find_loop(const MessageBody& body, const Recipient& recipient,
                                             std::uint32_t received_max);

// The same on header text, over any split. Used by find_loop; separate for tests.
class LoopScanner {
 public:
  explicit LoopScanner(std::string_view recipient) : recipient_(recipient) {}
  void feed(std::string_view chunk);
  void finish();
  bool ended() const { return ended_; }  // the empty line was seen
  std::uint32_t received_count() const { return received_count_; }
  bool delivered_here() const { return delivered_here_; }

 private:
  void take_line(std::string_view line);
  std::string recipient_;
  std::string partial_;  // start of a line that the last chunk cut, capped
  std::uint32_t received_count_ = 0;
  bool delivered_here_ = false;
  bool ended_ = false;
};

}  // namespace twinloft::lmtpd
