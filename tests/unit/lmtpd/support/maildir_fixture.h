#pragma once

#include <atomic>

#include "fixture.h"
#include "recording_ops.h"
#include "twinloft/lmtpd/maildir/maildir.h"
#include "twinloft/lmtpd/policy/judge.h"

namespace twinloft::lmtpd::test {

// A spool without a marker, owned by the mail user. The agent writes as that user.
class MaildirFixture : public DirTest {
 protected:
  void SetUp() override {
    give_to_mail_user(dir_);
    use_spool(dir_);
    become_mail_user();
  }
  void use_spool(const std::string& root, DurabilityWay durability = DurabilityWay::fsync,
                 FolderConfig folders = {}, QuotaConfig quota = {}) {
    spool_ = Spool::create({root, std::nullopt}, ops_).value();
    syncs_ = std::make_unique<SyncGroup>(ops_);
    over_quota_ = quota.over;
    MaildirConfig config{"mail.example.org", durability, folders, std::move(quota), quota_service_, 100};
    config.may_write_data_first = [this](const SpoolHandle&) { return data_first_.load(); };  // on any
                                                                                              // machine
    agent_ = std::make_unique<MaildirAgent>(std::move(config), *spool_, *syncs_, ops_, clock_);
    recipient_ = make_recipient(root + "/example.org/ann");
    maildir_ = recipient_.user.maildir;
    ops_.prefix = root;
  }
  Reply deliver(const MessageBody& body) {
    outcome_ = {};
    auto handle = spool_->open();
    if (!handle) return {451, "4.3.0", handle.error().message};
    outcome_ = agent_->deliver(*handle, make_envelope(), recipient_, body);
    detail_ = outcome_.detail;
    return outcome_.reply;
  }
  // The reply at RCPT for a message of that size. nullopt: accepted.
  std::optional<Reply> refusal(std::uint64_t size) {
    state_ = agent_->look(*spool_->open(), recipient_.user, recipient_.detail, size);
    Verdict verdict = judge({.user = &recipient_.user, .mailbox = &state_, .over_quota = over_quota_});
    const Refuse* refuse = std::get_if<Refuse>(&verdict);
    return refuse ? std::optional(refuse->reply) : std::nullopt;
  }
  Reply deliver() { return deliver(in_memory(small_message)); }

  std::atomic<bool> data_first_ = false;
  RecordingOps ops_;
  OsClock clock_;
  QuotaService* quota_service_ = nullptr;
  std::unique_ptr<Spool> spool_;
  std::unique_ptr<SyncGroup> syncs_;
  std::unique_ptr<MaildirAgent> agent_;
  Recipient recipient_;
  std::string maildir_;
  OverQuota over_quota_ = OverQuota::reject;
  MailboxState state_;       // of the last refusal()
  DeliveryOutcome outcome_;  // of the last delivery
  std::string detail_;       // its detail
};

}  // namespace twinloft::lmtpd::test
