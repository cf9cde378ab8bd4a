#include "twinloft/spool-repl/daemon/config.h"

#include <grp.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "config_peers.h"
#include "config_table.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/suggest.h"
#include "twinloft/base/units.h"
#include "twinloft/spool-repl/export/nbd_handshake.h"
#include "twinloft/spool-repl/net/address.h"
#include "twinloft/spool-repl/net/handshake.h"

namespace twinloft::repl::daemon {

namespace {

void read_tls_files(const Table& t, TlsSettings& tls) {
  const std::pair<const char*, std::string*> files[] = {
      {"tls_certificate", &tls.certificate}, {"tls_key", &tls.key}, {"tls_authority", &tls.authority}};
  std::size_t given = 0;
  for (auto [key, path] : files) {
    t.path(key, *path);
    given += path->empty() ? 0 : 1;
  }
  for (auto [key, path] : files)
    if (given != 0 && path->empty())
      t.error(t.raw().get(key), key, "is missing: tls_certificate, tls_key and tls_authority go together");
}

void read_exports(const Table& t, VolumeSettings& v) {
  const toml::table* fuse = t.child("fuse");
  const toml::table* ublk = t.child("ublk");
  const toml::table* nbd = t.child("nbd");
  if (fuse) {
    Table f(t, *fuse, fmt::format("volume.{}.fuse", v.name));
    f.allow({"file", "device", "transport"});
    f.path("file", v.fuse_file, true);
    f.path("device", v.fuse_device);
    f.text("transport", v.fuse_transport);
    if (v.fuse_transport != "auto" && v.fuse_transport != "io-uring" && v.fuse_transport != "dev-fuse")
      f.error(fuse->get("transport"), "transport",
              fmt::format("\"{}\": expected \"auto\", \"io-uring\" or \"dev-fuse\"", v.fuse_transport));
  }
  if (ublk) {
    Table u(t, *ublk, fmt::format("volume.{}.ublk", v.name));
    u.allow({"device"});
    u.path("device", v.ublk_device, true);
    if (fuse)
      t.error(t.raw().get("ublk"), "ublk", "a volume has one block device: remove this section, or \"fuse\"");
  }
  if (nbd) {
    Table n(t, *nbd, fmt::format("volume.{}.nbd", v.name));
    n.allow({"listen", "name", "tls_certificate", "tls_key", "tls_authority"});
    read_tls_files(n, v.nbd_tls);
    n.text("listen", v.nbd_listen, true);
    if (!v.nbd_listen.starts_with("unix:"))
      n.own_address("listen", v.nbd_listen);
    else if (!v.nbd_listen.starts_with("unix:/"))
      n.error(nbd->get("listen"), "listen", fmt::format("\"{}\": expected an absolute path", v.nbd_listen));
    else
      n.socket_path("listen", v.nbd_listen.substr(5));
    if (v.nbd_listen.starts_with("unix:") && v.nbd_has_tls())
      n.error(nbd->get("tls_certificate"), "tls_certificate",
              "does not apply to a Unix socket: its file decides who may connect");
    v.nbd_name = v.name;
    n.text("name", v.nbd_name);
    if (v.nbd_name.size() > nbd::Handshake::max_name_bytes)
      n.error(nbd->get("name"), "name",
              fmt::format("longer than the {} bytes that NBD allows", nbd::Handshake::max_name_bytes));
  }
}

// The keys of etcd. Each error names the missing key.
void read_etcd(const Table& t, arbiter::Settings& s) {
  auto at = [&](const char* key) { return t.raw().get(key); };
  t.texts("endpoints", s.endpoints);
  if (s.endpoints.empty())
    return t.error(at("endpoints"), "endpoints",
                   "kind = \"etcd\" needs at least one: [\"http://10.0.0.3:2379\"]");
  if (s.endpoints.size() > arbiter::endpoints_max)
    return t.error(at("endpoints"), "endpoints", fmt::format("more than {}", arbiter::endpoints_max));
  bool tls = false;
  for (auto e = s.endpoints.begin(); e != s.endpoints.end(); ++e) {
    if (Status good = arbiter::check_endpoint(*e); !good)
      t.error(at("endpoints"), "endpoints", good.error().message);
    if (std::find(s.endpoints.begin(), e, *e) != e)
      t.error(at("endpoints"), "endpoints", fmt::format("{} is listed twice", *e));
    tls = tls || arbiter::normal_endpoint(*e).starts_with("https:");
  }
  t.text("prefix", s.prefix);
  if (s.prefix.empty() || s.prefix.size() > arbiter::prefix_bytes_max)
    t.error(at("prefix"), "prefix",
            fmt::format("expected a text of 1 to {} bytes", arbiter::prefix_bytes_max));
  t.path("ca_file", s.ca_file);
  t.path("cert_file", s.cert_file);
  t.path("key_file", s.key_file);
  for (const char* key : {"ca_file", "cert_file", "key_file"})
    if (at(key) && !tls) t.error(at(key), key, "is for TLS, and no endpoint begins with https://");
  if (s.cert_file.empty() != s.key_file.empty())
    t.error(at(s.cert_file.empty() ? "key_file" : "cert_file"),
            s.cert_file.empty() ? "key_file" : "cert_file",
            "a certificate and its key go together: set cert_file and key_file, or neither");
  t.text("user", s.user);
  t.path("password_file", s.password_file);
  if (s.user.empty() != s.password_file.empty())
    return t.error(at(s.user.empty() ? "password_file" : "user"), s.user.empty() ? "password_file" : "user",
                   "user and password_file go together: set both, or neither");
}

// The node of the cluster for each replica, with this replica: { 1 = "mail1", 2 = "mail2" }.
void read_nodes(const Table& t, const VolumeSettings& v, arbiter::Settings& s) {
  const toml::table* nodes = t.child("nodes");
  if (!nodes)
    return t.error(nullptr, "nodes",
                   "kind = \"pacemaker\" needs the cluster's name of every replica's node: { 1 = \"mail1\", "
                   "2 = \"mail2\" }");
  Table n(t, *nodes, fmt::format("volume.{}.arbiter.nodes", v.name));
  for (const auto& [key, value] : *nodes) {
    std::string_view text = key.str();
    ReplicaId id = 0;
    auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), id);
    bool known = id == v.replica || std::any_of(v.peers.begin(), v.peers.end(),
                                                [&](const PeerSettings& p) { return p.id == id; });
    if (ec != std::errc() || end != text.data() + text.size() || !known) {
      n.error(&value, text, "is not a replica of this volume");
      continue;
    }
    std::string name;
    n.text(text, name, true);
    for (const auto& [other, taken] : s.nodes)
      if (taken == name) n.error(&value, text, fmt::format("{} is replica {}'s node already", name, other));
    s.nodes[id] = name;
  }
  if (!s.nodes.contains(v.replica))
    n.error(nullptr, std::to_string(v.replica), "is missing: this replica's own node");
  for (const PeerSettings& p : v.peers)
    if (!s.nodes.contains(p.id))
      n.error(nullptr, std::to_string(p.id), "is missing: every replica needs its node");
}

