#include "twinloft/lmtpd/userdb/passwd_file_db.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "fold.h"
#include "passwd_line.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/utf8.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t file_bytes_max = std::size_t{4} << 30;
// For this time after a change of the file, an unknown user is a temporary error.
constexpr std::int64_t settling_seconds = 2;
constexpr Duration look_pause = std::chrono::seconds(1);

struct Version {
  dev_t device = 0;
  ino_t inode = 0;
  off_t bytes = 0;
  timespec changed{}, status_changed{};
  static bool same(const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
  }
  bool operator==(const Version& o) const {
    return device == o.device && inode == o.inode && bytes == o.bytes && same(changed, o.changed) &&
           same(status_changed, o.status_changed);
  }
};

Result<Version> version_of(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return fail_errno(errno, "user database {}", path);
  return Version{about.st_dev, about.st_ino, about.st_size, about.st_mtim, about.st_ctim};
}

// The content of one version of the file. Immutable.
struct Contents {
  struct Line {
    std::string_view text;
    std::size_t number;
    std::size_t again = 0;  // number of another line of the same user; 0: none
    bool ends = true;       // the line ends with LF
    bool exact = true;      // the name is in its normal form
  };
  Version version;
  std::string text;
  std::deque<std::string> forms;                     // normal forms of the other names
  std::unordered_map<std::string_view, Line> users;  // by the normal form of their names
  void add(std::string_view name, Line line);
};

// If two names differ only in their form, the name in normal form counts, as in Dovecot.
void Contents::add(std::string_view name, Line line) {
  std::string form = normal_name(name);
  line.exact = form == name;
  if (!line.exact) name = forms.emplace_back(std::move(form));
  auto [known, first] = users.try_emplace(name, line);
  if (first) return;
  if (known->second.exact == line.exact)
    known->second.again = line.number;
  else if (line.exact)
    known->second = line;
}

Result<std::shared_ptr<const Contents>> load(const std::string& path) {
  auto out = std::make_shared<Contents>();
  TL_TRY_ASSIGN(out->version, version_of(path));
  auto text = read_file(path, file_bytes_max);
  if (!text) return fail(text.error().code, "user database {}", text.error().message);
  TL_TRY_ASSIGN(Version after, version_of(path));
  if (!(after == out->version))
    return fail(Errc::conflict, "user database {}: changed while it was read", path);
  out->text = std::move(*text);
  std::size_t number = 0;
  for (std::string_view rest = out->text; !rest.empty();) {
    std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    bool ends = end < rest.size();
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    std::string_view name = name_in_passwd_line(line);
    if (name.empty()) continue;
    out->add(name, {line, number, 0, ends, true});
  }
  if (out->users.empty()) return fail(Errc::unavailable, "user database {}: has no user", path);
  return out;
}

// Variables use the name as written in the file, because Dovecot uses this name too. An internationalised
// domain in U-labels stays in U-labels in paths.
UserKey as_written(const UserKey& key, std::string_view name) {
  std::size_t at = name.rfind('@');
  if (at == std::string_view::npos) return key;
  std::string_view written = name.substr(at + 1);
  auto domain = normal_domain(written), asked = normal_domain(key.domain);
  if (!domain || !asked || *domain != *asked || ascii_lower(name.substr(0, at)) != key.local_part) return key;
  return {key.local_part, is_ascii(written) ? *domain : unicode_domain(*domain)};
}

class PasswdFile final : public UserSource {
 public:
  PasswdFile(PasswdFileConfig config, PathTemplate key, RowReader reader, const Clock& clock)
      : config_(std::move(config)), key_(std::move(key)), reader_(std::move(reader)), clock_(clock) {}

  Status check() {
    TL_TRY_ASSIGN([[maybe_unused]] auto first, current());
    return {};
  }

  FindResult find(const UserKey& key) override {
    TL_TRY_ASSIGN(std::shared_ptr<const Contents> contents, current());
    return find_in(*contents, key);
  }
  // From memory, if the file was checked a moment ago.
  std::optional<FindResult> find_now(const UserKey& key) override {
    std::shared_ptr<const Contents> contents;
    {
      std::lock_guard lock(mutex_);
      if (!contents_ || clock_.now() - looked_at_ >= look_pause) return std::nullopt;
      contents = contents_;
    }
    return find_in(*contents, key);
  }

