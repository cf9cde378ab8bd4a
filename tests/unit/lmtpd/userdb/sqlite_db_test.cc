// SQLite users: the schema of conf/sqlite, hostile values, and every way in which the database cannot answer.
#include "twinloft/lmtpd/userdb/sqlite_db.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "../../support/temporary_directory.h"
#include "sources.h"
#include "twinloft/base/fd.h"

namespace twinloft::lmtpd {
namespace {

class SqliteTest : public ::testing::Test {
 protected:
  SqliteTest() {
    config_.path = dir_ / "users.sqlite";
    config_.busy_timeout = std::chrono::milliseconds(50);
    execute(config_.path, read_file(SCHEMA, 100'000).value());
    insert("'ann@example.org', 5000, 5001, '/srv/ann', '/srv/ann/Maildir', 'dovecot', 1");
    insert("'bob@example.org', 5000, 5001, '/srv/bob', NULL, NULL, 1");
    insert("'eve@example.org', 5000, 5001, '/srv/eve', NULL, NULL, 0");
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
    execute(config_.path,
            "INSERT INTO users (user, uid, gid, home, maildir, agent, active) VALUES (" + values + ")");
  }
  std::unique_ptr<UserSource> open() {
    auto db = open_sqlite_db(config_);
    EXPECT_TRUE(db.has_value()) << db.error().message;
    return db ? std::move(*db) : nullptr;
  }
  // The message of the error when a database is opened with this query.
  std::string open_error(const std::string& query) {
    config_.query = query;
    auto db = open_sqlite_db(config_);
    return db ? std::string() : db.error().message;
  }
  // The message of the error when a row with these values is looked up.
  std::string row_error(const std::string& columns) {
    config_.query = "SELECT " + columns + " WHERE :user <> ''";
    auto found = open()->find({"x", ""});
    return found ? std::string() : found.error().message;
  }

  TemporaryDirectory dir_;
  SqliteDbConfig config_;
};

TEST_F(SqliteTest, FindsUsersOfTheSchema) {
  auto db = open();
  auto ann = user_of(db->find({"ann", "example.org"}));
  ASSERT_TRUE(ann.has_value());
  EXPECT_EQ(ann->name, "ann@example.org");
  EXPECT_EQ(ann->uid, 5000u);
  EXPECT_EQ(ann->gid, 5001u);
  EXPECT_EQ(ann->home, "/srv/ann");
  EXPECT_EQ(ann->maildir, "/srv/ann/Maildir");
  EXPECT_EQ(ann->agent, "dovecot");
  auto bob = user_of(db->find({"bob", "example.org"}));
  ASSERT_TRUE(bob.has_value());
  EXPECT_EQ(bob->maildir, "");
  EXPECT_EQ(bob->agent, "");
  EXPECT_FALSE(db->find({"eve", "example.org"}).value().has_value());  // not active
  EXPECT_FALSE(db->find({"ann", ""}).value().has_value());
}

TEST_F(SqliteTest, ValuesAreNeverSql) {
  auto db = open();
  for (const char* hostile : {"' OR 1=1 --", "\\' OR 1=1 --", "x'; DROP TABLE users; --", "%",
                              "\xbf' OR 1=1 --", "*", "ann@example.org\n", "\""})
    EXPECT_FALSE(db->find({hostile, "example.org"}).value().has_value()) << hostile;
  EXPECT_FALSE(db->find({std::string("ann\0", 4), "example.org"}).value().has_value());
  EXPECT_TRUE(db->find({"ann", "example.org"}).value().has_value());
}

TEST_F(SqliteTest, ColumnsMayHaveAnyOrderAndParametersAnyUse) {
  config_.query =
      "SELECT home, gid, uid, user FROM users WHERE user = :user || '@' || :domain AND :address = user LIMIT "
      "1";
  auto ann = user_of(open()->find({"ann", "example.org"}));
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
  struct Case {
    const char *columns, *says;
  };
  for (const Case& c : std::vector<Case>{
           {"'a' AS user, '5x' AS uid, 5 AS gid, '/h' AS home", "\"uid\" is neither a number"},
           {"'a' AS user, '' AS uid, 5 AS gid, '/h' AS home", "\"uid\" is neither a number"},
           {"'a' AS user, 5.5 AS uid, 5 AS gid, '/h' AS home", "\"uid\" is neither text nor an integer"},
           {"'a' AS user, 5 AS uid, NULL AS gid, '/h' AS home",
            "\"gid\" has no value, and there is no users.gid"},
           {"'a' AS user, 0 AS uid, 5 AS gid, '/h' AS home", "\"uid\" is 0"},
           {"'a' AS user, 4294967296 AS uid, 5 AS gid, '/h' AS home", "\"uid\" is 4294967296"},
           {"'a' AS user, 4294967295 AS uid, 5 AS gid, '/h' AS home", "\"uid\" is 4294967295"},
           {"'a' AS user, '99999999999999999999' AS uid, 5 AS gid, '/h' AS home",
            "\"uid\" is 99999999999999999999"},
           {"'a' AS user, -1 AS uid, 5 AS gid, '/h' AS home", "\"uid\" is neither a number"},
           {"'' AS user, 5 AS uid, 5 AS gid, '/h' AS home", "a user name is empty"},
           {"'a' AS user, 5 AS uid, 5 AS gid, 7 AS home", "not an absolute path"},
           {"'a' AS user, 5 AS uid, 5 AS gid, NULL AS home",
            "\"home\" has no value, and there is no users.home"},
           {"'a' AS user, 5 AS uid, 5 AS gid, x'2f' AS home", "\"home\" is neither"},
           {"'a' AS user, 5 AS uid, 5 AS gid, '/srv/../etc' AS home", ".."},
           {"'a' AS user, 5 AS uid, 5 AS gid, 'srv' AS home", "absolute"},
           {"'a' AS user, 5 AS uid, 5 AS gid, '/h' AS home, 'off' AS state", "\"state\" is \"off\""},
           {"'a' AS user, 5 AS uid, 5 AS gid, CAST(x'2f6100' AS TEXT) AS home", "control"}}) {
    std::string error = row_error(c.columns);
    EXPECT_NE(error.find(c.says), std::string::npos) << c.columns << ": " << error;
    EXPECT_NE(error.find("the row of x"), std::string::npos) << error;
    EXPECT_NE(error.find("the query is: SELECT"), std::string::npos) << error;
  }
  EXPECT_EQ(row_error("'a' AS user, 5 AS uid, '5' AS gid, '/h' AS home"), "");
}

TEST_F(SqliteTest, WhatAQueryDoesNotYieldIsTakenFromTheDefaults) {
  config_.query = "SELECT 7 AS uid, NULL AS maildir, 'lda' AS agent WHERE :user = 'ann'";
  EXPECT_NE(open_error(config_.query).find("no column \"gid\""), std::string::npos);
  config_.defaults = {"%user%", "/srv/%domain%/%user%", "/srv/%name%/Maildir", 5, 6, "other"};
  auto ann = user_of(open()->find({"ann", "example.org"}));
  ASSERT_TRUE(ann.has_value());
  EXPECT_EQ(ann->name + " " + ann->home + " " + ann->maildir + " " + ann->agent,
            "ann /srv/example.org/ann /srv/ann/Maildir lda");
  EXPECT_EQ(ann->uid, 7u);
  EXPECT_EQ(ann->gid, 6u);
  config_.query = "SELECT 7 AS uid WHERE :user <> ''";
  for (const char* bad : {"..", "a/b", "."}) {
    auto found = open()->find({bad, "example.org"});
    ASSERT_FALSE(found.has_value()) << bad;
    EXPECT_NE(found.error().message.find("cannot be part of the path"), std::string::npos)
        << found.error().message;
  }
}

TEST_F(SqliteTest, ColumnsThatDovecotHasNamesForAreHeededOrRefused) {
  config_.defaults = {"%user%", "/srv//%user%/", "%home%/Maildir", 5, 6, ""};
  auto maildir_of = [&](const std::string& columns) {
    config_.query = "SELECT " + columns + " WHERE :user <> ''";
    auto found = open()->find({"ann", "example.org"});
    return found ? user_of(found)->maildir : found.error().message;
  };
  EXPECT_EQ(maildir_of("7 AS uid"), "/srv/ann/Maildir");
  EXPECT_EQ(maildir_of("'maildir:~/Mail' AS mail"), "/srv/ann/Mail");
  EXPECT_EQ(maildir_of("'maildir:~' AS userdb_mail, '/home//ann/' AS home"), "/home/ann");
  EXPECT_EQ(maildir_of("'~/Mail' AS mail_path, 'maildir' AS mail_driver"), "/srv/ann/Mail");
  EXPECT_EQ(maildir_of("'ann@example.org' AS mail"), "/srv/ann/Maildir") << "an address";
  EXPECT_EQ(maildir_of("'mdbox:~/m' AS mail, '/srv/own' AS maildir"), "/srv/own")
      << "lmtpd's own column counts";
  EXPECT_EQ(maildir_of("NULL AS mail"), "/srv/ann/Maildir");
  EXPECT_EQ(maildir_of("'MAILDIR:~/m' AS mail"), "/srv/ann/m");
  for (const char* location : {"/srv/own", "~/Mail", "%h/Mail"})
    EXPECT_NE(maildir_of(fmt::format("'{}' AS mail", location)).find("expected maildir:PATH"),
              std::string::npos)
        << location;
  EXPECT_NE(maildir_of("'maildir:/srv/%d/%n' AS mail").find("expands no variables"), std::string::npos);
  EXPECT_NE(maildir_of("'/srv' AS chroot").find("chroot"), std::string::npos);
  EXPECT_EQ(maildir_of("'' AS chroot, '/x' AS namespace"), "/srv/ann/Maildir");
  EXPECT_EQ(maildir_of("'mdbox:~/m' AS mail, 'store1' AS next_hop"), "") << "the mail is passed on";
  EXPECT_NE(maildir_of("'mdbox:~/m' AS mail").find("expected maildir:PATH"), std::string::npos);
  EXPECT_NE(maildir_of("'maildir:~/m:LAYOUT=fs' AS userdb_mail").find("LAYOUT=fs"), std::string::npos);
}

TEST_F(SqliteTest, EachQuotaIsTheRowsOrTheDefault) {
  config_.defaults.quota = {1000, 10};
  auto quota_of = [&](const std::string& bytes, const std::string& messages) {
    execute(config_.path, "UPDATE users SET quota_bytes = " + bytes + ", quota_messages = " + messages +
                              " WHERE user = 'ann@example.org'");
    return user_of(open()->find({"ann", "example.org"})).value().quota;
  };
  EXPECT_EQ(quota_of("NULL", "NULL"), (QuotaLimit{1000, 10}));
  EXPECT_EQ(quota_of("5000", "NULL"), (QuotaLimit{5000, 10}));
  EXPECT_EQ(quota_of("0", "0"), (QuotaLimit{0, 0}));
  config_.query =
      "SELECT 'ann' AS user, 1 AS uid, 1 AS gid, '/srv' AS home, '/srv/m' AS maildir, '5M' AS "
      "quota_storage_size, '7' AS quota_message_count WHERE :user <> ''";
  EXPECT_EQ(user_of(open()->find({"ann", "example.org"})).value().quota, (QuotaLimit{5u << 20, 7}))
      << "by Dovecot 2.4's names";
  std::string columns = "'ann' AS user, 1 AS uid, 1 AS gid, '/srv' AS home, NULL AS maildir, NULL AS agent, ";
  EXPECT_NE(
      row_error(columns + "'lots' AS quota_bytes").find("column \"quota_bytes\": \"lots\" is not a size"),
      std::string::npos);
  EXPECT_NE(row_error(columns + "-1 AS quota_messages")
                .find("column \"quota_messages\": \"-1\" is no number of messages"),
            std::string::npos);
  EXPECT_NE(row_error(columns + "'Trash:ignore' AS quota_rule").find("column \"quota_rule\": "),
            std::string::npos);
}

TEST_F(SqliteTest, AliasesAndStates) {
  config_.query =
      "SELECT 'ann@example.org' AS alias, NULL AS user, NULL AS uid, NULL AS gid, NULL AS home WHERE :user "
      "<> ''";
  auto found = open()->find({"info", "example.org"});
  ASSERT_TRUE(found && *found);
  EXPECT_EQ(std::get<Alias>(**found).address, "ann@example.org");
  for (auto [text, state] : {std::pair{"'active'", UserState::active},
                             {"''", UserState::active},
                             {"NULL", UserState::active},
                             {"'disabled'", UserState::disabled},
                             {"'deferred'", UserState::deferred}}) {
    config_.query = std::string("SELECT 'a' AS user, 5 AS uid, 5 AS gid, '/h' AS home, '' AS alias, ") +
                    text + " AS state WHERE :user <> ''";
    EXPECT_EQ(user_of(open()->find({"a", ""}))->state, state) << text;
  }
}

TEST_F(SqliteTest, MoreThanOneRowIsAnError) {
  config_.query = "SELECT user, uid, gid, home FROM users WHERE :user <> ''";
  EXPECT_FALSE(open()->find({"ann", ""}).has_value());
}

TEST_F(SqliteTest, AMissingOrBrokenDatabaseIsAnErrorAndNeverNoUser) {
  config_.path = dir_ / "nothing";
  EXPECT_NE(open_error(config_.query).find(config_.path), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(config_.path));  // and the file was not created
  config_.path = SCHEMA;
  EXPECT_NE(open_error(config_.query).find("not a database"), std::string::npos);
}

TEST_F(SqliteTest, AnOutageIsAnErrorAndItsEndIsNoticed) {
  auto db = open();
  std::filesystem::rename(config_.path, config_.path + ".away");
  EXPECT_FALSE(db->find({"ann", "example.org"}).has_value());
  std::filesystem::rename(config_.path + ".away", config_.path);
  EXPECT_TRUE(db->find({"ann", "example.org"}).value().has_value());
}

TEST_F(SqliteTest, AReplacedFileIsOpenedAnew) {
  auto db = open();
  EXPECT_FALSE(db->find({"new", "example.org"}).value().has_value());
  std::string copy = config_.path + ".new";
  std::filesystem::copy_file(config_.path, copy);
  execute(copy,
          "INSERT INTO users (user, uid, gid, home, maildir, agent, active) VALUES ('new@example.org', 1, 1, "
          "'/srv/new', NULL, NULL, 1)");
  std::filesystem::rename(copy, config_.path);
  EXPECT_TRUE(db->find({"new", "example.org"}).value().has_value());
}

TEST_F(SqliteTest, ALockedDatabaseIsAnErrorUntilItIsFree) {
  auto db = open();
  sqlite3* writer = nullptr;
  ASSERT_EQ(sqlite3_open(config_.path.c_str(), &writer), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(writer, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(db->find({"ann", "example.org"}).error().code, Errc::unavailable)
        << "also with a new connection";
  EXPECT_TRUE(open_sqlite_db(config_)) << "the error is temporary";
  sqlite3_exec(writer, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(writer);
  EXPECT_TRUE(db->find({"ann", "example.org"}).value().has_value());
}

TEST_F(SqliteTest, AChangedSchemaIsAnErrorAtTheNextLookUp) {
  auto db = open();
  EXPECT_TRUE(db->find({"ann", "example.org"}).value().has_value());
  execute(config_.path, "ALTER TABLE users RENAME TO people");
  for (int i = 0; i < 2; ++i) {
    auto found = db->find({"ann", "example.org"});
    EXPECT_EQ(found.error().code, Errc::unavailable) << "known users keep receiving";
    EXPECT_NE(found.error().message.find("the query is: SELECT"), std::string::npos) << found.error().message;
  }
  execute(config_.path, "ALTER TABLE people RENAME TO users");
  EXPECT_TRUE(db->find({"ann", "example.org"}).value().has_value());
}

// With "*" the query still runs, but the result lacks a column. No row counts as wrong, and known users keep
// receiving.
TEST_F(SqliteTest, AColumnThatHasGoneIsNoAnswerAndNamesTheQuery) {
  config_.query = "SELECT * FROM users WHERE user = :address";
  auto db = open();
  EXPECT_TRUE(db->find({"ann", "example.org"}).value().has_value());
  execute(config_.path, "ALTER TABLE users RENAME COLUMN home TO house");
  for (int i = 0; i < 2; ++i) {
    auto found = db->find({"ann", "example.org"});
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, Errc::unavailable);
    EXPECT_NE(found.error().message.find("no column \"home\""), std::string::npos) << found.error().message;
    EXPECT_NE(found.error().message.find(config_.query), std::string::npos) << found.error().message;
  }
  execute(config_.path, "ALTER TABLE users RENAME COLUMN house TO home");
  EXPECT_TRUE(db->find({"ann", "example.org"}).value().has_value());
}

TEST_F(SqliteTest, ManyThreadsShareFewConnections) {
  config_.connections_max = 2;
  auto db = open();
  std::atomic<int> found{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) found += db->find({"ann", "example.org"}).value().has_value();
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(found, 1600);
}

}  // namespace
}  // namespace twinloft::lmtpd
