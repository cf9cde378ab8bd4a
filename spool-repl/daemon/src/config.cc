#include "twinloft/spool-repl/daemon/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <span>

#include "twinloft/base/fd.h"

namespace twinloft::repl::daemon {

namespace {

// One table being read: remembers where it is for messages, and refuses keys that nobody asked for.
class Table {
 public:
  Table(const std::string& file, const toml::table& table, std::string path)
      : file_(file), table_(table), path_(std::move(path)) {}

  std::unexpected<Error> error(const toml::node* at, std::string_view key, std::string_view what) const {
    auto line = at ? at->source().begin.line : table_.source().begin.line;
    return fail(Errc::invalid, "{}:{}: {}{}: {}", file_, line, path_.empty() ? "" : path_ + ".", key, what);
  }

  Status allow(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : table_)
      if (std::find(keys.begin(), keys.end(), key.str()) == keys.end())
        return error(&value, key.str(), "unknown key");
    return {};
  }

  Status text(std::string_view key, std::string& out, bool required = false) const {
    const toml::node* node = table_.get(key);
    if (!node) return required ? Status(error(nullptr, key, "is missing")) : Status();
    auto value = node->value_exact<std::string>();
    if (!value || value->find('\0') != std::string::npos) return error(node, key, "expected a text in quotes");
    if (required && value->empty()) return error(node, key, "must not be empty");
    out = *value;
    return {};
  }

  Status path(std::string_view key, std::string& out, bool required = false) const {
    TL_TRY(text(key, out, required));
    if (!out.empty() && out[0] != '/') return error(table_.get(key), key, "expected an absolute path");
    return {};
  }

  Status integer(std::string_view key, std::uint64_t low, std::uint64_t high, auto& out, bool required = false) const {
    const toml::node* node = table_.get(key);
    if (!node) return required ? Status(error(nullptr, key, "is missing")) : Status();
    auto value = node->value_exact<std::int64_t>();
    if (!value || *value < 0 || static_cast<std::uint64_t>(*value) < low || static_cast<std::uint64_t>(*value) > high)
      return error(node, key, fmt::format("expected a number from {} to {}", low, high));
    out = static_cast<std::remove_reference_t<decltype(out)>>(*value);
    return {};
  }

