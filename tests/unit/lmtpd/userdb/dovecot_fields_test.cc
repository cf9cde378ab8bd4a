// Dovecot's fields about the place of mail: each is applied, or gives an error with its name. None is
// ignored.
#include "dovecot_fields.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

const UserKey ann{"ann", "example.org"};

// Returns a column, or "error: ...".
std::string column_of(Row row, Column column, std::initializer_list<std::string_view> words,
                      const UserKey& key = ann) {
  DovecotFields fields(DovecotFields::Origin::passwd_file);
  for (std::string_view word : words)
    if (Status taken = fields.take_extra(row, word); !taken) return "error: " + taken.error().message;
  if (Status finished = fields.finish(row, key); !finished) return "error: " + finished.error().message;
  return row[column].value_or("none");
}

std::string maildir_of(std::initializer_list<std::string_view> words, const UserKey& key = ann) {
  return column_of({}, Column::maildir, words, key);
}

std::string home_of(std::string_view field, std::initializer_list<std::string_view> words) {
  Row row;
  row[Column::home] = std::string(field);
  return column_of(std::move(row), Column::home, words);
}

// The same for the columns of a query.
std::string yielded(std::initializer_list<std::pair<std::string_view, std::string_view>> columns) {
  Row row;
  DovecotFields fields(DovecotFields::Origin::query);
  for (auto [name, value] : columns) {
    EXPECT_TRUE(is_dovecot_column(name)) << name;
    if (Status taken = fields.take(row, name.starts_with("userdb_") ? name.substr(7) : name, value); !taken)
      return "error: " + taken.error().message;
  }
  if (Status finished = fields.finish(row, ann); !finished) return "error: " + finished.error().message;
  return row[Column::maildir].value_or("none");
}

bool is_error(const std::string& text) {
  return text.starts_with("error: ");
}

TEST(DovecotFields, LocationsOfDovecot23) {
  for (auto [word, maildir] : {std::pair{"userdb_mail=maildir:~/Maildir", "~/Maildir"},
                               {"userdb_mail=maildir:~", "~"},
                               {"userdb_mail=maildir:%h", "~"},
                               {"userdb_mail=maildir:%h/Mail:INDEX=MEMORY:NO-NOSELECT", "~/Mail"},
                               {"userdb_mail=maildir:/srv/%d/%n", "/srv/example.org/ann"},
                               {"userdb_mail=maildir:/srv/%Ld/%Ln", "/srv/example.org/ann"},
                               {"userdb_mail=maildir:/srv/%{domain}/%{username}", "/srv/example.org/ann"},
                               {"userdb_mail=maildir:%{home}/m", "~/m"},
                               {"userdb_mail=maildir:/srv/a%%b/x::y:LAYOUT=maildir++", "/srv/a%b/x:y"},
                               {"userdb_mail=maildir:~/Mail:LAYOUT=Maildir++:INBOX=~/Mail", "~/Mail"},
                               {"userdb_mail=maildir:~/%%n", "~/%n"},
                               {"userdb_mail_location=maildir:~//m/:INBOX=~/m:CONTROL=~/m", "~/m"}})
    EXPECT_EQ(maildir_of({word}), maildir) << word;
}

TEST(DovecotFields, SettingsOfDovecot24) {
  EXPECT_EQ(maildir_of({"userdb_mail_driver=maildir", "userdb_mail_path=~/Mail"}), "~/Mail");
  EXPECT_EQ(maildir_of({"userdb_mail_path=/srv/%{user|domain}/%{user | username | lower}"}),
            "/srv/example.org/ann");
  EXPECT_EQ(maildir_of({"userdb_mail_path=~/Mail", "userdb_mail_inbox_path=~/Mail/",
                        "userdb_mailbox_list_layout=Maildir++", "userdb_mailbox_list_utf8=no"}),
            "~/Mail");
  EXPECT_EQ(maildir_of({"userdb_mail=maildir:~/Mail", "userdb_mail_path=~//Mail"}), "~/Mail")
      << "for both versions";
  EXPECT_EQ(maildir_of({"userdb_mail_path=~/a::b:c"}), "~/a::b:c");
}

