#include "member.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "macros.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/proto/error_reply.h"

namespace twinloft::lmtpd {

namespace {

// A filter that must answer has this long at least, also late in a message.
constexpr Duration least_wait = std::chrono::milliseconds(1);

// This process or machine lacks something, and no filter is at fault.
bool is_shortage(const Error& error) {
  return error.sys == EMFILE || error.sys == ENFILE || error.sys == ENOMEM || error.sys == ENOBUFS;
}

bool is_continue(const milter::Verdict& verdict) {
  return std::holds_alternative<milter::Continue>(verdict);
}

}  // namespace

// Counts the time of its life as spent for the message. All waits of its life have one end, until_.
class Member::Spends {
 public:
  explicit Spends(Member& member) : member_(member) {
    member_.until_ = member_.set_.clock().now() + member_.left_;
  }
  ~Spends() { member_.left_ = std::max<Duration>(least_wait, member_.until_ - member_.set_.clock().now()); }
  Spends(const Spends&) = delete;
  Spends& operator=(const Spends&) = delete;

 private:
  Member& member_;
};

// An exception within the dialogue leaves a link in an unknown state.
class Member::DropsOnThrow {
 public:
  explicit DropsOnThrow(Member& member) : member_(member) {}
  ~DropsOnThrow() {
    if (std::uncaught_exceptions() > before_) member_.set_link(nullptr);
  }
  DropsOnThrow(const DropsOnThrow&) = delete;
  DropsOnThrow& operator=(const DropsOnThrow&) = delete;