  // "512KiB", "20GiB", or a plain number of bytes.
  Status size(std::string_view key, std::uint64_t& out) const {
    static constexpr Unit units[] = {{"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}, {"TiB", 1ull << 40}, {"", 1}};
    return scaled(key, out, units, "a size such as \"512MiB\" or \"20GiB\"");
  }

  Status duration(std::string_view key, Duration& out) const {
    static constexpr Unit units[] = {{"ms", 1'000'000}, {"us", 1'000}, {"s", 1'000'000'000}, {"min", 60'000'000'000}};
    std::uint64_t ns = static_cast<std::uint64_t>(out.count());
    TL_TRY(scaled(key, ns, units, "a time such as \"5ms\" or \"6s\""));
    out = Duration(static_cast<std::int64_t>(ns));
    return {};
  }

  template <class T>
  Status choice(std::string_view key, std::initializer_list<std::pair<std::string_view, T>> choices, T& out,
                bool required = false) const {
    std::string value;
    TL_TRY(text(key, value, required));
    if (!table_.get(key)) return {};
    std::string names;
    for (const auto& [name, choice] : choices) {
      if (value == name) {
        out = choice;
        return {};
      }
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name);
    }
    return error(table_.get(key), key, "expected one of " + names);
  }

  Status texts(std::string_view key, std::vector<std::string>& out) const {
    const toml::node* node = table_.get(key);
    if (!node) return {};
    const toml::array* list = node->as_array();
    if (!list) return error(node, key, "expected a list of texts: [\"...\", \"...\"]");
    for (const auto& item : *list) {
      auto value = item.value_exact<std::string>();
      if (!value || value->find('\0') != std::string::npos) return error(&item, key, "expected a list of texts: [\"...\", \"...\"]");
      out.push_back(*value);
    }
    return {};
  }

  // nullptr where there is none.
  Result<const toml::table*> child(std::string_view key) const {
    const toml::node* node = table_.get(key);
    if (node && !node->is_table()) return error(node, key, "expected a section in brackets of its own");
    return node ? node->as_table() : nullptr;
  }
  const toml::table& raw() const { return table_; }

 private:
  struct Unit {
    std::string_view suffix;
    std::uint64_t factor;
  };
  Status scaled(std::string_view key, std::uint64_t& out, std::span<const Unit> units, const char* expected) const {
    const toml::node* node = table_.get(key);
    if (!node) return {};
    std::string value = node->is_integer() ? std::to_string(node->value_or<std::int64_t>(-1))
                                           : node->value_or<std::string>("");
    std::uint64_t number = 0;
    auto [end, ec] = std::from_chars(value.data(), value.data() + value.size(), number);
    std::string_view suffix(end, static_cast<std::size_t>(value.data() + value.size() - end));
    auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.suffix == suffix; });
    if (ec != std::errc() || unit == units.end() || number == 0 || number > (UINT64_MAX >> 2) / unit->factor)
      return error(node, key, fmt::format("expected {}", expected));
    out = number * unit->factor;
    return {};
  }

  const std::string& file_;
  const toml::table& table_;
  std::string path_;
};

Status read_peers(const std::string& file, const Table& t, VolumeSettings& v) {
  const toml::array* peers = t.raw().get_as<toml::array>("peer");
  if (!peers && t.raw().contains("peer"))
    return t.error(t.raw().get("peer"), "peer", fmt::format("expected [[volume.{}.peer]]", v.name));
  if (!peers) return {};
  for (const auto& node : *peers) {
    const toml::table* table = node.as_table();
    if (!table) return t.error(&node, "peer", fmt::format("expected [[volume.{}.peer]]", v.name));
    Table p(file, *table, fmt::format("volume.{}.peer", v.name));
    PeerSettings peer;
    TL_TRY(p.allow({"id", "address", "protocol"}));
    TL_TRY(p.integer("id", 1, replica_id_max, peer.id, true));
    TL_TRY(p.text("address", peer.address, true));
    using core::Protocol;
    TL_TRY(p.choice<Protocol>("protocol", {{"A", Protocol::A}, {"B", Protocol::B}, {"C", Protocol::C}}, peer.protocol));
    if (peer.id == v.replica) return p.error(table->get("id"), "id", "is this replica's own");
    for (const PeerSettings& other : v.peers)
      if (other.id == peer.id) return p.error(table->get("id"), "id", "is used twice");
    v.peers.push_back(std::move(peer));
  }
  if (v.peers.size() > bitmap_slots)
    return t.error(t.raw().get("peer"), "peer", fmt::format("more than {} peers", bitmap_slots));
  return {};
}

Status read_exports(const std::string& file, const Table& t, VolumeSettings& v) {
  TL_TRY_ASSIGN(const toml::table* fuse, t.child("fuse"));
  TL_TRY_ASSIGN(const toml::table* ublk, t.child("ublk"));
  TL_TRY_ASSIGN(const toml::table* nbd, t.child("nbd"));
  if (fuse) {
    Table f(file, *fuse, fmt::format("volume.{}.fuse", v.name));
    TL_TRY(f.allow({"file", "device"}));
    TL_TRY(f.path("file", v.fuse_file, true));
    TL_TRY(f.path("device", v.fuse_device));
  }
  if (ublk) {
    Table u(file, *ublk, fmt::format("volume.{}.ublk", v.name));
    TL_TRY(u.allow({"device"}));
    TL_TRY(u.path("device", v.ublk_device, true));
    if (fuse) return t.error(t.raw().get("ublk"), "ublk", "a volume has one block device: remove this section, or \"fuse\"");
  }
  if (nbd) {
    Table n(file, *nbd, fmt::format("volume.{}.nbd", v.name));
    TL_TRY(n.allow({"listen", "name"}));
    TL_TRY(n.text("listen", v.nbd_listen, true));
    v.nbd_name = v.name;
    TL_TRY(n.text("name", v.nbd_name));
  }
  return {};
}

// The keys of etcd; each says what it needs.
Status read_etcd(const Table& t, arbiter::Settings& s) {
  auto at = [&](const char* key) { return t.raw().get(key); };
  TL_TRY(t.texts("endpoints", s.endpoints));
  if (s.endpoints.empty()) return t.error(at("endpoints"), "endpoints", "kind = \"etcd\" needs at least one: [\"http://10.0.0.3:2379\"]");
  if (s.endpoints.size() > arbiter::endpoints_max)
    return t.error(at("endpoints"), "endpoints", fmt::format("more than {}", arbiter::endpoints_max));
  bool tls = false;
  for (auto e = s.endpoints.begin(); e != s.endpoints.end(); ++e) {
    if (Status good = arbiter::check_endpoint(*e); !good) return t.error(at("endpoints"), "endpoints", good.error().message);
    if (std::find(s.endpoints.begin(), e, *e) != e) return t.error(at("endpoints"), "endpoints", fmt::format("{} stands there twice", *e));
    tls = tls || e->starts_with("https:");
  }
  TL_TRY(t.text("prefix", s.prefix));
  if (s.prefix.empty() || s.prefix.size() > arbiter::prefix_bytes_max)
    return t.error(at("prefix"), "prefix", fmt::format("expected a text of 1 to {} bytes", arbiter::prefix_bytes_max));
  TL_TRY(t.path("ca_file", s.ca_file));
  TL_TRY(t.path("cert_file", s.cert_file));
  TL_TRY(t.path("key_file", s.key_file));
  for (const char* key : {"ca_file", "cert_file", "key_file"})
    if (at(key) && !tls) return t.error(at(key), key, "is for TLS, and no endpoint begins with https://");
  if (s.cert_file.empty() != s.key_file.empty())
    return t.error(at(s.cert_file.empty() ? "key_file" : "cert_file"), s.cert_file.empty() ? "key_file" : "cert_file",
                   "a certificate and its key go together: set cert_file and key_file, or neither");
  TL_TRY(t.text("user", s.user));
  TL_TRY(t.path("password_file", s.password_file));
  if (s.user.empty() != s.password_file.empty())
    return t.error(at(s.user.empty() ? "password_file" : "user"), s.user.empty() ? "password_file" : "user",
                   "user and password_file go together: set both, or neither");
  return {};
}

// Which node of the cluster holds which replica: { 1 = "mail1", 2 = "mail2" }. All of them, this one too.
Status read_nodes(const std::string& file, const Table& t, const VolumeSettings& v, arbiter::Settings& s) {
  TL_TRY_ASSIGN(const toml::table* nodes, t.child("nodes"));
  if (!nodes)
    return t.error(nullptr, "nodes", "kind = \"pacemaker\" needs the cluster's name of every replica's node: { 1 = \"mail1\", 2 = \"mail2\" }");
  Table n(file, *nodes, fmt::format("volume.{}.arbiter.nodes", v.name));
  for (const auto& [key, value] : *nodes) {
    std::string_view text = key.str();
    ReplicaId id = 0;
    auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), id);
    bool known = id == v.replica || std::any_of(v.peers.begin(), v.peers.end(), [&](const PeerSettings& p) { return p.id == id; });
    if (ec != std::errc() || end != text.data() + text.size() || !known) return n.error(&value, text, "is the number of no replica here");
    std::string name;
    TL_TRY(n.text(text, name, true));
    for (const auto& [other, taken] : s.nodes)
      if (taken == name) return n.error(&value, text, fmt::format("{} is replica {}'s node already", name, other));
    s.nodes[id] = name;
  }
  if (!s.nodes.contains(v.replica)) return n.error(nullptr, std::to_string(v.replica), "is missing: this replica's own node");
  for (const PeerSettings& p : v.peers)
    if (!s.nodes.contains(p.id)) return n.error(nullptr, std::to_string(p.id), "is missing: every replica needs its node");
  return {};
}

