// The filters of one connection, one behind the other.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decision.h"
#include "filter_set.h"
#include "member.h"

namespace twinloft::lmtpd {

class FilterChain final : public FilterSession {
 public:
  FilterChain(FilterSet& set, MakeStoredBody make_body);
  ~FilterChain() override { set_.closed(this); }

  std::optional<FilterVerdict> answer_now(const FilterCommand& command) override;
  FilterVerdict answer(const FilterCommand& command) override;
  FilteredMessage finish(std::shared_ptr<const Envelope> envelope, std::shared_ptr<StoredBody> body) override;
  void forget() override;
  void give_up() override;

 private:
  // What the filters have decided about the whole message before its end.
  struct Quarantined {
    std::string filter, reason;
  };
  FilterVerdict on(const FilterMail& mail);
  FilterVerdict on(const FilterRcpt& rcpt);
  FilterVerdict on(const FilterData& data);
  bool would_block(const FilterMail& mail) const;
  bool would_block(const FilterRcpt& rcpt) const;
  bool would_block(const FilterData& data) const;
  template <class Ask>
  FilterVerdict ask_each(const char* command, Ask ask);
  std::optional<Refusal> take(Decision&& decision, const Member& member, const char* at);
  std::optional<Refusal> pass_through(MessagePass& message);

  FilterSet& set_;
  const MakeStoredBody make_body_;
  std::vector<std::unique_ptr<Member>> members_;
  milter::Macros macros_;
  std::string message_id_;
  bool discarded_ = false;
  std::optional<Quarantined> quarantined_;
};

}  // namespace twinloft::lmtpd
