// Three steps: read the accounts, read every message of the store in parallel, compare in one thread. With a
// time to wait, the last two are repeated.
#include "twinloft/mailbench/verify.h"

#include <algorithm>
#include <filesystem>
#include <thread>
#include <tuple>

#include "store.h"
#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {

namespace {

using namespace std::chrono_literals;

// A message of one of the runs.
struct Found {
  std::uint32_t id = 0;  // for Store::place()
  MessageKey key;
  std::uint32_t recipient = DirectoryMap::none;
  bool listed = false;  // the account lists the message
  std::string owner;    // for reports, if the account does not have the recipient
  std::string damage;
  std::int64_t stored_us = 0;
};

struct Share {  // the result of one reader
  std::vector<Found> found;
  std::vector<std::pair<std::uint32_t, std::string>> unmarked;  // id, why
  std::uint64_t foreign = 0, unmarked_count = 0, bytes = 0;
  Hasher128 hasher;
};

constexpr std::size_t kUnmarkedKept = 1000;

// Files below a directory. A file that is moved within a queue may be counted twice, or not at all.
Result<std::uint64_t> count_files(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::directory_iterator at(directory, error), end;
  std::uint64_t count = 0;
  for (; !error && at != end; at.increment(error)) {
    std::error_code gone;  // between the two calls: it is delivered
    auto type = at->symlink_status(gone).type();
    count += type == std::filesystem::file_type::regular;
    if (type != std::filesystem::file_type::directory) continue;
    TL_TRY_ASSIGN(std::uint64_t below, count_files(at->path()));
    count += below;
  }
  if (!error || error == std::errc::no_such_file_or_directory) return count;
  return fail(Errc::io, "queue {}: {}", directory.string(), error.message());
}

Result<std::uint64_t> count_queued(const std::vector<std::string>& directories) {
  std::uint64_t count = 0;
  for (const std::string& directory : directories) {
    TL_TRY_ASSIGN(std::uint64_t below, count_files(directory));
    count += below;
  }
  return count;
}

class Comparison {
 public:
  // What an earlier comparison has found is forgotten.
  Comparison(const VerifyOptions& options, Expectations& expected, const Store& store)
      : options_(options), expected_(expected), store_(store), shares_(store.threads()) {
    for (auto& [key, pair] : expected_.pairs) {
      pair.intact = pair.damaged = 0;
      pair.stored_us = 0;
    }
  }

  // From the store's threads.
  void take(std::size_t thread, const StoredText& message) {
    Share& share = shares_[thread];
    if (!message.error.empty()) return add_unmarked(share, message.id, message.error);
    share.bytes += message.text.size();
    StoredMessage stored = parse_stored(message.text);
    if (stored.id.empty())
      return add_unmarked(share, message.id, fmt::format("{} bytes without an id", message.text.size()));
    auto key = expected_.parse_id(stored.id);
    if (!key) {
      ++share.foreign;
      return;
    }
    Found found;
    found.id = message.id;
    found.key = *key;
    if (message.stored) found.stored_us = microseconds(*message.stored);
    auto sent = expected_.messages.find(*key);
    found.listed = sent != expected_.messages.end();
    if (found.listed) found.damage = find_damage(stored, sent->second, options_.check_head, share.hasher);
    found.recipient = owner_of(message, stored, found.owner);
    share.found.push_back(std::move(found));
  }

  VerifyResult run() {
    for (const auto& [key, pair] : expected_.pairs) result_.acknowledged += pair.acknowledged > 0;
    for (const Share& share : shares_) compare(share);
    for (auto& [key, pair] : expected_.pairs) judge(key, pair);
    finish();
    return std::move(result_);
  }

 private:
  static void add_unmarked(Share& share, std::uint32_t id, std::string why) {
    ++share.unmarked_count;
    if (share.unmarked.size() < kUnmarkedKept) share.unmarked.emplace_back(id, std::move(why));
  }

  std::uint32_t owner_of(const StoredText& message, const StoredMessage& stored, std::string& name) const {
    if (message.owner_known) {
      name = message.owner_name;
      return message.owner;
    }
    std::string_view address = stored.delivered_to;
    if (address.starts_with('<') && address.ends_with('>')) address = address.substr(1, address.size() - 2);
    name = address;
    auto it = expected_.lower_case_index.find(lower_case(address));
    return it == expected_.lower_case_index.end() ? DirectoryMap::none : it->second;
  }