void read_pacemaker(const Table& t, const VolumeSettings& v, arbiter::Settings& s) {
  read_nodes(t, v, s);
  t.path("programs", s.programs);
  if (s.programs.empty()) return t.error(t.raw().get("programs"), "programs", "must not be empty");
  t.duration("settle", s.settle);
}

void read_arbiter(const Table& t, VolumeSettings& v) {
  const toml::table* table = t.child("arbiter");
  if (!table) return;
  Table a(t, *table, fmt::format("volume.{}.arbiter", v.name));
  using arbiter::Kind;
  arbiter::Settings& s = v.arbiter;
  a.allow({"kind", "timeout", "endpoints", "prefix", "ca_file", "cert_file", "key_file", "user",
           "password_file", "nodes", "programs", "settle"});
  a.choice<Kind>("kind", {{"manual", Kind::manual}, {"etcd", Kind::etcd}, {"pacemaker", Kind::pacemaker}},
                 s.kind);
  for (const auto& [key, value] : *table) {
    bool common = key.str() == "kind" || (key.str() == "timeout" && s.kind != Kind::manual);
    bool of_pacemaker = key.str() == "nodes" || key.str() == "programs" || key.str() == "settle";
    if (common || (s.kind == Kind::pacemaker && of_pacemaker) || (s.kind == Kind::etcd && !of_pacemaker))
      continue;
    a.error(&value, key.str(), fmt::format("does not apply to kind = \"{}\"", arbiter::name_of(s.kind)));
  }
  if (s.kind == Kind::manual) return;
  a.duration("timeout", s.timeout);
  if (s.timeout < arbiter::timeout_min || s.timeout > arbiter::timeout_max)
    a.error(table->get("timeout"), "timeout",
            "expected a time from \"50ms\" to \"9s\": a promotion waits 10 s for the arbiter");
  if (s.kind == Kind::etcd) read_etcd(a, s);
  if (s.kind == Kind::pacemaker) read_pacemaker(a, v, s);
  if (const toml::node* node = t.raw().get("on_peer_loss"))
    return t.error(
        node, "on_peer_loss",
        fmt::format("does not apply: with an arbiter (kind = \"{}\") the arbiter decides which replica "
                    "continues while a member is away. Remove it",
                    arbiter::name_of(s.kind)));
}

