#include "twinloft/spool-repl/salvage/deliver.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "beneath.h"
#include "mailbox.h"
#include "read_file.h"
#include "twinloft/mail/maildir_name.h"
#include "twinloft/spool-repl/salvage/ledger.h"

namespace twinloft::repl::salvage {

namespace {

constexpr const char* marker_name = ".twinloft-spool";
constexpr std::string_view fate_names[] = {
    "delivered",     "already-there", "done-before", "copy-of-another", "left-deleted", "left-uncertain",
    "would-deliver", "deferred",      "refused",     "unknown",         "failed",       "not-tried"};
static_assert(std::size(fate_names) == fates);

Status check_marker(int root, const std::string& spool, const Uuid& volume) {
  auto marker = open_plain_file(root, marker_name);
  auto read = marker ? read_start(marker->fd.get(), 100) : std::unexpected(marker.error());
  std::string text = read.value_or("");
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  if (text == volume.text()) return {};
  return fail(Errc::conflict, "{}: its {} {}; the bundle is of volume {}. Is the winner mounted there?",
              spool, marker_name, !read ? "cannot be read" : "says \"" + printable(text) + "\"",
              volume.text());
}

class Run {
 public:
  Run(const Bundle& bundle, int root, Ledger ledger, Target& target, const DeliverOptions& options,
      const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : bundle_(bundle),
        messages_(bundle.manifest().messages),
        root_(root),
        ledger_(std::move(ledger)),
        target_(target),
        options_(options),
        progress_(progress) {}

  Result<DeliverReport> run();

 private:
  Status check_other_history(std::size_t i) const;
  using Indices = std::vector<std::size_t>;
  LedgerKey key(std::size_t i) const { return {messages_[i].maildir, messages_[i].content}; }
  void settle(std::size_t i, Fate fate, std::string detail = "");
  void settle_all(const Indices& which, Fate fate, const std::string& detail);
  void do_user(const Indices& of_user);
  bool settle_without_looking(std::size_t i, std::set<Sha256>& seen);
  void do_message(std::size_t i, const std::set<Sha256>& there);
  bool settle_as_deleted(std::size_t i);
  bool record(std::size_t i, Mark mark);
  void hand_over(std::size_t i);
  void take_outcome(std::size_t i, const Sent& sent, const std::string& tried_before);
  std::string address_of(const Message& m) const;

  const Bundle& bundle_;
  const std::vector<Message>& messages_;
  int root_;
  Ledger ledger_;
  Target& target_;
  const DeliverOptions& options_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  std::vector<ContentDigest> digests_;
  DeliverReport report_;
  std::uint64_t settled_ = 0;
  std::string stopped_;  // why nothing more can be delivered
};

void Run::settle(std::size_t i, Fate fate, std::string detail) {
  report_.messages[i] = {i, fate, std::move(detail)};
  ++settled_;
  if (progress_) progress_(settled_, messages_.size());
}

void Run::settle_all(const Indices& which, Fate fate, const std::string& detail) {
  for (std::size_t i : which) settle(i, fate, detail);
}

std::string Run::address_of(const Message& m) const {
  return m.user.find('@') != m.user.npos || options_.domain.empty() ? m.user : m.user + "@" + options_.domain;
}

bool Run::settle_without_looking(std::size_t i, std::set<Sha256>& seen) {
  if (!seen.insert(messages_[i].content).second) {
    settle(i, Fate::copy_of_another);
    return true;
  }
  auto mark = ledger_.find(key(i));
  if (mark == Mark::delivered || mark == Mark::present) {
    settle(i, Fate::done_before);
    return true;
  }
  if (messages_[i].kind == Kind::uncertain && !options_.uncertain) {
    settle(i, Fate::left_uncertain);
    return true;
  }
  return false;
}

void Run::do_user(const Indices& of_user) {
  Indices open;
  std::set<Sha256> seen;
  for (std::size_t i : of_user)
    if (!settle_without_looking(i, seen)) open.push_back(i);
  if (open.empty()) return;
  if (!stopped_.empty()) return settle_all(open, Fate::not_tried, stopped_);
  std::vector<ContentDigest> wanted;
  for (std::size_t i : open) wanted.push_back(digests_[i]);
  auto there = find_contents(root_, messages_[open.front()].maildir, wanted);
  if (!there)
    return settle_all(open, Fate::failed, "the Maildir cannot be searched: " + there.error().message);
  for (std::size_t i : open) do_message(i, *there);
}

// A dry run writes nothing, so that the next run has the same result.
bool Run::record(std::size_t i, Mark mark) {
  if (options_.dry_run) return true;
  auto written = ledger_.append(key(i), mark);
  if (!written) stopped_ = written.error().message;
  return written.has_value();
}

// Handles messages that were deleted on the winner. The ledger records them, since Dovecot later removes
// their names from its list.
bool Run::settle_as_deleted(std::size_t i) {
  const Message& m = messages_[i];
  if (m.kind != Kind::uncertain) return false;
  auto seen = was_seen(root_, m.maildir, mail::base_name(m.name));
  if (seen && !*seen) return false;
  if (!seen) {
    settle(i, Fate::failed, "it is unknown whether the winner had it: " + seen.error().message);
    return true;
  }
  bool recorded = record(i, Mark::present);
  settle(i, Fate::left_deleted, recorded ? "" : "not recorded: " + stopped_);
  return true;
}

void Run::do_message(std::size_t i, const std::set<Sha256>& there) {
  if (!stopped_.empty()) return settle(i, Fate::not_tried, stopped_);
  if (there.contains(messages_[i].content)) {
    bool recorded = record(i, Mark::present);
    return settle(i, Fate::already_there, recorded ? "" : "not recorded: " + stopped_);
  }
  if (settle_as_deleted(i)) return;
  if (options_.dry_run) return settle(i, Fate::would_deliver);
  hand_over(i);
}

void Run::hand_over(std::size_t i) {
  std::string
      tried_before = ledger_.find(key(i)) == Mark::intent
                         ? "; an earlier run had begun this delivery, and the message was not in the Maildir"
                         : "";
  auto content = bundle_.open_message(messages_[i]);
  if (!content) return settle(i, Fate::failed, content.error().message);
  if (!record(i, Mark::intent)) return settle(i, Fate::not_tried, stopped_);
  take_outcome(i, target_.deliver(messages_[i], address_of(messages_[i]), content->get()), tried_before);
}

void Run::take_outcome(std::size_t i, const Sent& sent, const std::string& tried_before) {
  switch (sent.end) {
    case Sent::End::delivered: {
      bool recorded = record(i, Mark::delivered);
      return settle(i, Fate::delivered,
                    sent.detail + tried_before + (recorded ? "" : "; not recorded: " + stopped_));
    }
    case Sent::End::deferred:
    case Sent::End::refused:
      (void)record(i, Mark::undone);
      return settle(i, sent.end == Sent::End::deferred ? Fate::deferred : Fate::refused, sent.detail);
    // The message may be in the Maildir now or later, and lmtpd removes it if it cannot make it durable. The
    // next run searches for it.
    case Sent::End::unknown:
      return settle(i, Fate::unknown, sent.detail);
    // The intent stays in the ledger, so the next run searches for the file of a failed copy.
    case Sent::End::failed:
      return settle(i, Fate::failed, sent.detail);
    case Sent::End::away:
      stopped_ = sent.detail;
      return settle(i, Fate::failed, sent.detail);
  }
}

// Only the loser has the file name of a message that was stored after the split, since a delivery makes
// another name. Messages in the ledger are not checked, since an earlier run may have used the name.
Status Run::check_other_history(std::size_t i) const {
  const Message& m = messages_[i];
  if (options_.any_spool || m.kind != Kind::after || ledger_.find(key(i))) return {};
  std::string found = find_file(root_, m.maildir, m.folder, mail::base_name(m.name), m.content);
  if (found.empty()) return {};
  return fail(
      Errc::conflict,
      "this is the spool that the bundle was taken from: {} has the path of message {} on the loser. "
      "Mount the winner's spool. If this is the winner, and the file was copied there, use --any-spool",
      printable(found), m.number);
}

Result<DeliverReport> Run::run() {
  // All messages are verified before the first delivery, so that no part of a damaged bundle is delivered.
  std::map<std::string, Indices> users;
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    TL_TRY_ASSIGN(ContentDigest digest, bundle_.verify(messages_[i]));
    TL_TRY(check_other_history(i));
    digests_.push_back(digest);
    users[messages_[i].maildir].push_back(i);
  }
  if (ledger_.was_torn())
    report_.notes.push_back(
        "the ledger's last record was incomplete, since a run was interrupted; its message was searched in "
        "the Maildir");
  report_.messages.resize(messages_.size());
  for (const auto& [maildir, of_user] : users) do_user(of_user);
  if (!stopped_.empty()) report_.notes.push_back("ended early: " + stopped_);
  return std::move(report_);
}

}  // namespace

std::string_view to_string(Fate fate) {
  return fate_names[static_cast<std::size_t>(fate)];
}

bool is_open(Fate fate) {
  return fate >= Fate::deferred;
}

std::uint64_t DeliverReport::count(Fate fate) const {
  return static_cast<std::uint64_t>(
      std::count_if(messages.begin(), messages.end(), [&](const MessageFate& m) { return m.fate == fate; }));
}

std::uint64_t DeliverReport::open() const {
  return static_cast<std::uint64_t>(
      std::count_if(messages.begin(), messages.end(), [](const MessageFate& m) { return is_open(m.fate); }));
}

Result<DeliverReport> deliver(const Bundle& bundle, const std::string& spool, const MakeTarget& make_target,
                              const DeliverOptions& options,
                              const std::function<void(std::uint64_t done, std::uint64_t total)>& progress,
                              FileOps* ops) {
  OsFileOps os;
  Fd root(::open(spool.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail_errno(errno, "{}", spool);
  if (!options.any_spool) TL_TRY(check_marker(root.get(), spool, bundle.manifest().volume));
  if (!ops) ops = &os;
  auto ledger = options.dry_run ? Ledger::open_to_look(root.get()) : Ledger::open(root.get(), *ops);
  if (!ledger) return fail(ledger.error().code, "{}: {}", spool, ledger.error().message);
  std::unique_ptr<Target> target = make_target(root.get(), *ops);
  return Run(bundle, root.get(), std::move(*ledger), *target, options, progress).run();
}

}  // namespace twinloft::repl::salvage