Status read_pacemaker(const std::string& file, const Table& t, const VolumeSettings& v, arbiter::Settings& s) {
  TL_TRY(read_nodes(file, t, v, s));
  TL_TRY(t.path("programs", s.programs));
  if (s.programs.empty()) return t.error(t.raw().get("programs"), "programs", "must not be empty");
  TL_TRY(t.duration("settle", s.settle));
  return {};
}

Status read_arbiter(const std::string& file, const Table& t, VolumeSettings& v) {
  TL_TRY_ASSIGN(const toml::table* table, t.child("arbiter"));
  if (!table) return {};
  Table a(file, *table, fmt::format("volume.{}.arbiter", v.name));
  using arbiter::Kind;
  arbiter::Settings& s = v.arbiter;
  TL_TRY(a.allow({"kind", "timeout", "endpoints", "prefix", "ca_file", "cert_file", "key_file", "user", "password_file", "nodes", "programs", "settle"}));
  TL_TRY(a.choice<Kind>("kind", {{"manual", Kind::manual}, {"etcd", Kind::etcd}, {"pacemaker", Kind::pacemaker}}, s.kind));
  for (const auto& [key, value] : *table) {
    bool common = key.str() == "kind" || (key.str() == "timeout" && s.kind != Kind::manual);
    bool of_pacemaker = key.str() == "nodes" || key.str() == "programs" || key.str() == "settle";
    if (common || (s.kind == Kind::pacemaker && of_pacemaker) || (s.kind == Kind::etcd && !of_pacemaker)) continue;
    return a.error(&value, key.str(), fmt::format("does not apply to kind = \"{}\"", arbiter::name_of(s.kind)));
  }
  if (s.kind == Kind::manual) return {};
  TL_TRY(a.duration("timeout", s.timeout));
  if (s.timeout < arbiter::timeout_min || s.timeout > arbiter::timeout_max)
    return a.error(table->get("timeout"), "timeout", "expected a time from \"50ms\" to \"9s\": a promotion waits 10 s for the arbiter");
  if (s.kind == Kind::etcd) TL_TRY(read_etcd(a, s));
  if (s.kind == Kind::pacemaker) TL_TRY(read_pacemaker(file, a, v, s));
  if (const toml::node* node = t.raw().get("on_peer_loss"))
    return t.error(node, "on_peer_loss", fmt::format("does not apply: with an arbiter (kind = \"{}\") the arbiter decides who goes on "
                                                     "without a member that is away. Remove it", arbiter::name_of(s.kind)));
  return {};
}

