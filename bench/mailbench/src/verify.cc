// Three steps: read the accounts, read every file of the spool in parallel, compare in one thread.
#include "twinloft/mailbench/verify.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <tuple>

#include "expectations.h"
#include "twinloft/base/fd.h"
#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {

namespace {

// A file of one of the runs.
struct Found {
  std::uint32_t file = 0;  // index into SpoolFiles::files
  MessageKey key;
  std::uint32_t recipient = DirectoryMap::none;
  bool listed = false;  // the account lists the message
  std::string owner;    // for reports, if the account does not have the recipient
  std::string damage;
};

struct Share {  // the result of one reader
  std::vector<Found> found;
  std::vector<std::pair<std::uint32_t, std::string>> unmarked;  // file, why
  std::uint64_t foreign = 0, unmarked_count = 0, bytes = 0;
};

constexpr std::size_t kUnmarkedKept = 1000, kFilesAtOnce = 64;

// Reads a file. Returns 0 or errno. The buffer only grows.
int read_whole(const std::string& path, std::string& buffer, std::size_t& size) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat st{};
  if (!fd || ::fstat(fd.get(), &st) != 0) return errno;
  // One byte more than the size, so that the read of the last byte also detects the end.
  buffer.resize(std::max(buffer.size(), static_cast<std::size_t>(st.st_size) + 1));
  size = 0;
  for (;;) {
    if (size == buffer.size()) buffer.resize(buffer.size() * 2);
    ssize_t n = ::read(fd.get(), buffer.data() + size, buffer.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return 0;
    size += static_cast<std::size_t>(n);
  }
}

class Verifier {
 public:
  explicit Verifier(const VerifyOptions& options) : options_(options) {}

  Result<VerifyResult> run() {
    for (const std::string& account : options_.accounts) TL_TRY(expected_.read(account));
    TL_TRY(count_acknowledged());
    TL_TRY(map_directories());
    TL_TRY_ASSIGN(spool_, walk_spool(options_.spool));
    read_spool();
    for (const Share& share : shares_) compare(share);
    for (auto& [key, pair] : expected_.pairs) judge(key, pair);
    finish();
    return std::move(result_);
  }

 private:
  Status count_acknowledged() {
    for (const auto& [key, pair] : expected_.pairs) result_.acknowledged += pair.acknowledged > 0;
    if (result_.acknowledged == 0)
      return fail(Errc::not_found, "{}: no message was acknowledged, so there is nothing to prove",
                  options_.accounts[0]);
    return {};
  }

  Status map_directories() {
    for (std::uint32_t i = 0; i < expected_.recipients.size(); ++i)
      for (const std::string& format : options_.maildir_formats)
        TL_TRY(directories_.add(format, expected_.recipients[i], i));
    return {};
  }

  void read_spool() {
    for (const std::string& directory : spool_.directories) owners_.push_back(directories_.find(directory));
    std::size_t count = options_.threads;
    if (count == 0) count = std::max(1u, std::thread::hardware_concurrency()) * std::size_t{4};
    count = std::clamp<std::size_t>(spool_.files.size() / kFilesAtOnce, 1, count);
    shares_.resize(count);
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < count; ++i) threads.emplace_back([this, i] { read_files(shares_[i]); });
    read_files(shares_[0]);
    for (std::thread& thread : threads) thread.join();
  }

  void read_files(Share& share) {
    std::string buffer(1 << 16, '\0');
    Hasher128 hasher;
    for (;;) {
      std::size_t first = next_file_.fetch_add(kFilesAtOnce, std::memory_order_relaxed);
      if (first >= spool_.files.size()) return;
      std::size_t end = std::min(first + kFilesAtOnce, spool_.files.size());
      for (std::size_t i = first; i < end; ++i)
        read_one(static_cast<std::uint32_t>(i), buffer, hasher, share);
    }
  }

  void read_one(std::uint32_t file, std::string& buffer, Hasher128& hasher, Share& share) const {
    std::size_t size = 0;
    int error = read_whole(options_.spool + "/" + path_of(file), buffer, size);
    if (error != 0)
      return add_unmarked(share, file, std::string("it cannot be read: ") + std::strerror(error));
    share.bytes += size;
    StoredMessage stored = parse_stored(std::string_view(buffer).substr(0, size));
    if (stored.id.empty()) return add_unmarked(share, file, fmt::format("{} bytes without an id", size));
    auto key = expected_.parse_id(stored.id);
    if (!key) {
      ++share.foreign;
      return;
    }
    Found found;
    found.file = file;
    found.key = *key;
    auto message = expected_.messages.find(*key);
    found.listed = message != expected_.messages.end();
    if (found.listed) found.damage = find_damage(stored, message->second, options_.check_head, hasher);
    found.recipient = owner_of(file, stored, found.owner);
    share.found.push_back(std::move(found));
  }

  static void add_unmarked(Share& share, std::uint32_t file, std::string why) {
    ++share.unmarked_count;
    if (share.unmarked.size() < kUnmarkedKept) share.unmarked.emplace_back(file, std::move(why));
  }

  std::uint32_t owner_of(std::uint32_t file, const StoredMessage& stored, std::string& name) const {
    if (!options_.maildir_formats.empty()) {
      name = spool_.directories[spool_.files[file].directory];
      return owners_[spool_.files[file].directory];
    }
    std::string_view address = stored.delivered_to;
    if (address.starts_with('<') && address.ends_with('>')) address = address.substr(1, address.size() - 2);
    name = address;
    auto it = expected_.lower_case_index.find(lower_case(address));
    return it == expected_.lower_case_index.end() ? DirectoryMap::none : it->second;
  }

  std::string path_of(std::uint32_t file) const {
    const SpoolFiles::File& f = spool_.files[file];
    return spool_.directories[f.directory] + "/" + f.name;
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
    for (const auto& [file, why] : share.unmarked)
      result_.unmarked_files.push_back(fmt::format("{} ({})", path_of(file), why));
    for (const Found& found : share.found) compare_one(found);
  }

  void compare_one(const Found& found) {
    std::string id = expected_.id_of(found.key);
    std::string path = path_of(found.file);
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

  void report(Problem problem) {
    ++result_.problem_counts[static_cast<std::size_t>(problem.kind)];
    result_.problems.push_back(std::move(problem));
  }

  void finish() {
    result_.files = spool_.files.size();
    result_.left_in_tmp = spool_.left_in_tmp;
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
  Expectations expected_;
  DirectoryMap directories_;
  SpoolFiles spool_;
  std::vector<std::uint32_t> owners_;  // by directory of the spool
  std::atomic<std::size_t> next_file_{0};
  std::vector<Share> shares_;
  VerifyResult result_;
};

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
  return std::ranges::all_of(problem_counts, [](std::uint64_t count) { return count == 0; });
}

Result<VerifyResult> run_verify(const VerifyOptions& options) {
  for (const std::string& format : options.maildir_formats) TL_TRY(DirectoryMap::check(format));
  return Verifier(options).run();
}

}  // namespace twinloft::mailbench