void read_link_security(const Table& t, VolumeSettings& v) {
  read_tls_files(t, v.tls);
  t.flag("accept_old_release", v.accept_old_release);
  t.flag("kernel_tls", v.kernel_tls);
  if (v.accept_old_release && v.secret_file.empty())
    t.error(t.raw().get("accept_old_release"), "accept_old_release",
            "needs secret_file: replicas of releases without TLS prove that they know it");
}

void read_resync(const Table& t, VolumeSettings& v) {
  t.size("resync_rate_min", v.resync_rate_min);
  if (v.resync_rate_min < 64u << 10)
    t.error(t.raw().get("resync_rate_min"), "resync_rate_min",
            "expected at least \"64KiB\" a second: a resync has to end");
  const toml::node* target = t.raw().get("resync_latency_target");
  if (!target || target->value<std::string>() != "off")
    return t.duration("resync_latency_target", v.resync_latency_target);
  v.resync_latency_target = Duration(0);
}

void read_balancing(const Table& t, VolumeSettings& v) {
  std::string text = core::text_of(v.read_balancing);
  t.text("read_balancing", text);
  auto policy = core::parse_read_policy(text);
  if (!policy) return t.error(t.raw().get("read_balancing"), "read_balancing", policy.error().message);
  v.read_balancing = *policy;
}

// From the machine's own file alone, since a name service may be slow.
std::optional<gid_t> group_id(const std::string& name) {
  gid_t number = 0;
  auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (ec == std::errc() && end == name.data() + name.size()) return number;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/etc/group", "re"), std::fclose);
  while (const group* g = file ? ::fgetgrent(file.get()) : nullptr)
    if (name == g->gr_name) return g->gr_gid;
  return std::nullopt;
}

void read_status_group(const Table& t, VolumeSettings& v) {
  std::string name;
  t.text("status_group", name);
  v.status_everybody = name == "*";
  if (name.empty() || v.status_everybody) return;
  v.status_group = group_id(name);
  if (!v.status_group)
    t.error(t.raw().get("status_group"), "status_group", fmt::format("no group \"{}\" in /etc/group", name));
}

std::string state_file_beside(const std::string& control, const std::string& name) {
  return (std::filesystem::path(control).parent_path() / (name + ".state")).string();
}

