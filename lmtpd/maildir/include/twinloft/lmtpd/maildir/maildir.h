// The built-in Maildir agent: writes a message into a Maildir that Dovecot serves, durably.
//
// Order: the file in tmp/ is durable, then it is renamed into new/, then that entry is durable (and every
// directory that was created on the way), then the reply is 250. Whatever fails earlier is 4xx and leaves
// nothing behind.
//
// Stored with LF line ends, as Dovecot's own agents do by default; a CR without LF stays. File names are
// `sec.M<usec>P<pid>Q<n>.<host>,S=<bytes>,W=<bytes>`: S the file's size, W its size with CRLF line ends.
//
// A message to several users may be stored once, with a name in each one's new/ (`hard_links`): its header
// then names none of them.
//
// The agent writes as the process runs: a user whose uid or gid is another one gets 451 4.3.5 with a log line
// that says so (docs/decisions/maildir-privilege.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/session/quota.h"
#include "twinloft/lmtpd/spool/durability.h"
#include "twinloft/lmtpd/spool/file_ops.h"
#include "twinloft/lmtpd/spool/spool.h"
#include "twinloft/lmtpd/spool/sync_group.h"

namespace twinloft::lmtpd {

struct FolderConfig {
  FoldersByDetail detail = FoldersByDetail::none;
  char separator = '.';              // of levels in a detail: '.' or '/', as Dovecot's namespace has it
  std::uint32_t folders_max = 1000;  // of a Maildir: no more are made, since anybody may send mail to any
                                     // detail
  bool subscribe = true;             // what is made
};

struct MaildirConfig {
  std::string hostname;  // in file names (/ : , cleaned) and in Received
  DurabilityWay durability = DurabilityWay::fsync;
  FolderConfig folders{};
  QuotaConfig quota{};
  QuotaService* quota_service = nullptr;  // for QuotaDriver::count; outlives the agent
  std::uint32_t received_max = 100;       // more Received fields than that: 554 5.4.6 (RFC 5321 section 6.3)
  bool hard_links = false;
  bool delivered_to_check = true;  // a Delivered-To for the recipient is a loop: 554 5.4.6
};

class MaildirAgent {
 public:
  MaildirAgent(MaildirConfig config, Spool& spool, SyncGroup& syncs, FileOps& ops, const Clock& clock);
  ~MaildirAgent();
  MaildirAgent(const MaildirAgent&) = delete;
  MaildirAgent& operator=(const MaildirAgent&) = delete;

  // Thread-safe; blocks until the message is durable or has failed. `handle` comes from spool.open().
  // The outcome's `detail` says why, on a reply that is not 250, else in which folder it is, where one was
  // asked for.
  DeliveryOutcome deliver(const SpoolHandle& handle, const Envelope& envelope, const Recipient& recipient,
                          const MessageBody& body);

  bool links() const;
  // deliver(), to several of the envelope's recipients, whose messages are one file: a recipient is not named
  // in its header. Where no link can be made it is a file for each. What became of each, in this order.
  std::vector<DeliveryOutcome> deliver_linked(const SpoolHandle& handle, const Envelope& envelope,
                                              std::span<const std::size_t> recipients,
                                              const MessageBody& body);

  // Whether refusal() has anything to look at.
  bool may_refuse(const User& user) const;
  // Why a message of `bytes` (0: unknown) would not be delivered now: the quota. `*why` is for the log, where
  // it cannot be found out.
  std::optional<Reply> refusal(const SpoolHandle& handle, const User& user, const std::string& detail,
                               std::uint64_t bytes, std::string* why);

  // Whether this process can write mail of that user: Errc::denied with what to change.
  Status check_owner(const User& user) const;

 private:
  std::optional<DeliveryOutcome> deny(const Recipient& recipient, const MessageBody& body);
  Result<Room> room_of(const SpoolHandle& handle, const User& user, const std::string& detail,
                       std::uint64_t bytes);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