  // The number of copies that the attempts for this pair may have stored.
  std::uint32_t copies_allowed(const Pair& pair) const {
    bool last_word_deferred = pair.acknowledged == 0 && pair.refused == 0;
    bool deferred_counts = options_.allow_deferred_copies ||
                           (last_word_deferred && !options_.strict_deferred);
    return (pair.acknowledged > 0 ? 1 : 0) + pair.unknown + (deferred_counts ? pair.deferred : 0);
  }

  void compare(const Share& share) {
    result_.foreign += share.foreign;
    result_.unmarked += share.unmarked_count;
    result_.bytes += share.bytes;
    for (const auto& [id, why] : share.unmarked)
      result_.unmarked_files.push_back(fmt::format("{} ({})", store_.place(id), why));
    for (const Found& found : share.found) compare_one(found);
  }

  void compare_one(const Found& found) {
    std::string id = expected_.id_of(found.key);
    std::string path = store_.place(found.id);
    if (!found.listed) {
      if (!expected_.complete[found.key.run])
        ++result_.unlisted_allowed;
      else
        report({ProblemKind::unlisted, id, found.owner, path, "the account lists no attempt of it"});
      return;
    }
    if (found.recipient == DirectoryMap::none && found.owner.empty())
      return report(
          {ProblemKind::nobody, id, "", path, "no Delivered-To: name the layout with --maildir-format"});
    auto it = expected_.pairs.end();
    if (found.recipient != DirectoryMap::none) it = expected_.pairs.find({found.key, found.recipient});
    if (it == expected_.pairs.end())
      return report({ProblemKind::misdelivered, id, found.owner, path, "it was not sent to this recipient"});
    const std::string& recipient = expected_.recipients[found.recipient];
    Pair& pair = it->second;
    if (!found.damage.empty()) {
      ++pair.damaged;
      return report({ProblemKind::damaged, id, recipient, path, found.damage});
    }
    ++pair.intact;
    if (pair.stored_us == 0 || (found.stored_us != 0 && found.stored_us < pair.stored_us))
      pair.stored_us = found.stored_us;
    std::uint32_t allowed = copies_allowed(pair);
    if (pair.intact <= allowed) return;
    ProblemKind kind = ProblemKind::duplicate;
    if (pair.acknowledged == 0 && pair.refused > 0)
      kind = ProblemKind::refused;
    else if (pair.acknowledged == 0 && pair.deferred > 0)
      kind = ProblemKind::deferred;
    report({kind, id, recipient, path,
            fmt::format("copy {}; {} allowed by {} acknowledged, {} without a reply, {} deferred, {} refused",
                        pair.intact, allowed, pair.acknowledged, pair.unknown, pair.deferred, pair.refused)});
  }

  void judge(const PairKey& key, const Pair& pair) {
    std::uint32_t copies = std::min(pair.intact, copies_allowed(pair));
    if (pair.acknowledged > 0) {
      if (pair.intact == 0 && pair.damaged == 0)
        report({ProblemKind::lost, expected_.id_of(key.message), expected_.recipients[key.recipient], "",
                "it was acknowledged, and no file has it"});
      take_date(pair);
      result_.acknowledged_found += pair.intact > 0 && pair.intact == copies && pair.damaged == 0;
      result_.extra_copies_allowed += copies > 1 ? copies - 1 : 0;
    } else if (pair.refused > 0) {
      ++result_.refused;
    } else if (pair.unknown > 0) {
      ++(copies > 0 ? result_.unknown_present : result_.unknown_absent);
    } else if (copies > 0) {
      ++result_.deferred_present;
    }
  }

  void take_date(const Pair& pair) {
    if (pair.stored_us == 0 || pair.acknowledged_us == 0) return;
    ++result_.dated;
    last_stored_us_ = std::max(last_stored_us_, pair.stored_us);
    // The kernel's time of a file may be some milliseconds behind.
    std::int64_t delay = std::max<std::int64_t>(0, pair.stored_us - pair.acknowledged_us);
    result_.delay_ns.record(static_cast<std::uint64_t>(delay) * 1000);
  }

  void report(Problem problem) {
    ++result_.problem_counts[static_cast<std::size_t>(problem.kind)];
    result_.problems.push_back(std::move(problem));
  }

