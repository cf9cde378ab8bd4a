#include "twinloft/lmtpd/userdb/static_db.h"

#include <algorithm>

#include "fold.h"
#include "row.h"
#include "twinloft/lmtpd/userdb/check.h"

namespace twinloft::lmtpd {

namespace {

class StaticDb final : public UserSource {
 public:
  StaticDb(StaticDbConfig config, RowReader reader)
      : config_(std::move(config)), reader_(std::move(reader)) {}

  FindResult find(const UserKey& key) override {
    if (!exists(key)) return std::nullopt;
    return reader_.read(key, Row{});
  }
  std::optional<FindResult> find_now(const UserKey& key) override { return find(key); }

 private:
  bool exists(const UserKey& key) const {
    bool needs_domain = reader_.uses_domain() || !config_.domains.empty();
    if (!fits_path(key.local_part) || !(key.domain.empty() ? !needs_domain : fits_path(key.domain)))
      return false;
    auto listed = [](const std::vector<std::string>& list, const std::string& value) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    const auto* users = std::get_if<LocalParts>(&config_.users);
    return (config_.domains.empty() || listed(config_.domains, key.domain)) &&
           (!users || listed(*users, key.local_part));
  }

  StaticDbConfig config_;
  RowReader reader_;
};

}  // namespace

Result<std::unique_ptr<UserSource>> make_static_db(StaticDbConfig config) {
  TL_TRY(normalise_domains(config.domains));
  if (auto* users = std::get_if<LocalParts>(&config.users))
    for (std::string& user : *users) user = ascii_lower(user);
  TL_TRY_ASSIGN(RowReader reader, RowReader::create(config.defaults));
  if (auto column = reader.missing({}))
    return fail(Errc::invalid, "users.{} is missing, or 0: mail is never delivered as root",
                column_names[static_cast<std::size_t>(*column)]);
  return std::make_unique<StaticDb>(std::move(config), std::move(reader));
}

}  // namespace twinloft::lmtpd