// Dovecot 2.4 does not expand variables of 2.3, and keeps "%%". Its home variable has no value in a
// passwd-file.
TEST(DovecotFields, VariablesOf23InFieldsOf24AreRefused) {
  for (const char* path : {"/srv/%d/%n", "~/%u", "%h/Mail", "~/%Ln", "~/100%%", "~/%%{user}", "%{home}/Mail",
                           "/srv/%{domain}/m", "/srv/%{username}", "/srv/%{user|upper}", "~/%"}) {
    EXPECT_TRUE(is_error(maildir_of({std::string("userdb_mail_path=") + path}))) << path;
    EXPECT_TRUE(
        is_error(maildir_of({"userdb_mail_path=~/Mail", std::string("userdb_mail_inbox_path=") + path})))
        << path;
  }
  EXPECT_TRUE(is_error(maildir_of({"userdb_mail=maildir:/srv/%{user|username}"})));
}

TEST(DovecotFields, VariablesInAHomeAreExpanded) {
  EXPECT_EQ(home_of("/h/%n", {}), "/h/%n") << "neither version expands it there";
  EXPECT_EQ(home_of("/h/%{user | domain}/%{user|username}/%", {}), "/h/example.org/ann/%");
  EXPECT_TRUE(is_error(home_of("/h/%{home}", {})));
  EXPECT_EQ(home_of("/h", {"userdb_home=/srv/%d/%Ln/%{user|username}/%{domain}/a%%"}),
            "/srv/example.org/ann/ann/example.org/a%");
  for (const char* home : {"/srv/%h", "%h", "/srv/%{home}", "/srv/%s", "/srv/%", "/srv/%{"})
    EXPECT_TRUE(is_error(home_of("/h", {std::string("userdb_home=") + home}))) << home;
}

// Dovecot does not expand "%" in the result of a query.
TEST(DovecotFields, AQueryYieldsNoVariables) {
  EXPECT_EQ(yielded({{"mail", "maildir:~/100%:INDEX=MEMORY"}}), "~/100%");
  EXPECT_EQ(yielded({{"mail_path", "~/100%%"}, {"mail_driver", "maildir"}}), "~/100%%");
  for (const char* path : {"/srv/%d/%n", "%h/Mail", "~/%%n", "/srv/%{user|username}", "%{home}/Mail"}) {
    EXPECT_TRUE(is_error(yielded({{"mail", std::string("maildir:") + path}}))) << path;
    EXPECT_TRUE(is_error(yielded({{"mail_path", path}}))) << path;
    EXPECT_TRUE(is_error(yielded({{"userdb_home", path}}))) << path;
  }
}

TEST(DovecotFields, ColumnsThatDecideThePlaceAreRefused) {
  for (const char* name :
       {"chroot", "mail_chroot", "mail_home", "mailbox_directory_name", "mailbox_list_layout",
        "mail_control_path", "mail_alt_path", "namespace/inbox/mail_path", "userdb_namespace/inbox/location"})
    EXPECT_TRUE(is_error(yielded({{name, "/srv/x"}}))) << name;
  for (const char* name : {"chroot", "mail_chroot", "mail_home", "mail_control_path"})
    EXPECT_EQ(yielded({{name, ""}}), "none") << name;
  for (const char* name : {"user", "namespace", "namespace_id", "maildir", "email", "quota"})
    EXPECT_FALSE(is_dovecot_column(name)) << name;
}

