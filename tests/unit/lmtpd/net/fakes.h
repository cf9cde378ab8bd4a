// A user database and a deliverer that tests control.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// Blocks its callers until it is released.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return released_; });
  }
  void wait_for_waiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  void release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool released_ = false;
};

// Every user exists except "nobody". "broken" gives an error, "throw" an exception, and "waits" blocks until
// the gate is released.
class FakeUsers final : public UserDb {
 public:
  bool at_hand = false;                     // users are in the cache, except "waits"
  std::function<void()> last_step = [] {};  // right before the answer
  Gate gate;

  LookupResult lookup(const LookupRequest& r) override {
    if (r.local_part == "waits") gate.pass();
    if (r.local_part == "nobody") return std::nullopt;
    if (r.local_part == "broken") return fail(Errc::unavailable, "the table is locked");
    if (r.local_part == "throw") throw std::runtime_error("look-up");
    User user;
    user.name = r.local_part + "@" + r.domain;
    user.uid = user.gid = 5000;
    user.home = "/srv/mail/" + r.local_part;
    last_step();
    return Resolved{std::move(user)};
  }
  std::optional<LookupResult> lookup_now(const LookupRequest& r) override {
    if (!at_hand || r.local_part == "waits") return std::nullopt;
    return lookup(r);
  }
};

struct Delivered {
  std::string to;
  std::string from;
  std::string text;
  bool in_memory = true;
  std::string client = {}, tls = {};
};

// Users with names "quota..." have a quota of 100 bytes for each message. The look-up fails for
// "quota-throws", and blocks for "quota-waits" until the gate is released.
class FakeMailboxes final : public Mailboxes {
 public:
  Gate gate;
  bool has_limits(const User& user) const override { return user.name.starts_with("quota"); }
  MailboxState look(const User& user, const std::string& detail, std::uint64_t size) override {
    if (detail == "ignored") return {};
    if (user.name.starts_with("quota-waits")) gate.pass();
    if (user.name.starts_with("quota-throws")) throw std::runtime_error("quota");
    return {.room = size > 100 ? Room::full : Room::enough};
  }
};

// Keeps all deliveries. After `hold(n)`, a delivery waits until n are waiting, or until release().
class FakeDeliverer final : public Deliverer {
 public:
  DeliveryOutcome deliver(const Envelope& envelope, const Recipient& recipient,
                          const MessageBody& body) override {
    if (recipient.local_part == "throws") throw std::runtime_error("delivery");
    if (auto moved = move(recipient)) return {.reply = {}, .elsewhere = std::move(moved)};
    std::unique_lock lock(mutex_);
    ++waiting_;
    most_ = std::max(most_, waiting_);
    int& of_user = waiting_of_[recipient.user.name];
    most_of_one_ = std::max(most_of_one_, ++of_user);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_ || waiting_ >= until_; });
    if (waiting_ >= until_) held_ = false, changed_.notify_all();
    --waiting_;
    --of_user;
    delivered_.push_back(
        {recipient.text, envelope.from, text_of(body), body.in_memory(), envelope.client, envelope.tls});
    changed_.notify_all();
    if (recipient.local_part.starts_with("full")) return {{452, "4.2.2", "Mailbox full"}};
    if (recipient.local_part.starts_with("refused")) return {{550, "5.1.1", "No such user there"}};
    DeliveryOutcome delivered{{250, "2.0.0", recipient.text + " delivered"}};
    last_step();
    return delivered;
  }

  std::function<void()> last_step = [] {};  // right before the answer
  // Where the delivery goes on; null: nowhere else.
  std::function<std::shared_ptr<const Recipient>(const Recipient&)> move = [](const Recipient&) {
    return nullptr;
  };

  // Users with names "group-..." share one group delivery, with one part for each user.
  std::function<void(int part)> before_part = [](int) {};
  std::string group_of(const User& user) const override {
    if (group_throws.exchange(false)) throw std::runtime_error("group_of");
    return user.name.starts_with("group-") ? "group" : "";
  }
  mutable std::atomic<bool> group_throws{false};  // once
  std::vector<DeliveryOutcome> deliver_group(const Envelope& envelope,
                                             std::span<const std::size_t> recipients, const MessageBody& body,
                                             const GivenUp& given_up) override {
    std::vector<DeliveryOutcome> outcomes;
    for (std::size_t i : recipients) {
      before_part(static_cast<int>(outcomes.size()));
      auto rest = given_up();
      outcomes.push_back(rest ? DeliveryOutcome{*rest} : deliver(envelope, envelope.recipients[i], body));
    }
    return outcomes;
  }

  // Limits by the first letter of the users' names.
  std::map<char, std::uint32_t> limits_by_letter = {};
  std::uint32_t per_user_max = unlimited_deliveries;
  std::function<void(const User&)> on_limits = [](const User&) {};
  DeliveryLimits limits(const User& user) const override {
    on_limits(user);
    auto found = limits_by_letter.find(user.name[0]);
    if (found == limits_by_letter.end()) return {per_user_max, {}};
    return {per_user_max, {std::string(1, found->first), found->second}};
  }

  void hold(int until = 1 << 20) {
    std::lock_guard lock(mutex_);
    held_ = true;
    until_ = until;
  }
  void release() {
    std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void wait_for_waiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  std::vector<Delivered> wait_for_delivered(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return delivered_.size() >= count; });
    return delivered_;
  }
  std::vector<Delivered> delivered() {
    std::lock_guard lock(mutex_);
    return delivered_;
  }
  void forget() {
    std::lock_guard lock(mutex_);
    delivered_.clear();
  }
  int most_at_once() {
    std::lock_guard lock(mutex_);
    return most_;
  }
  int most_at_once_to_one_user() {
    std::lock_guard lock(mutex_);
    return most_of_one_;
  }

 private:
  static std::string text_of(const MessageBody& body) {
    if (body.in_memory()) return body.memory;
    std::string out(body.size, '\0');
    ssize_t got = ::pread(body.file.get(), out.data(), out.size(), 0);
    out.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return out;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int until_ = 1 << 20;
  int waiting_ = 0;
  int most_ = 0;
  std::map<std::string, int> waiting_of_;  // by user
  int most_of_one_ = 0;
  std::vector<Delivered> delivered_;
};

}  // namespace twinloft::lmtpd
