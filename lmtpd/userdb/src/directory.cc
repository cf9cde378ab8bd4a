#include "twinloft/lmtpd/userdb/directory.h"

#include <fmt/format.h>

#include <functional>

#include "cache.h"
#include "fold.h"
#include "twinloft/lmtpd/proto/path.h"

namespace twinloft::lmtpd {

namespace {

// nullopt: no answer is in memory.
using Find = std::function<std::optional<FindResult>(const UserKey&)>;
// nullopt: no answer is in memory, or a cached alias leads to an unknown address.
using Answer = std::optional<LookupResult>;

class SourceDirectory final : public Directory {
 public:
  SourceDirectory(std::unique_ptr<UserSource> source, DirectoryConfig config)
      : source_(std::move(source)), config_(std::move(config)) {}

  LookupResult lookup(const LookupRequest& request) override {
    auto find = [this](const UserKey& key) { return std::optional(source_->find(key)); };
    auto find_anew = [this](const UserKey& key) { return std::optional(source_->find_anew(key)); };
    return resolve_surely(request, find, find_anew);
  }
  std::optional<LookupResult> lookup_now(const LookupRequest& request) override {
    return resolve(request, [this](const UserKey& key) { return source_->find_now(key); });
  }
  LookupResult explain(const LookupRequest& request, std::vector<LookupStep>& steps) override {
    auto find = [&](const UserKey& key) {
      FindResult found = source_->find_anew(key);
      steps.push_back({key.address(), describe(found)});
      return std::optional(std::move(found));
    };
    return resolve_surely(request, find, find);
  }

 private:
  static std::string describe(const FindResult& found) {
    if (!found) return "error: " + found.error().message;
    if (!*found) return "not there";
    const Alias* alias = std::get_if<Alias>(&**found);
    return alias ? "an alias of " + alias->address : "user " + std::get<User>(**found).name;
  }

  struct Candidate {
    UserKey key;
    std::string detail;  // the detail if this key is found
  };
  // A table may have an internationalised domain in either form.
  std::vector<Candidate> candidates(const LookupRequest& a) const {
    std::vector<Candidate> out;
    const std::string unicode = unicode_domain(a.domain);
    auto add = [&](const std::string& local_part, const std::string& detail) {
      out.push_back({{local_part, a.domain}, detail});
      if (unicode != a.domain) out.push_back({{local_part, unicode}, detail});
    };
    if (config_.detail_first && !a.detail.empty())
      add(a.local_part + config_.detail_delimiter + ascii_lower(a.detail), "");
    add(a.local_part, a.detail);
    if (config_.catch_all && !a.domain.empty()) add("", a.detail);
    return out;
  }

  // The alias is an address as in RCPT, without other text.
  Result<LookupRequest> follow(const Alias& alias, const std::string& detail) const {
    auto path = parse_address(alias.address);
    if (!path) return fail(Errc::invalid, "the alias {}", path.error().message);
    SplitLocalPart split = split_detail(path->local_part, config_.detail_delimiter);
    return LookupRequest{ascii_lower(split.user), split.detail.empty() ? detail : std::string(split.detail),
                         ascii_lower(path->domain)};
  }

  LookupResult resolve_surely(const LookupRequest& request, const Find& find, const Find& find_anew) const {
    Answer found = resolve(request, find);
    if (!found) found = resolve(request, find_anew);
    return found ? std::move(*found) : fail(Errc::unavailable, "a cached alias leads to an unknown address");
  }

  Answer resolve(const LookupRequest& request, const Find& find) const {
    LookupRequest at{ascii_lower(request.local_part), request.detail, ascii_lower(request.domain)};
    bool is_old = false, by_memory = false;
    for (int hop = 0; hop <= aliases_max; ++hop) {
      std::optional<UserEntry> entry;
      for (Candidate& c : candidates(at)) {
        std::optional<FindResult> found = find(c.key);
        if (!found) return std::nullopt;
        if (!*found) return LookupResult(std::unexpected(found->error()));
        if (!**found) continue;
        entry = std::move(**found);
        at.detail = std::move(c.detail);
        break;
      }
      // The target of a cached alias may have been renamed, and the alias changed.
      if (!entry && is_old)
        return LookupResult(fail(Errc::unavailable, "a cached alias leads to an unknown address"));
      if (!entry && by_memory) return std::nullopt;
      if (!entry) return LookupResult(std::nullopt);
      if (User* user = std::get_if<User>(&*entry)) {
        user->is_old = user->is_old || is_old;
        return LookupResult(resolved(std::move(*user), request, at));
      }
      is_old = is_old || std::get<Alias>(*entry).is_old;
      by_memory = by_memory || std::get<Alias>(*entry).from_memory;
      auto next = follow(std::get<Alias>(*entry), at.detail);
      if (!next) return LookupResult(std::unexpected(next.error()));
      at = std::move(*next);
    }
    return LookupResult(fail(Errc::invalid, "more than {} aliases in a chain: a loop", aliases_max));
  }

  static Resolved resolved(User user, const LookupRequest& asked, const LookupRequest& found) {
    Resolved out{std::move(user)};
    if (found.detail != asked.detail) out.detail = found.detail;
    return out;
  }

  std::unique_ptr<UserSource> source_;
  const DirectoryConfig config_;
};

}  // namespace

std::unique_ptr<Directory> make_directory(std::unique_ptr<UserSource> source, DirectoryConfig config,
                                          const Clock& clock) {
  const CacheConfig& c = config.cache;
  if (c.positive.count() > 0 || c.negative.count() > 0 || c.stale.count() > 0)
    source = std::make_unique<CachedSource>(std::move(source), c, clock);
  return std::make_unique<SourceDirectory>(std::move(source), std::move(config));
}

}  // namespace twinloft::lmtpd
