#include "find_ignored.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace twinloft::lmtpd {

namespace {

class Ignored {
 public:
  Ignored(const Config& config, const toml::table& root) : config_(config), root_(root) {}

  std::vector<std::string> run() {
    bool tls = std::ranges::any_of(config_.listen,
                                   [](const ListenSettings& l) { return l.rules.tls != TlsPolicy::none; });
    if (!tls && root_.contains("tls")) say("tls", "no [[listen]] has tls = \"offered\" or \"required\"");
    if (config_.agents.empty())
      keys("delivery", {"memory", "temporary", "runs", "uid_min", "gid_min", "homes"},
           "there is no [agent.NAME]");
    if (config_.delivery.maildir.durability != DurabilityWay::intake_log)
      keys("maildir", {"intake_log_size", "intake_log_message_size", "intake_log_checkpoint"},
           "durability is not \"intake-log\"");
    if (!config_.delivers_here())
      for (const char* section : {"delivery", "maildir", "quota"})
        if (root_.contains(section)) say(section, "there is no [spool]: all mail goes to next hops");
    return std::move(found_);
  }

 private:
  void say(std::string_view key, std::string_view why) {
    found_.push_back(fmt::format("{}: is not used: {}", key, why));
  }
  void keys(const char* section, std::initializer_list<const char*> names, std::string_view why) {
    const toml::table* table = root_.get_as<toml::table>(section);
    for (const char* name : names)
      if (table && table->contains(name)) say(fmt::format("{}.{}", section, name), why);
  }
  const Config& config_;
  const toml::table& root_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> find_ignored(const Config& config, const toml::table& root) {
  return Ignored(config, root).run();
}

}  // namespace twinloft::lmtpd