Status read_resync(const Table& t, VolumeSettings& v) {
  TL_TRY(t.size("resync_rate_min", v.resync_rate_min));
  if (v.resync_rate_min < 64u << 10)
    return t.error(t.raw().get("resync_rate_min"), "resync_rate_min", "expected at least \"64KiB\" a second: a resync has to end");
  const toml::node* target = t.raw().get("resync_latency_target");
  if (!target || target->value<std::string>() != "off") return t.duration("resync_latency_target", v.resync_latency_target);
  v.resync_latency_target = Duration(0);
  return {};
}

Result<VolumeSettings> read_volume(const std::string& file, const std::string& name, const toml::table& table) {
  Table t(file, table, "volume." + name);
  VolumeSettings v;
  v.name = name;
  v.control = "/run/twinloft/" + name + ".sock";
  TL_TRY(t.allow({"uuid", "replica", "role", "size", "data", "journal", "journal_size", "arena", "listen",
                  "secret_file", "control", "write_ack", "seal_after", "peer_timeout", "journal_writes_in_flight",
                  "on_peer_loss", "min_in_sync", "slow_peer", "resync_latency_target", "resync_rate_min", "suspend_timeout", "archive", "peer", "fuse", "ublk", "nbd", "arbiter"}));
  TL_TRY(t.text("uuid", v.uuid));
  if (!v.uuid.empty())
    if (auto uuid = Uuid::parse(v.uuid); !uuid) return t.error(table.get("uuid"), "uuid", uuid.error().message);
  TL_TRY(t.integer("replica", 1, replica_id_max, v.replica, true));
  enum class AtStart { primary, secondary, as_before } role = AtStart::secondary;
  TL_TRY(t.choice<AtStart>("role", {{"primary", AtStart::primary}, {"secondary", AtStart::secondary}, {"as-before", AtStart::as_before}},
                           role, true));
  v.role = role == AtStart::primary ? core::Role::primary : core::Role::secondary;
  v.role_as_before = role == AtStart::as_before;
  TL_TRY(t.size("size", v.size));
  if (v.size % block_size != 0) return t.error(table.get("size"), "size", "must be a multiple of 4096 bytes");
  TL_TRY(t.path("data", v.data, true));
  TL_TRY(t.path("journal", v.journal, true));
  if (v.data == v.journal) return t.error(table.get("journal"), "journal", "must not be the data area itself");
  TL_TRY(t.size("journal_size", v.journal_size));
  TL_TRY(t.size("arena", v.arena));
  TL_TRY(t.text("listen", v.listen));
  TL_TRY(t.path("secret_file", v.secret_file));
  TL_TRY(t.path("control", v.control));
  TL_TRY(t.choice<bool>("write_ack", {{"memory", false}, {"durable", true}}, v.write_ack_durable));
  TL_TRY(t.duration("seal_after", v.seal_after));
  TL_TRY(t.duration("peer_timeout", v.peer_timeout));
  TL_TRY(t.integer("journal_writes_in_flight", 1, 64, v.journal_writes_in_flight));
  using core::OnPeerLoss;
  TL_TRY(t.choice<OnPeerLoss>("on_peer_loss", {{"suspend", OnPeerLoss::suspend}, {"continue", OnPeerLoss::go_on}},
                              v.on_peer_loss));
  TL_TRY(t.duration("slow_peer", v.slow_peer));
  TL_TRY(read_resync(t, v));
  TL_TRY(t.duration("suspend_timeout", v.suspend_timeout));
  TL_TRY(t.path("archive", v.archive));
  TL_TRY(read_peers(file, t, v));
  TL_TRY(read_arbiter(file, t, v));
  unsigned replicas = 1 + static_cast<unsigned>(v.peers.size());
  TL_TRY(t.integer("min_in_sync", 1, replicas, v.min_in_sync));
  TL_TRY(read_exports(file, t, v));
  if (!v.peers.empty() && v.listen.empty()) return t.error(nullptr, "listen", "is missing: the volume has a peer");
  return v;
}

}  // namespace

