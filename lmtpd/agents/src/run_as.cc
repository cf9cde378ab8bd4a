#include "twinloft/lmtpd/agents/run_as.h"

#include <pwd.h>

#include <algorithm>

namespace twinloft::lmtpd {

namespace {

// The next component. Empty: the end.
std::string_view take_component(std::string_view& path) {
  for (;;) {
    path.remove_prefix(std::min(path.find_first_not_of('/'), path.size()));
    std::string_view component = path.substr(0, path.find('/'));
    path.remove_prefix(component.size());
    if (component != ".") return component;
  }
}

}  // namespace

bool is_within(std::string_view path, std::string_view directory) {
  for (;;) {
    std::string_view expected = take_component(directory);
    if (expected.empty()) return true;
    if (take_component(path) != expected) return false;
  }
}

Result<AskAccount> check_run_as(const RunAsRules& rules, std::uint32_t uid, std::uint32_t gid,
                                std::string_view home) {
  constexpr std::uint32_t unchanged = ~std::uint32_t{0};  // setresuid takes it as "leave as it is"
  bool own_uid = std::ranges::find(rules.own, uid, &RunAsRules::Ids::uid) != rules.own.end();
  bool own_gid = std::ranges::find(rules.own, gid, &RunAsRules::Ids::gid) != rules.own.end();
  if (uid == 0 || gid == 0 || uid == unchanged || gid == unchanged)
    return fail(Errc::denied, "uid {} and gid {} are refused: agents never run as root", uid, gid);
  if (rules.only_own && !(own_uid && own_gid))
    return fail(Errc::denied, "uid {} and gid {} are refused: all mail belongs to the configured user", uid,
                gid);
  if (!own_uid && uid < rules.uid_min)
    return fail(Errc::denied,
                "uid {} is refused: it is below delivery.uid_min ({}), and not the configured user's", uid,
                rules.uid_min);
  AskAccount ask;
  ask.group = !own_gid && gid < rules.gid_min;
  ask.home = std::ranges::none_of(rules.homes,
                                  [&](const std::string& directory) { return is_within(home, directory); });
  return ask;
}

bool account_agrees(AskAccount ask, std::uint32_t uid, std::uint32_t gid, const std::string& home) {
  if (!ask.any()) return true;
  const passwd* account = ::getpwuid(uid);
  if (!account || !account->pw_dir) return false;
  if (ask.group && account->pw_gid != gid) return false;
  bool whole_machine = is_within("/", account->pw_dir);  // the home of many system accounts
  return !ask.home || (!whole_machine && is_within(home, account->pw_dir));
}

}  // namespace twinloft::lmtpd