 private:
  Member& member_;
  const int before_ = std::uncaught_exceptions();
};

bool Member::would_block(const FilterMail& mail) const {
  if (!link_ || told_ != mail.client || !link_->is_idle() || link_->has_deferred_client()) return true;
  return link_->would_block(mail_event(mail));
}

bool Member::would_block(const milter::Event& event) const {
  return link_ && !failed_ && link_->would_block(event);
}

Decision Member::begin(const FilterMail& mail, const milter::Macros& macros) {
  message_id_ = mail.envelope->id;
  left_ = spec_.message_most;
  Spends time(*this);
  DropsOnThrow guard(*this);
  Status reached = reach(mail.client, macros);
  if (!reached && is_shortage(reached.error())) return short_of_resources(reached.error());
  if (!reached) return fail(reached.error());
  return ask_link(mail_event(mail), macros);
}

Status Member::reach(const FilterClient& client, const milter::Macros& macros) {
  if (link_ && !link_->is_idle()) leave();  // the filter has closed the connection
  // A filter that deferred the client is asked again at the next message.
  if (link_ && (told_ != client || link_->has_deferred_client())) {
    auto goes_on = link_->begin_another_client();
    if (!goes_on || !*goes_on) leave();
    told_.reset();
  }
  if (!link_) TL_TRY(open());
  if (told_) return {};
  TL_TRY(introduce(client, macros));
  told_ = client;
  return {};
}

Status Member::open() {
  TL_TRY_ASSIGN(std::unique_ptr<Stream> stream, set_.connect(index_));
  set_link(std::make_unique<milter::FilterLink>(std::move(stream), spec_, set_.clock()));
  return link_->open();
}

// The link keeps a verdict about the client for each of its messages.
Member::Asked Member::introduce(const FilterClient& client, const milter::Macros& macros) {
  TL_TRY(link_->say(connect_event(client), macros, most()));
  if (client.helo.empty()) return milter::Verdict(milter::Continue{});
  return link_->say(milter::Helo{client.helo}, macros, most());
}

Decision Member::hear(const milter::Event& event, const milter::Macros& macros) {
  Spends time(*this);
  DropsOnThrow guard(*this);
  return ask_link(event, macros);
}

Decision Member::ask_link(const milter::Event& event, const milter::Macros& macros) {
  if (failed_) return decision_of(spec_.on_failure, *failed_);
  Asked verdict = link_->say(event, macros, most());
  return verdict ? decision_of(*verdict) : fail(verdict.error());
}

Decision Member::hear(MessagePass& message, const milter::Macros& macros) {
  if (failed_) return decision_of(spec_.on_failure, *failed_);
  Spends time(*this);
  DropsOnThrow guard(*this);
  milter::MessageEdit edit = message.begin_edit(link_->agreement().wants(milter::wish::leading_space));
  std::optional<Error> own;  // a fault of this side, not the filter's
  Asked verdict = say_message(message, macros, [&](milter::Change&& change) -> Status {
    TL_TRY(MessagePass::check(change));
    const bool about_body = std::holds_alternative<milter::ReplaceBody>(change);
    Status taken = edit.take(std::move(change));
    if (!taken && (edit.is_too_large() || about_body)) own = taken.error();
    return taken;
  });
  if (message.read_error()) own = message.read_error();
  if (own) return own_fault(*own, edit.is_too_large());
  if (!verdict) return fail(verdict.error());
  Decision decision = decision_of(*verdict);
  if (!std::holds_alternative<Pass>(decision)) return decision;
  milter::MessageEdit::Edited edited = std::move(edit).finish();
  auto quarantine = std::move(edited.quarantine);
  message.take(std::move(edited), spec_.name);
  if (quarantine) return Quarantining{std::move(*quarantine)};
  return decision;
}

Member::Asked Member::say_message(MessagePass& message, const milter::Macros& macros,
                                  const milter::TakeChange& take) {
  TL_TRY_ASSIGN(milter::Verdict verdict, say_header(message.header()));
  if (is_continue(verdict)) {
    TL_TRY_ASSIGN(verdict, link_->say(milter::EndOfHeaders{}, macros, most()));
  }
  if (is_continue(verdict) && !link_->agreement().wants(milter::wish::no_body)) {
    TL_TRY_ASSIGN(verdict, message.for_each_part([&](std::string_view part) {
      return link_->say(milter::BodyChunk{part}, macros, most());
    }));
  }
  if (!is_continue(verdict)) return verdict;
  return link_->end_message(macros, most(), take);
}

Member::Asked Member::say_header(const milter::MessageHeader& header) {
  const milter::Agreement& agreement = link_->agreement();
  if (agreement.wants(milter::wish::no_headers)) return milter::Verdict(milter::Continue{});
  const bool leading_space = agreement.wants(milter::wish::leading_space);
  for (const auto& field : header.fields()) {
    const std::string value = field.value(leading_space);
    TL_TRY_ASSIGN(milter::Verdict verdict, link_->say(milter::Header{field.name, value}, {}, most()));
    if (!is_continue(verdict)) return verdict;
  }
  return milter::Verdict(milter::Continue{});
}

// Nothing more is known of the dialogue, so the link is not used again.
Decision Member::fail(const Error& error) {
  leave();
  failed_ = error.message;
  if (!has_given_up())
    set_.failures().put(LogLevel::error, set_.clock().now(),
                        fmt::format("{}: filter {}: {}; its default action \"{}\" follows", message_id_,
                                    spec_.name, error.message, milter::to_string(spec_.on_failure)));
  return decision_of(spec_.on_failure, *failed_);
}

Decision Member::own_fault(const Error& error, bool too_large) {
  leave();  // within the filter's changes
  set_.failures().put(LogLevel::error, set_.clock().now(),
                      fmt::format("{}: filter {}: {}", message_id_, spec_.name, error.message));
  if (too_large) return Refusal{{552, "5.3.4", "A filter makes the message too large"}};
  return Refusal{reply_of_unkept(error)};
}

// For lack of descriptors or memory here: the filter is not at fault, so its default action does not follow.
Decision Member::short_of_resources(const Error& error) {
  leave();
  set_.failures().put(LogLevel::error, set_.clock().now(),
                      fmt::format("{}: filter {}: {}", message_id_, spec_.name, error.message));
  return Refusal{{451, "4.3.2", "No resources for a filter now, try again later"}};
}

void Member::forget() {
  failed_.reset();
  if (!link_) return;
  if (link_->in_message() && !link_->abort()) leave();
  if (link_) link_->free_memory();
}

void Member::set_link(std::unique_ptr<milter::FilterLink> link) {
  std::lock_guard lock(mutex_);
  link_ = std::move(link);
  told_.reset();
  if (given_up_ && link_) link_->shut();
}

void Member::leave() {
  if (link_) link_->quit();
  std::lock_guard lock(mutex_);
  link_.reset();
  told_.reset();
}

bool Member::has_given_up() {
  std::lock_guard lock(mutex_);
  return given_up_;
}

void Member::give_up() {
  std::lock_guard lock(mutex_);
  given_up_ = true;
  if (link_) link_->shut();
}

}  // namespace twinloft::lmtpd
