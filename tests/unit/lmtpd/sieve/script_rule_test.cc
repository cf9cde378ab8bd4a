// From the output of doveconf to the rule: who has a script. The forms of the settings are those that Dovecot
// 2.3.19 and 2.4.1 print.
#include "twinloft/lmtpd/sieve/script_rule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace twinloft::lmtpd {
namespace {

std::string rule_of(const std::string& output) {
  auto parsed = parse_doveconf(output);
  if (!parsed) return "error: " + parsed.error().message;
  ScriptRule rule = decide_scripts(read_sieve_settings(*parsed));
  if (const auto* file = std::get_if<ByFile>(&rule)) {
    std::string out = "file";
    for (const std::string& text : file->texts) out += " " + text;
    return out;
  }
  return std::holds_alternative<AllUsers>(rule) ? "all" : "nobody";
}

std::string rule_of_2_3(const std::string& plugin, const std::string& more = "") {
  return rule_of(
      "# 2.3.19.1 (9b53102964): x\nauth_username_format = %Lu\nmail_plugins = \" sieve\"\nplugin {\n" +
      plugin + "}\n" + more);
}

std::string rule_of_2_4(const std::string& more) {
  return rule_of("# 2.4.1-4 (7d8c0e5759): x\nmail_plugins {\n  sieve = yes\n}\n" + more);
}

TEST(SieveRule, OfAPersonalScript23) {
  const std::pair<const char*, const char*> rows[] = {
      {"  sieve = file:~/sieve;active=~/.dovecot.sieve\n", "file ~/.dovecot.sieve"},
      {"", "file ~/.dovecot.sieve"},
      {"  sieve = ~/.dovecot.sieve\n", "file ~/.dovecot.sieve"},
      {"  sieve = file:~/sieve\n", "file ~/sieve ~/.dovecot.sieve"},
      {"  sieve = /var/sieve/%d/%n.sieve\n", "file /var/sieve/%d/%n.sieve ~/.dovecot.sieve"},
      {"  sieve = file:~/sieve;bindir=/x;active=~/active\n", "file ~/active"},
      {"  sieve = \n", "nobody"},
      {"  sieve = ldap:/etc/dovecot/sieve-ldap.conf\n", "all"},
      {"  sieve = dict:file:/var/scripts;name=active\n", "all"},
      {"  sieve = file:~/sieve;active=x\n", "all"},
      {"  sieve = file:~/sieve;active=%n\n", "all"},
      {"  sieve = file:~/sieve;active=%{ home }/x\n", "file %{ home }/x"},
      {"  sieve = ~/%{variable}\n", "all"},
  };
  for (auto [plugin, wanted] : rows) EXPECT_EQ(rule_of_2_3(plugin), wanted) << plugin;
}

TEST(SieveRule, OfScriptsForEverybody23) {
  for (const char* name : {"sieve_before", "sieve_before2", "sieve_after", "sieve_after13", "sieve_default",
                           "sieve_global_path"}) {
    EXPECT_EQ(rule_of_2_3(std::string("  ") + name + " = /etc/dovecot/x.sieve\n"), "all") << name;
    EXPECT_EQ(rule_of_2_3(std::string("  ") + name + " = \n"), "file ~/.dovecot.sieve") << name;
  }
  for (const char* name : {"sieve_default_name", "sieve_before_x", "sieve_global", "sieve_dir",
                           "sieve_user_log", "sieve_extensions"})
    EXPECT_EQ(rule_of_2_3(std::string("  ") + name + " = x\n"), "file ~/.dovecot.sieve") << name;
  EXPECT_EQ(rule_of_2_3("  sieve = \n  sieve_before = /etc/x\n"), "all");
}

TEST(SieveRule, OfTheUserDatabase) {
  EXPECT_EQ(rule_of_2_3(
                "", "userdb {\n  args = uid=vmail home=/srv/%n sieve=/srv/%n.sieve\n  driver = static\n}\n"),
            "all");
  EXPECT_EQ(rule_of_2_3("", "userdb {\n  default_fields = sieve_before=/x\n  driver = sql\n}\n"), "all");
  EXPECT_EQ(rule_of_2_3("", "passdb {\n  override_fields = userdb_sieve=/x\n  driver = pam\n}\n"), "all");
  EXPECT_EQ(rule_of_2_3("", "userdb {\n  args = /etc/dovecot/sieve-users.conf\n  driver = sql\n}\n"),
            "file ~/.dovecot.sieve");
  EXPECT_EQ(rule_of_2_4("userdb static {\n  fields {\n    sieve_script/personal/path = /x\n  }\n}\n"), "all");
  EXPECT_EQ(rule_of_2_4("userdb sql {\n  query = SELECT home, script AS sieve FROM users\n}\n"), "all");
  EXPECT_EQ(rule_of_2_4("userdb sql {\n  query = SELECT home FROM users\n}\n"), "file ~/.dovecot.sieve");
}

std::string hidden_in(const std::string& version, const std::string& userdb) {
  auto parsed = parse_doveconf("# " + version + " (x): x\nmail_plugins = sieve\n" + userdb);
  if (!parsed) return parsed.error().message;
  std::string out;
  for (const std::string& one : read_sieve_settings(*parsed).hidden_rows) out += one + " ";
  return out;
}

TEST(SieveRule, OfRowsThatDoveconfDoesNotShow) {
  for (const char* driver : {"sql", "ldap", "dict", "passwd-file", "prefetch", "lua"})
    EXPECT_EQ(hidden_in("2.3.19", std::string("userdb {\n  args = /x\n  driver = ") + driver + "\n}\n"),
              std::string("userdb ") + driver + " ");
  for (const char* driver : {"static", "passwd", "nss"})
    EXPECT_EQ(hidden_in("2.3.19", std::string("userdb {\n  driver = ") + driver + "\n}\n"), "");
  EXPECT_EQ(hidden_in("2.3.19", "passdb {\n  driver = sql\n}\n"), "");
  EXPECT_EQ(hidden_in("2.4.1", "userdb sql {\n  query = SELECT home FROM users\n}\n"), "");
  EXPECT_EQ(hidden_in("2.4.1", "userdb sql {\n  query = SELECT * FROM users\n}\n"), "userdb sql ");
  EXPECT_EQ(hidden_in("2.4.1", "userdb passwd-file {\n}\n"), "userdb passwd-file ");
  EXPECT_EQ(hidden_in("2.4.1", "userdb mine {\n  driver = static\n}\n"), "");
  SieveSettings settings;
  settings.loads_plugin = true;
  settings.personal.emplace_back();
  EXPECT_TRUE(std::holds_alternative<ByFile>(decide_scripts(settings)));
  EXPECT_TRUE(std::holds_alternative<AllUsers>(decide_scripts(settings, true)));
}

TEST(SieveRule, OfAPersonalScript24) {
  const std::pair<const char*, const char*> rows[] = {
      {"", "file ~/.dovecot.sieve"},
      {"sieve_script personal {\n  active_path = ~/.dovecot.sieve\n  path = ~/sieve\n  type = personal\n}\n",
       "file ~/.dovecot.sieve"},
      {"sieve_script mine {\n  bin_path = ~/x\n  path = /var/with space/%{user | username}.sieve\n}\n",
       "file /var/with space/%{user | username}.sieve ~/.dovecot.sieve"},
      {"sieve_script mine {\n  active_path = ~/z\n}\n", "file ~/z ~/.dovecot.sieve"},
      {"sieve_script mine {\n  sieve_script_active_path = ~/z\n  sieve_script_type = personal\n}\n",
       "file ~/z ~/.dovecot.sieve"},
      {"sieve_script mine {\n  driver = ldap\n}\n", "all"},
      {"sieve_script mine {\n  driver = dict\n  type = personal\n}\n", "all"},
      {"sieve_script library {\n  path = /etc/x\n  type = global\n}\n", "file ~/.dovecot.sieve"},
      {"sieve_script gone {\n  path = /etc/x\n  type = discard\n}\n", "file ~/.dovecot.sieve"},
  };
  for (auto [text, wanted] : rows) EXPECT_EQ(rule_of_2_4(text), wanted) << text;
}

TEST(SieveRule, OfScriptsForEverybody24) {
  for (const char* type : {"before", "after", "default", "a-later-type"})
    EXPECT_EQ(rule_of_2_4(std::string("sieve_script x {\n  path = /etc/x.sieve\n  type = ") + type + "\n}\n"),
              "all")
        << type;
  EXPECT_EQ(
      rule_of_2_4("sieve_script late {\n  sieve_script_driver = ldap\n  sieve_script_type = after\n}\n"),
      "all");
  EXPECT_EQ(rule_of_2_4("mailbox Spam {\n  sieve_script spam {\n    cause = copy\n    path = /x\n    type = "
                        "before\n  }\n}\n"),
            "file ~/.dovecot.sieve");
  EXPECT_EQ(rule_of_2_4("sieve_script copied {\n  cause = copy\n  path = /x\n  type = before\n}\n"),
            "file ~/.dovecot.sieve");
}

TEST(SieveRule, NamesThatDovecotChangesAreNoPartOfAPath) {
  auto with_format = [](const std::string& format, const std::string& sieve) {
    return rule_of("# 2.3.19 (x): x\nauth_username_format = " + format +
                   "\nmail_plugins = sieve\nplugin {\n  sieve = " + sieve + "\n}\n");
  };
  EXPECT_EQ(with_format("%n", "/var/%u"), "all");
  EXPECT_EQ(with_format("%n", "~/.dovecot.sieve"), "file ~/.dovecot.sieve");
  EXPECT_EQ(with_format("%u", "/var/%u"), "file /var/%u ~/.dovecot.sieve");
}

// What `doveconf -f protocol=lmtp` of both versions prints for conf/dovecot, without the sections of other
// services.
TEST(SieveRule, OfTheExamples) {
  for (const char* name : {"doveconf-2.3.txt", "doveconf-2.4.txt"}) {
    std::ifstream file(std::string(TWINLOFT_GOLDEN_DIR) + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    auto output = parse_doveconf(text.str());
    ASSERT_TRUE(output.has_value()) << name << ": " << output.error().message;
    EXPECT_TRUE(output->root.lists("mail_plugins", "sieve")) << name;
    EXPECT_NE(output->root.find("service", "lmtp"), nullptr) << name;
    EXPECT_EQ(output->is_2_4(), std::string_view(name).ends_with("2.4.txt"));
    EXPECT_EQ(rule_of(text.str()), "file ~/.dovecot.sieve") << name;
  }
}

TEST(SieveRule, NobodyWithoutThePlugin) {
  EXPECT_EQ(rule_of("# 2.3.19 (x): x\nmail_plugins = quota\nplugin {\n  sieve_before = /x\n}\n"), "nobody");
  EXPECT_EQ(rule_of("# 2.4.1 (x): x\nmail_plugins {\n  sieve = no\n}\n"), "nobody");
}

TEST(SieveRule, SaysWhyInWords) {
  EXPECT_EQ(describe_rule(NoUser{"x"}), "nobody: x");
  EXPECT_EQ(describe_rule(AllUsers{"y"}), "all users: y");
  EXPECT_EQ(describe_rule(ByFile{{}, {"~/a", "~/b"}}), "users who have ~/a or ~/b");
}

}  // namespace
}  // namespace twinloft::lmtpd
