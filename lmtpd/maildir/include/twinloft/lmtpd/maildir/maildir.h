// The built-in Maildir agent: writes a message into a Maildir that Dovecot serves, durably.
//
// The order: the file becomes durable without a name or in tmp/. Then the file appears in new/, and its entry
// and every new directory become durable. Then the reply is 250. An earlier failure is 4xx, and leaves
// nothing behind.
//
// Messages are stored with LF line ends, as by Dovecot's agents. A CR without LF is kept. File names are
// `sec.M<usec>P<pid>Q<n>.<host>,S=<bytes>,W=<bytes>`: S is the size of the file, W its size with CRLF line
// ends.
//
// A message to several users may be stored once, with a name in each user's new/ (`hard_links`). Its header
// then names no user.
//
// The agent writes with the ids of the process. A user with another uid or gid gets 451 4.3.5, and a log line
// (docs/decisions/maildir-privilege.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/policy/quota.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/spool/durability.h"
#include "twinloft/lmtpd/spool/file_ops.h"
#include "twinloft/lmtpd/spool/spool.h"
#include "twinloft/lmtpd/spool/sync_group.h"

namespace twinloft::lmtpd {

struct FolderConfig {
  FoldersByDetail detail = FoldersByDetail::none;
  char separator = '.';              // of levels in a detail: '.' or '/', as in Dovecot's namespace
  std::uint32_t folders_max = 1000;  // folders per Maildir; limits folders made by senders with random
                                     // details
  bool subscribe = true;             // subscribes to new folders
};

struct MaildirConfig {
  std::string hostname;  // in file names (/ : , cleaned) and in Received
  DurabilityWay durability = DurabilityWay::fsync;
  FolderConfig folders{};
  QuotaConfig quota{};
  QuotaService* quota_service = nullptr;  // for QuotaDriver::count; outlives the agent
  std::uint32_t received_max = 100;       // with more Received fields: 554 5.4.6 (RFC 5321 section 6.3)
  bool hard_links = false;
  bool delivered_to_check = true;  // a Delivered-To for the recipient is a loop: 554 5.4.6
  DataFirstRule may_write_data_first = data_first_by_kernel();  // for DurabilityWay::fsync
};

class MaildirAgent {
 public:
  MaildirAgent(MaildirConfig config, Spool& spool, SyncGroup& syncs, FileOps& ops, const Clock& clock);
  // With another way than config.durability and config.may_write_data_first say.
  MaildirAgent(MaildirConfig config, Spool& spool, std::unique_ptr<Durability> durability, FileOps& ops,
               const Clock& clock);
  ~MaildirAgent();
  MaildirAgent(const MaildirAgent&) = delete;
  MaildirAgent& operator=(const MaildirAgent&) = delete;

  // Thread-safe. Blocks until the message is durable or has failed. handle: of spool.open(). The outcome's
  // `detail` is the reason of a reply other than 250, or the folder, if the address names one.
  DeliveryOutcome deliver(const SpoolHandle& handle, const Envelope& envelope, const Recipient& recipient,
                          const MessageBody& body);

  bool links() const;
  // As deliver(), to several of the envelope's recipients with one file, whose header names no recipient. If
  // links cannot be made, each gets a file. Returns the outcomes in this order.
  std::vector<DeliveryOutcome> deliver_linked(const SpoolHandle& handle, const Envelope& envelope,
                                              std::span<const std::size_t> recipients,
                                              const MessageBody& body);

  // As the functions of Mailboxes, for this agent's users.
  bool has_limits(const User& user) const;
  MailboxState look(const SpoolHandle& handle, const User& user, const std::string& detail,
                    std::uint64_t bytes);
  std::optional<MailboxState> look_now(const User& user, std::uint64_t bytes) const;

  // Whether this process can write mail of the user. Errors: Errc::denied with the setting to change.
  Status check_owner(const User& user) const;

 private:
  std::optional<DeliveryOutcome> deny(const Recipient& recipient, const MessageBody& body);
  Result<Room> room_of(const SpoolHandle& handle, const User& user, const std::string& detail,
                       std::uint64_t bytes);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