  void finish() {
    result_.files = store_.count();
    result_.left_in_tmp = store_.left_in_tmp();
    std::int64_t first = INT64_MAX;
    for (const auto& started : expected_.started)
      if (started) first = std::min(first, microseconds(*started));
    if (result_.dated > 0)
      result_.delivery = std::chrono::microseconds(std::max<std::int64_t>(0, last_stored_us_ - first));
    result_.accounts_complete = std::ranges::all_of(expected_.complete,
                                                    [](bool complete) { return complete; });
    auto order = [](const Problem& p) { return std::tie(p.kind, p.id, p.recipient, p.path); };
    std::ranges::sort(result_.problems,
                      [&](const Problem& a, const Problem& b) { return order(a) < order(b); });
    std::vector<std::size_t> kept(kProblemKinds);
    std::erase_if(result_.problems, [&](const Problem& p) {
      return ++kept[static_cast<std::size_t>(p.kind)] > options_.problems_shown;
    });
    std::ranges::sort(result_.unmarked_files);
    if (result_.unmarked_files.size() > options_.problems_shown)
      result_.unmarked_files.resize(options_.problems_shown);
  }

  const VerifyOptions& options_;
  Expectations& expected_;
  const Store& store_;
  std::vector<Share> shares_;
  std::int64_t last_stored_us_ = 0;
  VerifyResult result_;
};

Status check_something_acknowledged(const VerifyOptions& options, const Expectations& expected) {
  for (const auto& [key, pair] : expected.pairs)
    if (pair.acknowledged > 0) return {};
  return fail(Errc::not_found, "{}: no message was acknowledged, so there is nothing to prove",
              options.accounts[0]);
}

Result<VerifyResult> compare_once(const VerifyOptions& options, Expectations& expected, Store& store) {
  Comparison comparison(options, expected, store);
  TL_TRY(
      store.read([&](std::size_t thread, const StoredText& message) { comparison.take(thread, message); }));
  VerifyResult result = comparison.run();
  TL_TRY_ASSIGN(result.queued, count_queued(options.queues));
  return result;
}

bool may_still_arrive(const VerifyResult& result) {
  return result.queued > 0 || result.problem_counts[static_cast<std::size_t>(ProblemKind::lost)] > 0;
}

}  // namespace

std::string_view to_string(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::lost:
      return "lost";
    case ProblemKind::damaged:
      return "damaged";
    case ProblemKind::duplicate:
      return "duplicate";
    case ProblemKind::refused:
      return "refused and present";
    case ProblemKind::deferred:
      return "deferred and present";
    case ProblemKind::misdelivered:
      return "misdelivered";
    case ProblemKind::unlisted:
      return "unlisted";
    case ProblemKind::nobody:
      return "nobody's";
  }
  return "?";
}

bool VerifyResult::good() const {
  return queued == 0 && std::ranges::all_of(problem_counts, [](std::uint64_t count) { return count == 0; });
}

Result<VerifyResult> run_verify(const VerifyOptions& options) {
  for (const std::string& format : options.maildir_formats) TL_TRY(DirectoryMap::check(format));
  for (const std::string& queue : options.queues)
    if (std::error_code error; !std::filesystem::is_directory(queue, error))
      return fail(Errc::not_found, "queue {}: not a directory", queue);
  TL_TRY(count_queued(options.queues));
  Expectations expected;
  for (const std::string& account : options.accounts) TL_TRY(expected.read(account));
  TL_TRY(check_something_acknowledged(options, expected));
  TL_TRY_ASSIGN(std::unique_ptr<Store> store, options.imap.empty() ? make_spool_store(options, expected)
                                                                   : make_imap_store(options, expected));
  OsClock clock;
  Instant end = clock.now() + options.wait;
  for (;;) {
    Instant began = clock.now();
    // A full queue says that mail is missing, and costs less to look at than the store.
    while (clock.now() < end) {
      TL_TRY_ASSIGN(std::uint64_t queued, count_queued(options.queues));
      if (queued == 0) break;
      std::this_thread::sleep_for(100ms);
    }
    // With time left, what cannot be read may only not be there yet: a server that starts, a first delivery.
    Result<VerifyResult> result = compare_once(options, expected, *store);
    Instant now = clock.now();
    if (now >= end || (result && !may_still_arrive(*result))) return result;
    // Reading the store takes processors and disk from the delivery: it gets at least half of the time.
    std::this_thread::sleep_for(std::min(std::max<Duration>(200ms, now - began), end - now));
  }
}

}  // namespace twinloft::mailbench