Result<NodeSettings> load_config(const std::string& path) {
  TL_TRY_ASSIGN(std::string text, read_file(path, 1 << 20));
  toml::table root;
  try {
    root = toml::parse(text, path);
  } catch (const toml::parse_error& e) {
    return fail(Errc::invalid, "{}:{}: {}", path, e.source().begin.line, e.description());
  }
  Table t(path, root, "");
  NodeSettings node;
  TL_TRY(t.allow({"log_level", "volume"}));
  TL_TRY(t.choice<LogLevel>("log_level", {{"debug", LogLevel::debug}, {"info", LogLevel::info},
                                          {"warning", LogLevel::warning}, {"error", LogLevel::error}}, node.log_level));
  TL_TRY_ASSIGN(const toml::table* volumes, t.child("volume"));
  if (!volumes || volumes->empty()) return fail(Errc::invalid, "{}: no [volume.<name>] in it", path);
  for (const auto& [name, value] : *volumes) {
    const toml::table* table = value.as_table();
    if (!table) return t.error(&value, "volume", fmt::format("expected [volume.{}]", name.str()));
    if (name.str().find_first_of("/ \t\n\\\"") != std::string_view::npos || name.str().starts_with("."))
      return t.error(&value, "volume", fmt::format("\"{}\" cannot be a volume's name", name.str()));
    TL_TRY_ASSIGN(VolumeSettings v, read_volume(path, std::string(name.str()), *table));
    node.volumes.push_back(std::move(v));
  }
  return node;
}

}  // namespace twinloft::repl::daemon
