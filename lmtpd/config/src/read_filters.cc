#include "read_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "twinloft/lmtpd/proto/path.h"

namespace twinloft::lmtpd {

namespace {

FilterSettings read_filter(const TomlTable& t, std::string name) {
  FilterSettings out;
  t.allow(
      {"address", "on_failure", "connect_timeout", "command_timeout", "message_timeout", "message_limit"});
  milter::FilterSpec& spec = out.spec;
  spec.name = std::move(name);
  std::string address, on_failure = "tempfail";
  t.text("address", address, true);
  auto target = parse_connect_target(with_ascii_host(address));
  if (target)
    out.target = std::move(*target);
  else if (!address.empty())
    t.error("address", fmt::format("\"{}\": {}", address, target.error().message));
  t.text("on_failure", on_failure);
  if (auto action = milter::parse_default_action(on_failure))
    spec.on_failure = *action;
  else
    t.error("on_failure", action.error().message);
  t.duration("connect_timeout", out.target.timeout);
  t.duration("command_timeout", spec.command_timeout);
  t.duration("message_timeout", spec.message_timeout);
  t.duration("message_limit", spec.message_most);
  return out;
}

using Named = std::map<std::string, FilterSettings, std::less<>>;

Named read_named(const TomlTable& top) {
  Named out;
  const toml::table* raw = top.child("filter");
  if (!raw) return out;
  TomlTable filters(top.problems(), *raw, "filter");
  for (const auto& [key, value] : *raw) {
    std::string name(key.str());
    const toml::table* section = value.as_table();
    if (section)
      out.emplace(name, read_filter(TomlTable(top.problems(), *section, "filter." + name), name));
    else
      filters.error(name, fmt::format("expected a section [filter.{}]", name));
  }
  return out;
}

void order_filters(const TomlTable& t, const Named& named, FiltersSettings& out) {
  std::vector<std::string> order;
  t.texts("order", order);
  std::set<std::string> seen;
  for (const std::string& name : order) {
    auto found = named.find(name);
    if (found == named.end())
      t.error("order", fmt::format("there is no section [filter.{}]", name));
    else if (!seen.insert(name).second)
      t.error("order", fmt::format("names {} twice", name));
    else
      out.order.push_back(found->second);
  }
  for (const auto& [name, filter] : named)
    if (!seen.contains(name))
      t.warning("order", fmt::format("does not name {}: the section [filter.{}] is not used", name, name));
}

void read_quarantine(const TomlTable& t, FiltersSettings& out) {
  t.text("quarantine", out.quarantine);
  if (out.quarantine.empty()) return;
  if (auto address = parse_address(out.quarantine); !address) t.error("quarantine", address.error().message);
}

}  // namespace

void read_filters(const TomlTable& top, Config& config) {
  const Named named = read_named(top);
  const toml::table* raw = top.child("filters");
  if (!raw) {
    if (!named.empty())
      top.error("filters",
                fmt::format("is missing; add [filters] with order = [\"{}\"]", named.begin()->first));
    return;
  }
  TomlTable t(top.problems(), *raw, "filters");
  t.allow({"order", "quarantine", "threads"});
  read_quarantine(t, config.filters);
  t.number("threads", 1, 4096, config.filters.threads);
  order_filters(t, named, config.filters);
  if (!config.filters.quarantine.empty()) return;
  for (const FilterSettings& filter : config.filters.order)
    if (filter.spec.on_failure == milter::DefaultAction::quarantine)
      t.error("quarantine", fmt::format("is missing: filter.{}.on_failure needs the address of a mailbox",
                                        filter.spec.name));
}

}  // namespace twinloft::lmtpd
