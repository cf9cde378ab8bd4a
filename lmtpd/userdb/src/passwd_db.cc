#include "twinloft/lmtpd/userdb/passwd_db.h"

#include <pwd.h>

#include <algorithm>
#include <cerrno>

#include "fold.h"
#include "row.h"
#include "twinloft/lmtpd/userdb/check.h"

namespace twinloft::lmtpd {

namespace {

class PasswdDb final : public UserSource {
 public:
  PasswdDb(PasswdDbConfig config, RowReader reader)
      : config_(std::move(config)), reader_(std::move(reader)) {}

  FindResult find(const UserKey& key) override {
    const auto& domains = config_.domains;
    if (!domains.empty() && std::find(domains.begin(), domains.end(), key.domain) == domains.end())
      return std::nullopt;
    // A name that no account can have is not looked up, since it might name another file than /etc/passwd.
    if (!fits_path(key.local_part) || key.local_part.find(':') != std::string::npos) return std::nullopt;
    std::vector<char> buffer(first_buffer_bytes);
    passwd entry{};
    passwd* found = nullptr;
    int error;
    while ((error = ::getpwnam_r(key.local_part.c_str(), &entry, buffer.data(), buffer.size(), &found)) ==
               ERANGE &&
           buffer.size() < buffer_bytes_max)
      buffer.resize(buffer.size() * 4);
    if (error != 0) return fail_errno(error, "getpwnam of {}", key.local_part);
    if (!found || entry.pw_uid < config_.uid_min) return std::nullopt;
    return read(key, entry);
  }

 private:
  static constexpr std::size_t first_buffer_bytes = 4096, buffer_bytes_max = 1u << 20;

  FindResult read(const UserKey& key, const passwd& entry) const {
    Row row;
    row[Column::user] = entry.pw_name;
    row[Column::uid] = std::to_string(entry.pw_uid);
    row[Column::gid] = std::to_string(entry.pw_gid);
    row[Column::home] = entry.pw_dir;
    auto user = reader_.read(key, row);
    if (!user) return fail(Errc::invalid, "account {}: {}", key.local_part, user.error().message);
    return std::move(*user);
  }

  const PasswdDbConfig config_;
  const RowReader reader_;
};

}  // namespace

Result<std::unique_ptr<UserSource>> make_passwd_db(PasswdDbConfig config) {
  TL_TRY(normalise_domains(config.domains));
  TL_TRY_ASSIGN(RowReader reader, RowReader::create(config.defaults));
  return std::make_unique<PasswdDb>(std::move(config), std::move(reader));
}

}  // namespace twinloft::lmtpd