VolumeSettings read_volume(const Table& parent, const std::string& name, const toml::table& table) {
  Table t(parent, table, "volume." + name);
  VolumeSettings v;
  v.name = name;
  v.control = "/run/twinloft/" + name + ".sock";
  t.allow({"uuid",
           "replica",
           "role",
           "size",
           "data",
           "journal",
           "journal_size",
           "arena",
           "listen",
           "secret_file",
           "tls_certificate",
           "tls_key",
           "tls_authority",
           "accept_old_release",
           "kernel_tls",
           "control",
           "state_file",
           "status_group",
           "write_ack",
           "seal_after",
           "peer_timeout",
           "journal_writes_in_flight",
           "on_peer_loss",
           "min_in_sync",
           "slow_peer",
           "resync_latency_target",
           "read_balancing",
           "resync_rate_min",
           "suspend_timeout",
           "archive",
           "spill",
           "site",
           "peer",
           "fuse",
           "ublk",
           "nbd",
           "arbiter"});
  t.text("uuid", v.uuid);
  if (!v.uuid.empty())
    if (auto uuid = Uuid::parse(v.uuid); !uuid) t.error(table.get("uuid"), "uuid", uuid.error().message);
  t.integer("replica", 1, replica_id_max, v.replica, true);
  enum class AtStart { primary, secondary, as_before } role = AtStart::secondary;
  t.choice<AtStart>(
      "role",
      {{"primary", AtStart::primary}, {"secondary", AtStart::secondary}, {"as-before", AtStart::as_before}},
      role, true);
  v.role = role == AtStart::primary ? core::Role::primary : core::Role::secondary;
  v.role_as_before = role == AtStart::as_before;
  t.size("size", v.size);
  if (v.size % block_size != 0) t.error(table.get("size"), "size", "must be a multiple of 4096 bytes");
  t.path("data", v.data, true);
  t.path("journal", v.journal, true);
  if (!v.data.empty() && v.data == v.journal)
    t.error(table.get("journal"), "journal", "must not be the data area itself");
  t.size("journal_size", v.journal_size);
  t.size("arena", v.arena);
  t.texts("listen", v.listen, net::paths_max, false);
  for (const std::string& address : v.listen) t.address("listen", address);
  t.path("secret_file", v.secret_file);
  read_link_security(t, v);
  t.path("control", v.control);
  t.socket_path("control", v.control);
  if (v.control.empty()) t.error(table.get("control"), "control", "must not be empty");
  t.path("state_file", v.state_file);
  if (!table.contains("state_file")) v.state_file = state_file_beside(v.control, name);
  read_status_group(t, v);
  t.choice<bool>("write_ack", {{"memory", false}, {"durable", true}}, v.write_ack_durable);
  t.duration("seal_after", v.seal_after);
  t.network_time("peer_timeout", v.peer_timeout);
  t.integer("journal_writes_in_flight", 1, 64, v.journal_writes_in_flight);
  using core::OnPeerLoss;
  t.choice<OnPeerLoss>("on_peer_loss", {{"suspend", OnPeerLoss::suspend}, {"continue", OnPeerLoss::go_on}},
                       v.on_peer_loss);
  t.network_time("slow_peer", v.slow_peer);
  read_resync(t, v);
  read_balancing(t, v);
  t.duration("suspend_timeout", v.suspend_timeout);
  t.path("archive", v.archive);
  t.path("spill", v.spill);
  read_peers(t, v);
  bool buffers = std::any_of(v.peers.begin(), v.peers.end(),
                             [](const auto& p) { return p.buffer.has_value(); });
  if (!v.spill.empty() && !buffers)
    t.error(table.get("spill"), "spill", "applies to buffered links, and no [[peer]] has a `buffer`");
  read_arbiter(t, v);
  unsigned replicas = 1 + static_cast<unsigned>(v.peers.size());
  t.integer("min_in_sync", 1, replicas, v.min_in_sync);
  read_exports(t, v);
  if (!v.peers.empty() && v.listen.empty()) t.error(nullptr, "listen", "is missing: the volume has a peer");
  return v;
}

