#include "cib.h"

#include <algorithm>
#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <charconv>
#include <sstream>

namespace twinloft::repl::arbiter {

namespace {

namespace pt = boost::property_tree;

std::unexpected<Error> not_a_cib(const std::string& what) {
  return fail(Errc::corrupt, "this is not a CIB of Pacemaker: {}", what);
}

std::string attribute(const pt::ptree& element, const char* name) {
  return element.get<std::string>(pt::ptree::path_type(std::string("<xmlattr>/") + name, '/'), "");
}

Result<std::uint64_t> number(const pt::ptree& element, const char* name) {
  std::string text = attribute(element, name);
  std::uint64_t n = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec != std::errc() || end != text.data() + text.size())
    return not_a_cib(std::string("no number in ") + name);
  return n;
}

bool is_true(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text == "true" || text == "on" || text == "yes" || text == "y" || text == "1";
}

// Membership is a boolean up to Pacemaker 2.1.6, and since then the time of joining, or 0.
bool is_in(const std::string& text, std::string_view word) {
  if (text == word) return true;
  return !text.empty() && text != "0" && text.find_first_not_of("0123456789") == std::string::npos;
}
bool is_out(const std::string& text, std::string_view word) {
  return text == word || text == "0";
}

NodeFate fate_of(const pt::ptree& state) {
  std::string layer = attribute(state, "in_ccm"), group = attribute(state, "crmd"),
              join = attribute(state, "join"), expected = attribute(state, "expected");
  if (is_in(layer, "true") && is_in(group, "online") && join == "member" && expected == "member")
    return NodeFate::online;
  if (is_out(layer, "false") && is_out(group, "offline") && join == "down" && expected == "down")
    return NodeFate::down;
  return NodeFate::lost;
}

void read_properties(const pt::ptree& config, const std::string& set, const std::string& property, Cib& out) {
  out.fencing = true;
  for (const auto& [element, properties] : config) {
    if (element != "cluster_property_set") continue;
    ++out.value_sets;
    std::string id = attribute(properties, "id");
    if (id == set && !out.value) out.value_set = id;
    for (const auto& [kind, pair] : properties) {
      if (kind != "nvpair") continue;
      std::string name = attribute(pair, "name");
      if ((name == "stonith-enabled" || name == "fencing-enabled") && !is_true(attribute(pair, "value")))
        out.fencing = false;
      if (attribute(pair, "id") != property) continue;
      out.value = attribute(pair, "value");
      out.value_set = id;
    }
  }
}

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

}  // namespace

Result<Cib> read_cib(std::string_view xml, const std::string& set, const std::string& property) {
  pt::ptree tree;
  try {
    std::istringstream in{std::string(xml)};
    pt::read_xml(in, tree, pt::xml_parser::no_comments);
  } catch (const pt::xml_parser_error& e) {
    return not_a_cib(e.message());
  }
  auto root = tree.get_child_optional("cib");
  auto config = tree.get_child_optional("cib.configuration.crm_config");
  if (!root || !config) return not_a_cib("no configuration in it");
  Cib out;
  TL_TRY_ASSIGN(out.version.admin_epoch, number(*root, "admin_epoch"));
  TL_TRY_ASSIGN(out.version.epoch, number(*root, "epoch"));
  TL_TRY_ASSIGN(out.version.num_updates, number(*root, "num_updates"));
  out.quorum = is_true(attribute(*root, "have-quorum"));
  read_properties(*config, set, property, out);
  if (auto status = tree.get_child_optional("cib.status"))
    for (const auto& [element, state] : *status) {
      if (element != "node_state") continue;
      std::string name = attribute(state, "uname");
      // With two nodes of the same name, neither state is reliable.
      auto [at, fresh] = out.nodes.emplace(name, fate_of(state));
      if (!fresh) at->second = NodeFate::lost;
    }
  return out;
}

std::string cib_patch(const Cib& cib, const std::string& set, const std::string& property,
                      const std::string& value) {
  const Cib::Version& v = cib.version;
  std::string pair = fmt::format(R"(<nvpair id="{0}" name="{0}" value="{1}"/>)", property, escaped(value));
  std::string config = "/cib/configuration/crm_config", change;
  if (cib.value)
    change = fmt::format(
        R"(<change operation="modify" path="{}/cluster_property_set[@id='{}']/nvpair[@id='{}']">)"
        R"(<change-list><change-attr name="value" operation="set" value="{}"/></change-list>)"
        R"(<change-result>{}</change-result></change>)",
        config, escaped(cib.value_set), property, escaped(value), pair);
  else if (!cib.value_set.empty())
    change = fmt::format(
        R"(<change operation="create" path="{}/cluster_property_set[@id='{}']" position="0">{}</change>)",
        config, escaped(cib.value_set), pair);
  else
    change = fmt::format(R"(<change operation="create" path="{}" position="{}">)"
                         R"(<cluster_property_set id="{}">{}</cluster_property_set></change>)",
                         config, cib.value_sets, set, pair);
  return fmt::format(R"(<diff format="2"><version><source admin_epoch="{0}" epoch="{1}" num_updates="{2}"/>)"
                     R"(<target admin_epoch="{0}" epoch="{3}" num_updates="0"/></version>{4}</diff>)",
                     v.admin_epoch, v.epoch, v.num_updates, v.epoch + 1, change);
}

}  // namespace twinloft::repl::arbiter
