#include "twinloft/lmtpd/userdb/sqlite_db.h"

#include <condition_variable>
#include <mutex>
#include <vector>

#include "sqlite_connection.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

// A pool of connections. A look-up takes an idle connection, opens a new one if the limit allows, or waits.
class SqliteDb final : public UserSource {
 public:
  SqliteDb(SqliteDbConfig config, RowReader reader)
      : config_(std::move(config)), reader_(std::move(reader)) {}

  Status check() {
    TL_TRY_ASSIGN(std::unique_ptr<SqliteConnection> first, take());
    give_back(std::move(first), true);
    return {};
  }

  FindResult find(const UserKey& key) override {
    auto taken = take();
    // The query was correct at the start, so the database was changed.
    if (!taken) return fail(Errc::unavailable, "{}", taken.error().message);
    std::unique_ptr<SqliteConnection> connection = std::move(*taken);
    auto found = connection->find(key);
    give_back(std::move(connection), found.has_value());
    return found;
  }

 private:
  Result<std::unique_ptr<SqliteConnection>> take() {
    TL_TRY_ASSIGN(FileIdentity now, identity_of(config_.path));
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !idle_.empty() || open_ < config_.connections_max; });
      while (!idle_.empty()) {
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        if (connection->identity() == now) return connection;
        --open_;  // the file was replaced, and this connection reads the old file
      }
      ++open_;
    }
    auto opened = SqliteConnection::open(config_, reader_, seen_);
    if (!opened) give_back(nullptr, false);
    return opened;
  }

  // A failed connection is not used again, since its fault may be permanent.
  void give_back(std::unique_ptr<SqliteConnection> connection, bool usable) {
    {
      std::lock_guard lock(mutex_);
      if (usable)
        idle_.push_back(std::move(connection));
      else
        --open_;
    }
    changed_.notify_one();
  }

  const SqliteDbConfig config_;
  const RowReader reader_;
  SeenColumns seen_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<SqliteConnection>> idle_;
  std::size_t open_ = 0;
};

}  // namespace

Result<std::unique_ptr<UserSource>> open_sqlite_db(SqliteDbConfig config) {
  if (config.connections_max == 0)
    return fail(Errc::invalid, "userdb: the number of connections must be above 0");
  TL_TRY_ASSIGN(RowReader reader, RowReader::create(config.defaults));
  auto db = std::make_unique<SqliteDb>(std::move(config), std::move(reader));
  Status checked = db->check();
  if (!checked && checked.error().code != Errc::unavailable) return std::unexpected(checked.error());
  if (!checked) log_warning("{}; until it can be used, recipients get 451", checked.error().message);
  return db;
}

}  // namespace twinloft::lmtpd
