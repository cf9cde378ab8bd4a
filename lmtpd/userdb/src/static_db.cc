#include "twinloft/lmtpd/userdb/static_db.h"

#include <algorithm>

#include "fold.h"
#include "twinloft/lmtpd/userdb/check.h"

namespace twinloft::lmtpd {

namespace {

class PathTemplate {
 public:
  struct Values {
    std::string user;
    std::string domain;
    std::string name;
  };

  static Result<PathTemplate> parse(const char* field, std::string_view text, bool may_use_name) {
    PathTemplate out;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t percent = std::min(text.find('%', at), text.size());
      if (percent > at) out.parts_.push_back({Part::literal, std::string(text.substr(at, percent - at))});
      if (percent == text.size()) break;
      std::size_t end = text.find('%', percent + 1);
      if (end == std::string_view::npos)
        return fail(Errc::invalid, "{}: column {}: a lone \"%\"; write \"%%\" for a percent sign", field,
                    percent + 1);
      TL_TRY(out.add_macro(field, text.substr(percent + 1, end - percent - 1), percent + 1, may_use_name));
      at = end + 1;
    }
    return out;
  }

  std::string expand(const Values& values) const {
    std::string out;
    for (const auto& [kind, text] : parts_) {
      switch (kind) {
        case Part::literal:
          out += text;
          break;
        case Part::user:
          out += values.user;
          break;
        case Part::domain:
          out += values.domain;
          break;
        case Part::name:
          out += values.name;
          break;
      }
    }
    return out;
  }
  bool uses_domain() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const auto& p) { return p.first == Part::domain; });
  }

 private:
  enum class Part { literal, user, domain, name };

  Status add_macro(const char* field, std::string_view macro, std::size_t column, bool may_use_name) {
    if (macro.empty())
      parts_.push_back({Part::literal, "%"});
    else if (macro == "user")
      parts_.push_back({Part::user, {}});
    else if (macro == "domain")
      parts_.push_back({Part::domain, {}});
    else if (macro == "name" && may_use_name)
      parts_.push_back({Part::name, {}});
    else
      return fail(Errc::invalid, "{}: column {}: unknown macro %{}%; known are %user%, %domain%{}", field,
                  column, macro, may_use_name ? " and %name%" : "");
    return {};
  }

  std::vector<std::pair<Part, std::string>> parts_;
};

class StaticDb final : public UserDb {
 public:
  StaticDb(StaticDbConfig config, PathTemplate name, PathTemplate home, PathTemplate maildir)
      : config_(std::move(config)),
        name_(std::move(name)),
        home_(std::move(home)),
        maildir_(std::move(maildir)) {}

  Result<std::optional<User>> lookup(const std::string& local_part, const std::string& domain) override {
    PathTemplate::Values values{ascii_lower(local_part), ascii_lower(domain), {}};
    if (!exists(values)) return std::nullopt;
    values.name = name_.expand(values);
    // An address without domain: "%user%@%domain%" is the user's name alone.
    if (values.domain.empty() && values.name.ends_with('@')) values.name.pop_back();
    User user;
    user.name = values.name;
    user.uid = config_.uid;
    user.gid = config_.gid;
    user.home = home_.expand(values);
    user.maildir = maildir_.expand(values);
    user.agent = config_.agent;
    TL_TRY(check_user(user));
    return user;
  }

 private:
  bool exists(const PathTemplate::Values& values) const {
    bool needs_domain = home_.uses_domain() || maildir_.uses_domain() || !config_.domains.empty();
    if (!fits_path(values.user) || !(values.domain.empty() ? !needs_domain : fits_path(values.domain)))
      return false;
    auto listed = [](const std::vector<std::string>& list, const std::string& value) {
      return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
    };
    return listed(config_.domains, values.domain) && listed(config_.users, values.user);
  }

  StaticDbConfig config_;
  PathTemplate name_;
  PathTemplate home_;
  PathTemplate maildir_;
};

}  // namespace

Result<std::unique_ptr<UserDb>> make_static_db(StaticDbConfig config) {
  TL_TRY_ASSIGN(PathTemplate name, PathTemplate::parse("userdb.name", config.name, false));
  TL_TRY_ASSIGN(PathTemplate home, PathTemplate::parse("userdb.home", config.home, true));
  TL_TRY_ASSIGN(PathTemplate maildir, PathTemplate::parse("userdb.maildir", config.maildir, true));
  for (std::string& domain : config.domains) domain = ascii_lower(domain);
  for (std::string& user : config.users) user = ascii_lower(user);
  // A trial user shows what every user would stumble over.
  User trial;
  trial.name = "a user";
  trial.uid = config.uid;
  trial.gid = config.gid;
  trial.home = home.expand({"user", "example.org", "user"});
  trial.maildir = maildir.expand({"user", "example.org", "user"});
  trial.agent = config.agent;
  if (Status checked = check_user(trial); !checked)
    return fail(Errc::invalid, "userdb static: {}", checked.error().message);
  return std::make_unique<StaticDb>(std::move(config), std::move(name), std::move(home), std::move(maildir));
}

}  // namespace twinloft::lmtpd
