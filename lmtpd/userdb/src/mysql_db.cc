#include "twinloft/lmtpd/userdb/mysql_db.h"

#include <charconv>
#include <condition_variable>
#include <list>
#include <mutex>

#include "mysql_connection.h"
#include "mysql_hosts.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

class MysqlDb final : public UserSource {
 public:
  MysqlDb(MysqlDbConfig config, NamedQuery query, RowReader reader, const Clock& clock)
      : config_(std::move(config)),
        query_(std::move(query)),
        reader_(std::move(reader)),
        clock_(clock),
        hosts_(config_.hosts, clock) {}

  Status check() {
    Slot slot(*this);
    TL_TRY_ASSIGN(Open open, connect());
    give_back(std::move(open));
    return {};
  }

  // An idle connection may have ended long ago: then a new connection is made. If a host does not answer, the
  // next host is tried.
  FindResult find(const UserKey& key) override {
    Slot slot(*this);
    bool may_have_ended = true;
    for (std::size_t tries = 0;; ++tries) {
      std::optional<Open> open;
      if (may_have_ended) open = take_idle();
      bool waited = open.has_value();
      if (!waited) {
        auto opened = connect();
        // The query was correct at the start, so the database was changed.
        if (!opened) return fail(Errc::unavailable, "{}", opened.error().message);
        open = std::move(*opened);
      }
      Instant begun = clock_.now();
      FindResult found = open->connection->find(key);
      if (found || open->connection->good()) {
        hosts_.answered(open->host);
        give_back(std::move(*open));
        return found;
      }
      bool at_once = clock_.now() - begun < config_.query_timeout / 2;
      if (waited && at_once) {
        may_have_ended = false;
        continue;
      }
      if (!open->connection->lost() || tries > hosts_.size()) return found;
      hosts_.failed(open->host, found.error().message);
      forget(open->host);
    }
  }

 private:
  struct Open {
    std::unique_ptr<MysqlConnection> connection;
    std::size_t host;
    Instant since, used;
  };
  // A slot of connections_max.
  struct Slot {
    explicit Slot(MysqlDb& d) : db(d) {
      std::unique_lock lock(db.mutex_);
      db.free_.wait(lock, [this] { return db.in_use_ < db.config_.connections_max; });
      ++db.in_use_;
    }
    ~Slot() {
      {
        std::lock_guard lock(db.mutex_);
        --db.in_use_;
      }
      db.free_.notify_one();
    }
    MysqlDb& db;
  };

  // Takes the most recently used connection. Connections that are too old, or whose host does not answer, are
  // closed without the lock.
  std::optional<Open> take_idle() {
    std::list<Open> old;
    std::lock_guard lock(mutex_);
    Instant now = clock_.now();
    while (!idle_.empty()) {
      std::list<Open> last;
      last.splice(last.begin(), idle_, std::prev(idle_.end()));
      Open& open = last.front();
      if (may_use_again(open.host, now - open.since, now - open.used) && hosts_.may_try(open.host))
        return std::move(open);
      old.splice(old.end(), last);
    }
    return std::nullopt;
  }
  void give_back(Open open) {
    open.used = clock_.now();
    std::lock_guard lock(mutex_);
    if (open.connection->good()) idle_.push_back(std::move(open));
  }
  // Closes all connections to a host that does not answer.
  void forget(std::size_t host) {
    std::list<Open> gone;
    std::lock_guard lock(mutex_);
    for (auto i = idle_.begin(); i != idle_.end();) {
      auto next = std::next(i);
      if (i->host == host) gone.splice(gone.end(), idle_, i);
      i = next;
    }
  }

  // Errors: Errc::invalid if every host that may be tried refuses.
  Result<Open> connect() {
    Error all{Errc::invalid, {}, 0};
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (!hosts_.may_try(i)) continue;
      auto connection = MysqlConnection::open(config_, hosts_[i], query_, reader_);
      if (connection) {
        hosts_.answered(i);
        return Open{std::move(*connection), i, clock_.now(), clock_.now()};
      }
      hosts_.failed(i, connection.error().message);
      if (connection.error().code != Errc::invalid) all.code = Errc::unavailable;
      all.message += (all.message.empty() ? "" : "; ") + connection.error().message;
    }
    if (all.message.empty())
      all.code = Errc::unavailable,
      all.message = "user database " + config_.database +
                    ": no server answered a moment ago; the next attempt is soon";
    return std::unexpected(std::move(all));
  }

  const MysqlDbConfig config_;
  const NamedQuery query_;
  const RowReader reader_;
  const Clock& clock_;
  MysqlHosts hosts_;
  std::mutex mutex_;
  std::condition_variable free_;
  std::list<Open> idle_;
  std::size_t in_use_ = 0;
};

}  // namespace

Result<MysqlHost> parse_mysql_host(const std::string& text) {
  MysqlHost out{text, {}, 3306, {}};
  if (text.starts_with("unix:")) {
    out.socket = text.substr(5);
    if (!out.socket.starts_with('/'))
      return fail(Errc::invalid, "\"{}\": expected an absolute path after \"unix:\"", text);
    return out;
  }
  std::size_t bracket = text.starts_with('[') ? text.find(']') : std::string::npos;
  std::size_t colon = text.find(':', bracket == std::string::npos ? 0 : bracket);
  out.host = bracket == std::string::npos ? text.substr(0, colon) : text.substr(1, bracket - 1);
  if (colon != std::string::npos) {
    auto [end, code] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), out.port);
    if (code != std::errc() || end != text.data() + text.size() || out.port == 0)
      return fail(
          Errc::invalid,
          "\"{}\": expected a port from 1 to 65535 after the colon; an IPv6 address stands in brackets",
          text);
  }
  if (out.host.empty() ||
      (bracket != std::string::npos && colon == std::string::npos && bracket + 1 != text.size()))
    return fail(
        Errc::invalid,
        "\"{}\": expected \"db.example.org\", \"192.0.2.1:3306\", \"[2001:db8::1]:3306\" or \"unix:/path\"",
        text);
  return out;
}

Result<std::unique_ptr<UserSource>> open_mysql_db(MysqlDbConfig config, const Clock& clock) {
  if (config.hosts.empty()) return fail(Errc::invalid, "users.hosts is empty");
  if (mysql_library_init(0, nullptr, nullptr) != 0)
    return fail(Errc::internal, "the client library of MariaDB does not start");
  auto query = parse_named_query(config.query);
  if (!query) return fail(Errc::invalid, "users.query: {}", query.error().message);
  TL_TRY_ASSIGN(RowReader reader, RowReader::create(config.defaults));
  auto db = std::make_unique<MysqlDb>(std::move(config), std::move(*query), std::move(reader), clock);
  Status checked = db->check();
  if (!checked && checked.error().code == Errc::invalid) return std::unexpected(checked.error());
  if (!checked) log_warning("user database: no server answers; until one does, recipients get 451");
  return db;
}

}  // namespace twinloft::lmtpd