  // A name without a domain is checked with an existing domain.
  Status each_row(const std::function<void(const SeenRow&)>& see) override {
    TL_TRY_ASSIGN(std::shared_ptr<const Contents> contents, current());
    std::vector<std::pair<std::string_view, const Contents::Line*>> lines;
    for (const auto& [name, line] : contents->users) lines.emplace_back(name, &line);
    std::ranges::sort(lines, {}, [](const auto& l) { return l.second->number; });
    for (const auto& [name, line] : lines) {
      std::size_t at = name.rfind('@');
      UserKey key{std::string(name.substr(0, at)),
                  at == std::string_view::npos ? "example.org" : std::string(name.substr(at + 1))};
      SeenRow row;
      row.where = fmt::format("{}:{}", config_.path, line->number);
      row.found = at == std::string_view::npos || normal_domain(key.domain)
                      ? read(*line, name, key, row.not_known)
                      : fail(Errc::invalid, "{}: user {}: no mail can reach this name: {}", row.where, name,
                             normal_domain(key.domain).error().message);
      see(row);
    }
    return {};
  }

 private:
  Result<std::shared_ptr<const Contents>> current() {
    TL_TRY_ASSIGN(Version now, version_of(config_.path));
    if (auto known = known_as(now)) return known;
    std::lock_guard loading(loading_);  // only one thread loads the file
    if (auto known = known_as(now)) return known;
    TL_TRY_ASSIGN(std::shared_ptr<const Contents> fresh, load(config_.path));
    std::lock_guard lock(mutex_);
    looked_at_ = clock_.now();
    return contents_ = std::move(fresh);
  }
  std::shared_ptr<const Contents> known_as(const Version& version) {
    std::lock_guard lock(mutex_);
    if (!contents_ || !(contents_->version == version)) return nullptr;
    looked_at_ = clock_.now();
    return contents_;
  }

  FindResult find_in(const Contents& contents, const UserKey& key) const {
    std::string name = key_.expand({key.local_part, key.domain, {}, {}});
    if (key.domain.empty() && name.ends_with('@')) name.pop_back();
    name = normal_name(name);
    auto found = contents.users.find(name);
    if (found == contents.users.end()) {
      std::int64_t age = clock_.wall().seconds - contents.version.changed.tv_sec;
      if (age < 0 || age >= settling_seconds) return std::nullopt;
      return fail(Errc::conflict, "user database {}: changed a moment ago, and may be incomplete",
                  config_.path);
    }
    std::vector<std::string> not_known;
    return read(found->second, name, key, not_known);
  }

  FindResult read(const Contents::Line& line, std::string_view name, const UserKey& key,
                  std::vector<std::string>& not_known) const {
    auto wrong = [&](Errc code, std::string_view what) {
      return fail(code, "{}:{}: user {}: {}", config_.path, line.number, name, what);
    };
    if (!line.ends) return wrong(Errc::conflict, "the line has no end, and may be half written");
    if (line.again != 0) return wrong(Errc::invalid, fmt::format("is also in line {}", line.again));
    const UserKey written = as_written(key, name_in_passwd_line(line.text));
    auto row = parse_passwd_line(line.text, written);
    if (!row) return wrong(Errc::invalid, row.error().message);
    not_known = row->not_known;
    auto entry = reader_.read(written, *row);
    if (!entry) return wrong(Errc::invalid, entry.error().message);
    return std::move(*entry);
  }

  const PasswdFileConfig config_;
  const PathTemplate key_;
  const RowReader reader_;
  const Clock& clock_;
  std::mutex loading_;
  std::mutex mutex_;
  std::shared_ptr<const Contents> contents_;
  Instant looked_at_;
};

}  // namespace

Result<std::unique_ptr<UserSource>> open_passwd_file(PasswdFileConfig config, const Clock& clock) {
  TL_TRY_ASSIGN(PathTemplate key, PathTemplate::parse("users.key", config.key, PathTemplate::Part::domain));
  TL_TRY_ASSIGN(RowReader reader, RowReader::create(config.defaults));
  auto db = std::make_unique<PasswdFile>(std::move(config), std::move(key), std::move(reader), clock);
  TL_TRY(db->check());
  return db;
}

}  // namespace twinloft::lmtpd
