// One filter of a connection: the link to it, and what it has decided about the present message.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "decision.h"
#include "filter_set.h"
#include "message_pass.h"
#include "twinloft/lmtpd/milter/filter_link.h"

namespace twinloft::lmtpd {

class Member {
 public:
  // index: in FiltersConfig::order.
  Member(FilterSet& set, std::size_t index) : set_(set), spec_(set.config().order[index]), index_(index) {}
  ~Member() { forget(), leave(); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Whether the next two block.
  bool would_block(const FilterMail& mail) const;
  bool would_block(const milter::Event& event) const;
  // A message begins. Connects, and introduces the client, if the filter does not know it yet.
  Decision begin(const FilterMail& mail, const milter::Macros& macros);
  // RCPT or DATA.
  Decision hear(const milter::Event& event, const milter::Macros& macros);
  // The complete message. The filter's changes are in `message` only if it accepts the message.
  Decision hear(MessagePass& message, const milter::Macros& macros);
  // The message ends here. Does not block.
  void forget();
  // From any thread: the present operation and all later ones fail.
  void give_up();

  const std::string& name() const { return spec_.name; }

 private:
  using Asked = Result<milter::Verdict>;
  Status reach(const FilterClient& client, const milter::Macros& macros);
  Status open();
  Asked introduce(const FilterClient& client, const milter::Macros& macros);
  Decision ask_link(const milter::Event& event, const milter::Macros& macros);
  Asked say_message(MessagePass& message, const milter::Macros& macros, const milter::TakeChange& take);
  Asked say_header(const milter::MessageHeader& header);
  Decision fail(const Error& error);
  Decision own_fault(const Error& error, bool too_large);
  Decision short_of_resources(const Error& error);
  bool has_given_up();
  void set_link(std::unique_ptr<milter::FilterLink> link);
  void leave();

  // The latest end of a wait now, so that all waits for this message stay below spec_.message_most.
  Instant most() const { return until_; }
  class Spends;
  class DropsOnThrow;

  FilterSet& set_;
  const milter::FilterSpec& spec_;
  const std::size_t index_;
  std::mutex mutex_;  // for the next two, which give_up() uses
  std::unique_ptr<milter::FilterLink> link_;
  bool given_up_ = false;
  std::optional<FilterClient> told_;   // the client that the filter knows
  std::optional<std::string> failed_;  // in this message: why
  std::string message_id_;             // for log lines
  Duration left_{};                    // of spec_.message_most
  Instant until_{};                    // while Spends lives: now and left_, when it began
};

}  // namespace twinloft::lmtpd