// The names that two volumes cannot share. The file system may have other names of the same file (see
// check.h).
void check_names(const std::vector<VolumeSettings>& volumes, const Table& t) {
  std::map<std::string, std::string> users;
  std::map<std::pair<std::string, ReplicaId>, std::string> replicas;
  for (const VolumeSettings& v : volumes) {
    if (v.uuid.empty()) continue;
    auto uuid = Uuid::parse(v.uuid);
    auto [before, fresh] = replicas.emplace(std::pair{uuid ? uuid->text() : v.uuid, v.replica}, v.name);
    if (!fresh)
      t.error(
          t.raw().get("volume"), fmt::format("volume.{}.uuid", v.name),
          fmt::format("{} is replica {} of volume {} already: each volume needs its own (uuidgen prints one)",
                      v.uuid, v.replica, before->second));
  }
  for (const VolumeSettings& v : volumes) {
    std::string unix_nbd = v.nbd_listen.starts_with("unix:") ? v.nbd_listen.substr(5) : v.nbd_listen;
    std::vector<std::pair<const char*, std::string>> names{{"data", v.data},
                                                           {"journal", v.journal},
                                                           {"control", v.control},
                                                           {"state_file", v.state_file},
                                                           {"fuse.file", v.fuse_file},
                                                           {"fuse.device", v.fuse_device},
                                                           {"ublk.device", v.ublk_device},
                                                           {"nbd.listen", unix_nbd}};
    for (const std::string& address : v.listen) names.emplace_back("listen", address);
    for (const auto& [key, name] : names) {
      if (name.empty() || (name.ends_with(":0") && name[0] != '/')) continue;
      std::string place = name[0] == '/' ? std::filesystem::path(name).lexically_normal().string() : name;
      auto [before, fresh] = users.emplace(std::move(place), fmt::format("volume.{}.{}", v.name, key));
      if (!fresh)
        t.error(t.raw().get("volume"), fmt::format("volume.{}.{}", v.name, key),
                fmt::format("{} is {} already", name, before->second));
    }
  }
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
  Problems problems;
  Table t(path, root, "", problems);
  NodeSettings node;
  t.allow({"log_level", "compression_threads", "bandwidth", "bandwidth_at", "link_memory", "volume"});
  read_bandwidth(t, node.bandwidth);
  node.compression_threads = stream::usual_pool_threads();
  t.integer("compression_threads", 1, 256, node.compression_threads);
  t.choice<LogLevel>("log_level",
                     {{"debug", LogLevel::debug},
                      {"info", LogLevel::info},
                      {"warning", LogLevel::warning},
                      {"error", LogLevel::error}},
                     node.log_level);
  const toml::table* volumes = t.child("volume");
  if (!volumes || volumes->empty())
    problems.add(fmt::format("{}: a section [volume.<name>] is missing", path));
  static const toml::table none;  // a reference on both sides: a copy of a table has no line numbers
  for (const auto& [name, value] : volumes ? *volumes : none) {
    const toml::table* table = value.as_table();
    if (!table)
      t.error(&value, "volume", fmt::format("expected [volume.{}]", name.str()));
    else if (name.str().find_first_of("/ \t\n\\\"") != std::string_view::npos || name.str().starts_with("."))
      t.error(&value, "volume", fmt::format("\"{}\" cannot be a volume's name", name.str()));
    else
      node.volumes.push_back(read_volume(t, std::string(name.str()), *table));
  }
  for (VolumeSettings& v : node.volumes) v.compression_threads = node.compression_threads;
  read_link_memory(t, node);
  check_names(node.volumes, t);
  TL_TRY(problems.status());
  return node;
}

}  // namespace twinloft::repl::daemon