TEST(DovecotFields, WhatPutsMailElsewhereIsRefused) {
  for (const char* word : {"userdb_mail=maildir:~/Mail:INBOX=~/Mail/Inbox",
                           "userdb_mail=maildir:~/Mail:LAYOUT=fs",
                           "userdb_mail=maildir:~/Mail:UTF-8",
                           "userdb_mail=maildir:~/Mail:CONTROL=/var/control",
                           "userdb_mail=maildir:~/Mail:DIRNAME=x",
                           "userdb_mail=maildir:~/Mail:SUBSCRIPTIONS=subs",
                           "userdb_mail=maildir:~/Mail:NEW-OPTION",
                           "userdb_mail=maildir:~/Mail:ALT=~/alt",
                           "userdb_mail=maildir:~/Mail:KEEP-NOSELECT",
                           "userdb_mail=maildir:~/Mail:BROKENCHAR=__",
                           "userdb_mail=maildir:~/Mail:LAYOUT=Maildir++",
                           "userdb_mail_path=",
                           "userdb_mail_inbox_path=",
                           "userdb_mail_alt_path=~/a",
                           "userdb_mail=maildir:",
                           "userdb_mail=",
                           "userdb_mail=mdbox:~/m",
                           "userdb_mail=maildir:~ann/x",
                           "userdb_mail=maildir:/srv/%h",
                           "userdb_mail=maildir:/%Hu/x",
                           "userdb_mail=maildir:/%{sha1:user}",
                           "userdb_mail=maildir:/%{user",
                           "userdb_mail=maildir:/%L",
                           "userdb_mail_driver=sdbox",
                           "userdb_mail_inbox_path=~/Inbox",
                           "userdb_mailbox_list_layout=fs",
                           "userdb_mailbox_list_utf8=yes",
                           "userdb_mail_control_path=/var/control",
                           "userdb_namespace/inbox/mail_path=~/x",
                           "userdb_namespace_inbox=x",
                           "userdb_mail_home=/x",
                           "userdb_user=other",
                           "userdb_chroot=/srv",
                           "userdb_mailbox_directory_name=dbox",
                           "mail=maildir:~/m",
                           "home=/x",
                           "uid=7",
                           "quota_rule=*:storage=1G",
                           "mail_path=~/x",
                           "proxy",
                           "userdb_proxy=y",
                           "proxy_maybe=y"}) {
    std::string got = maildir_of({word});
    EXPECT_TRUE(got.starts_with("error: ")) << word << ": " << got;
    std::string_view name = std::string_view(word).substr(0, std::string_view(word).find('='));
    if (name.starts_with("userdb_")) name.remove_prefix(7);
    if (name.starts_with("proxy")) name = "proxy";
    EXPECT_NE(got.find(name), std::string::npos) << word << ": " << got;
  }
  EXPECT_TRUE(maildir_of({"userdb_mail=maildir:~/a", "userdb_mail_path=~/b"}).starts_with("error: "));
  EXPECT_TRUE(
      maildir_of({"userdb_mail=maildir:~/a", "userdb_mail_location=maildir:~/b"}).starts_with("error: "));
  EXPECT_TRUE(maildir_of({"userdb_mail=maildir:~/a", "userdb_mail_location=~/b"}).starts_with("error: "));
  EXPECT_TRUE(maildir_of({"userdb_mail_path=~/a", "userdb_mail_inbox_path=~/b"}).starts_with("error: "));
  EXPECT_EQ(maildir_of({"proxy=y", "host=192.0.2.1", "twinloft_next_hop=store1"}), "none");
}

TEST(DovecotFields, WhatHasNothingToDoWithItPasses) {
  Row row;
  DovecotFields fields(DovecotFields::Origin::passwd_file);
  for (const char* word :
       {"userdb_sieve=file:~/sieve", "allow_nets=192.0.2.0/24", "nopassword=y", "user=other", "userdb_nice=5",
        "userdb_acl_groups=x", "userdb_mail_index_path=/i", "userdb_tempfail=yes", "userdb_unheard_of=1",
        "unheard_of_too", "userdb_quota_rule=*:storage=1G", "userdb_quota_rule2=Trash:storage=+1G"})
    ASSERT_TRUE(fields.take_extra(row, word)) << word;
  ASSERT_TRUE(fields.finish(row, ann));
  EXPECT_EQ(row[Column::state], "deferred");
  EXPECT_EQ(row[Column::quota_rule], "*:storage=1G");
  EXPECT_EQ(row.not_known,
            (std::vector<std::string>{"userdb_unheard_of", "unheard_of_too", "userdb_quota_rule2"}));
}

// A user name is not a path, and the name "~" does not mean the home.
TEST(DovecotFields, NamesInPaths) {
  EXPECT_EQ(maildir_of({"userdb_mail=maildir:/srv/%n"}, {"~", "d"}), "/srv/~");
  EXPECT_TRUE(is_error(maildir_of({"userdb_mail=maildir:/srv/%n"}, {"..", "d"})));
  EXPECT_TRUE(is_error(maildir_of({"userdb_mail=maildir:/srv/%n"}, {"a/b", "d"})));
  EXPECT_TRUE(is_error(maildir_of({"userdb_mail=maildir:/srv/%d/%n"}, {"a", ""})));
  EXPECT_TRUE(is_error(maildir_of({"userdb_mail=maildir:%n/x"}, {"~root", "d"})));
}

}  // namespace
}  // namespace twinloft::lmtpd
