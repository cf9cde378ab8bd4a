// Filters that a test controls. They keep a log of what happens to them.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "twinloft/lmtpd/proto/command.h"
#include "twinloft/lmtpd/session/actions.h"
#include "twinloft/lmtpd/session/filtering.h"

namespace twinloft::lmtpd {

class FakeFilters final : public Filters {
 public:
  // By what was heard: "MAIL a@d", "RCPT b@d", "refused c@d", "DATA".
  std::map<std::string, FilterVerdict> verdicts;
  // What answer_now() leaves to answer(), and what is held until release() or the end of the session.
  std::set<std::string> slow, held;
  std::set<std::string> throwing;  // also "message"
  // The result of a complete message, also of one that was given up.
  std::function<FilteredMessage(std::shared_ptr<const Envelope>, std::shared_ptr<StoredBody>)> result =
      [](auto envelope, auto body) {
        return FilteredMessage{FilteredMessage::Passed{std::move(envelope), {}, {}, std::move(body)}};
      };

  // All messages pass, with these recipients in addition, and without those at these places.
  void change(const std::vector<std::string>& added, std::vector<bool> removed = {}) {
    result = [=](auto envelope, auto body) {
      FilteredMessage::Passed passed{std::move(envelope), removed, {}, std::move(body)};
      for (const std::string& to : added) passed.added.push_back(added_recipient(to));
      return FilteredMessage{std::move(passed)};
    };
  }
  static FilteredMessage::AddedRecipient added_recipient(const std::string& to) {
    return {std::get<Rcpt>(*parse_command("RCPT TO:<" + to + ">")), "fake"};
  }

  std::shared_ptr<FilterSession> open(MakeStoredBody) override {
    note("open");
    return std::make_shared<One>(*this);
  }
  void give_up() override {}

  // "open", "MAIL a@d", "message", "forget", "give up", "close".
  std::vector<std::string> log() {
    std::lock_guard lock(mutex_);
    return log_;
  }
  bool has_heard(const std::string& what) {
    std::lock_guard lock(mutex_);
    return std::ranges::count(log_, what) > 0;
  }
  void wait_for(const std::string& what, int times = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ranges::count(log_, what) >= times; });
  }
  void release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  static std::string name_of(const FilterCommand& command) {
    return std::visit(
        Visitor{[](const FilterMail& m) { return "MAIL " + m.envelope->from; },
                [](const FilterRcpt& r) { return (r.refused ? "refused " : "RCPT ") + r.recipient; },
                [](const FilterData&) { return std::string("DATA"); }},
        command);
  }

  class One final : public FilterSession {
   public:
    explicit One(FakeFilters& all) : all_(all) {}
    ~One() override { all_.note("close"); }
    std::optional<FilterVerdict> answer_now(const FilterCommand& command) override {
      if (all_.slow.contains(name_of(command))) return std::nullopt;
      return answer(command);
    }
    FilterVerdict answer(const FilterCommand& command) override {
      std::string name = name_of(command);
      all_.pass(name, given_up_);
      auto found = all_.verdicts.find(name);
      return found == all_.verdicts.end() ? FilterVerdict{} : found->second;
    }
    FilteredMessage finish(std::shared_ptr<const Envelope> envelope,
                           std::shared_ptr<StoredBody> body) override {
      all_.pass("message", given_up_);
      return all_.result(std::move(envelope), std::move(body));
    }
    void forget() override { all_.note("forget"); }
    void give_up() override { all_.note("give up", &given_up_); }

   private:
    FakeFilters& all_;
    bool given_up_ = false;  // under the mutex of all
  };

  void note(const std::string& what, bool* flag = nullptr) {
    std::lock_guard lock(mutex_);
    if (flag) *flag = true;
    log_.push_back(what);
    changed_.notify_all();
  }
  void pass(const std::string& what, const bool& given_up) {
    note(what);
    if (throwing.contains(what)) throw std::runtime_error("filter");
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return released_ || given_up || !held.contains(what); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> log_;
  bool released_ = false;
};

}  // namespace twinloft::lmtpd
