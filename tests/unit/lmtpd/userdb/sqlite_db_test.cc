// SQLite users: the schema of conf/sqlite, hostile values, and every way in which the database cannot say.
#include "twinloft/lmtpd/userdb/sqlite_db.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

namespace twinloft::lmtpd {
namespace {

class SqliteTest : public ::testing::Test {
 protected:
  SqliteTest() {
    const char* base = std::getenv("TMPDIR");
    std::string name = std::string(base && *base ? base : "/tmp") + "/twinloft-userdb-XXXXXX";
    if (!::mkdtemp(name.data())) std::abort();
    dir_ = name;
    config_.path = dir_ + "/users.sqlite";
    config_.busy_timeout = std::chrono::milliseconds(50);
    execute(config_.path, read_file(SCHEMA, 100'000).value());
    insert("'ann@example.org', 5000, 5001, '/srv/ann', '/srv/ann/Maildir', 'dovecot', 1");
    insert("'bob@example.org', 5000, 5001, '/srv/bob', NULL, NULL, 1");
    insert("'eve@example.org', 5000, 5001, '/srv/eve', NULL, NULL, 0");
  }
  ~SqliteTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  static void execute(const std::string& path, const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << (error ? error : "");
    sqlite3_free(error);
    sqlite3_close(db);
  }
  void insert(const std::string& values) {
    execute(config_.path, "INSERT INTO users VALUES (" + values + ")");
  }
  std::unique_ptr<UserDb> open() {
    auto db = open_sqlite_db(config_);
    EXPECT_TRUE(db.has_value()) << db.error().message;
    return db ? std::move(*db) : nullptr;
  }
  // The message of the error that opening with this query gives.
  std::string open_error(const std::string& query) {
    config_.query = query;
    auto db = open_sqlite_db(config_);
    return db ? std::string() : db.error().message;
  }
  // The error that a row with these values gives at look-up.
  std::string row_error(const std::string& columns) {
    config_.query = "SELECT " + columns + " WHERE :user <> ''";
    auto found = open()->lookup("x", "");
    return found ? std::string() : found.error().message;
  }

  std::string dir_;
  SqliteDbConfig config_;
};

TEST_F(SqliteTest, FindsUsersOfTheSchema) {
  auto db = open();
  auto ann = db->lookup("Ann", "Example.org").value();
  ASSERT_TRUE(ann.has_value());
  EXPECT_EQ(ann->name, "ann@example.org");
  EXPECT_EQ(ann->uid, 5000u);
  EXPECT_EQ(ann->gid, 5001u);
  EXPECT_EQ(ann->home, "/srv/ann");
  EXPECT_EQ(ann->maildir, "/srv/ann/Maildir");
  EXPECT_EQ(ann->agent, "dovecot");
  auto bob = db->lookup("bob", "example.org").value();
  ASSERT_TRUE(bob.has_value());
  EXPECT_EQ(bob->maildir, "");
  EXPECT_EQ(bob->agent, "");
  EXPECT_FALSE(db->lookup("eve", "example.org").value().has_value());  // not active
  EXPECT_FALSE(db->lookup("ann", "").value().has_value());
}

TEST_F(SqliteTest, ValuesAreNeverSql) {
  auto db = open();
  for (const char* hostile : {"' OR 1=1 --", "\\' OR 1=1 --", "x'; DROP TABLE users; --", "%",
                              "\xbf' OR 1=1 --", "*", "ann@example.org\n", "\""})
    EXPECT_FALSE(db->lookup(hostile, "example.org").value().has_value()) << hostile;
  EXPECT_FALSE(db->lookup(std::string("ann\0", 4), "example.org").value().has_value());
  EXPECT_TRUE(db->lookup("ann", "example.org").value().has_value());
}

TEST_F(SqliteTest, ColumnsMayHaveAnyOrderAndParametersAnyUse) {
  config_.query =
      "SELECT home, gid, uid, user FROM users WHERE user = :user || '@' || :domain AND :address = user LIMIT "
      "1";
  auto ann = open()->lookup("ann", "example.org").value();
  ASSERT_TRUE(ann.has_value());
  EXPECT_EQ(ann->uid, 5000u);
  EXPECT_EQ(ann->gid, 5001u);
}

TEST_F(SqliteTest, SaysWhatIsWrongWithAQuery) {
  EXPECT_NE(open_error("SELEC user").find("syntax error"), std::string::npos);
  EXPECT_NE(open_error("SELECT user FROM nobody WHERE user = :user").find("no such table: nobody"),
            std::string::npos);
  EXPECT_NE(open_error("SELECT user, uid, gid FROM users WHERE user = :user").find("no column \"home\""),
            std::string::npos);
  EXPECT_NE(
      open_error("SELECT user, uid, gid, home FROM users WHERE user = :name").find("unknown parameter :name"),
      std::string::npos);
  EXPECT_NE(open_error("SELECT user, uid, gid, home FROM users WHERE user = ?").find("unknown parameter"),
            std::string::npos);
  EXPECT_NE(open_error("SELECT user, uid, gid, home FROM users").find("none of"), std::string::npos);
  EXPECT_NE(open_error("DELETE FROM users WHERE user = :user").find("SELECT"), std::string::npos);
  EXPECT_NE(open_error("SELECT user, uid, gid, home FROM users WHERE user = :user; DELETE FROM users")
                .find("second"),
            std::string::npos);
  EXPECT_NE(open_error("").find("SELECT"), std::string::npos);
}

TEST_F(SqliteTest, WrongTypesAndValuesAreErrors) {
  EXPECT_NE(row_error("'a' AS user, '5' AS uid, 5 AS gid, '/h' AS home").find("\"uid\" is not an integer"),
            std::string::npos);
  EXPECT_NE(row_error("'a' AS user, 5 AS uid, NULL AS gid, '/h' AS home").find("\"gid\" is not an integer"),
            std::string::npos);
  EXPECT_NE(row_error("'a' AS user, 0 AS uid, 5 AS gid, '/h' AS home").find("\"uid\" is 0"),
            std::string::npos);
  EXPECT_NE(row_error("'a' AS user, 4294967296 AS uid, 5 AS gid, '/h' AS home"), "");
  EXPECT_NE(row_error("'a' AS user, 4294967295 AS uid, 5 AS gid, '/h' AS home"), "");
  EXPECT_NE(row_error("'a' AS user, -1 AS uid, 5 AS gid, '/h' AS home"), "");
  EXPECT_NE(row_error("NULL AS user, 5 AS uid, 5 AS gid, '/h' AS home").find("\"user\" is not text"),
            std::string::npos);
  EXPECT_NE(row_error("'a' AS user, 5 AS uid, 5 AS gid, 7 AS home").find("\"home\" is not text"),
            std::string::npos);
  EXPECT_NE(row_error("'a' AS user, 5 AS uid, 5 AS gid, '/srv/../etc' AS home").find(".."),
            std::string::npos);
  EXPECT_NE(row_error("'a' AS user, 5 AS uid, 5 AS gid, 'srv' AS home").find("absolute"), std::string::npos);
  EXPECT_NE(row_error("'a' AS user, 5 AS uid, 5 AS gid, CAST(x'2f6100' AS TEXT) AS home").find("control"),
            std::string::npos);
  EXPECT_EQ(row_error("'a' AS user, 5 AS uid, 5 AS gid, '/h' AS home"), "");
}

TEST_F(SqliteTest, MoreThanOneRowIsAnError) {
  config_.query = "SELECT user, uid, gid, home FROM users WHERE :user <> ''";
  EXPECT_FALSE(open()->lookup("ann", "").has_value());
}

TEST_F(SqliteTest, AMissingOrBrokenDatabaseIsAnErrorAndNeverNoUser) {
  config_.path = dir_ + "/nothing";
  EXPECT_NE(open_error(config_.query).find(dir_ + "/nothing"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(config_.path));  // and it was not created
  config_.path = SCHEMA;
  EXPECT_NE(open_error(config_.query).find("not a database"), std::string::npos);
}

TEST_F(SqliteTest, AnOutageIsAnErrorAndItsEndIsNoticed) {
  auto db = open();
  std::filesystem::rename(config_.path, config_.path + ".away");
  EXPECT_FALSE(db->lookup("ann", "example.org").has_value());
  std::filesystem::rename(config_.path + ".away", config_.path);
  EXPECT_TRUE(db->lookup("ann", "example.org").value().has_value());
}

TEST_F(SqliteTest, AReplacedFileIsOpenedAnew) {
  auto db = open();
  EXPECT_FALSE(db->lookup("new", "example.org").value().has_value());
  std::string copy = config_.path + ".new";
  std::filesystem::copy_file(config_.path, copy);
  execute(copy, "INSERT INTO users VALUES ('new@example.org', 1, 1, '/srv/new', NULL, NULL, 1)");
  std::filesystem::rename(copy, config_.path);
  EXPECT_TRUE(db->lookup("new", "example.org").value().has_value());
}

TEST_F(SqliteTest, ALockedDatabaseIsAnErrorUntilItIsFree) {
  auto db = open();
  sqlite3* writer = nullptr;
  ASSERT_EQ(sqlite3_open(config_.path.c_str(), &writer), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(writer, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_FALSE(db->lookup("ann", "example.org").has_value());
  sqlite3_exec(writer, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(writer);
  EXPECT_TRUE(db->lookup("ann", "example.org").value().has_value());
}

TEST_F(SqliteTest, AChangedSchemaIsAnErrorAtTheNextLookUp) {
  auto db = open();
  EXPECT_TRUE(db->lookup("ann", "example.org").value().has_value());
  execute(config_.path, "ALTER TABLE users RENAME TO people");
  EXPECT_FALSE(db->lookup("ann", "example.org").has_value());
  execute(config_.path, "ALTER TABLE people RENAME TO users");
  EXPECT_TRUE(db->lookup("ann", "example.org").value().has_value());
}

TEST_F(SqliteTest, ManyThreadsShareFewConnections) {
  config_.connections_max = 2;
  auto db = open();
  std::atomic<int> found{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) found += db->lookup("ann", "example.org").value().has_value();
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(found, 1600);
}

}  // namespace
}  // namespace twinloft::lmtpd
