// `spool-repl cert`: an authority of one's own, and the certificates of replicas.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "command_line.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/durable.h"
#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/net/security.h"
#include "twinloft/tls/authority.h"

namespace twinloft::repl::ctl {

namespace {

constexpr const char* usage_text =
    "usage: spool-repl cert init DIRECTORY [--name NAME] [--days N]\n"
    "       spool-repl cert issue VOLUME --authority DIRECTORY [--replica N] [--host HOST...] [--days N]\n"
    "       spool-repl cert client NAME --authority DIRECTORY [--days N]\n"
    "       spool-repl cert renew CERTIFICATE... --authority DIRECTORY [--days N]\n"
    "       spool-repl cert show CERTIFICATE...\n"
    "\n"
    "Certificates for the links between replicas. An existing file is never overwritten, except by renew.\n"
    "\n"
    "  init                 make an authority: DIRECTORY/authority.pem and authority.key. The key signs "
    "certificates: keep it\n"
    "                       off the machines that serve the volume, or on one of them, readable for root "
    "alone\n"
    "  issue                make DIRECTORY/VOLUME-N.pem and .key for each replica N of the volume\n"
    "  client               make DIRECTORY/client-NAME.pem and .key for a client of an NBD export\n"
    "  renew                replace the certificate by one that ends later. Its key stays\n"
    "  show                 print names and end of certificates\n"
    "\n"
    "  --authority DIR      made by init\n"
    "  --name NAME          of the authority, for people; default \"Twinloft\"\n"
    "  --replica N          of this replica alone\n"
    "  --host HOST          also for this host name or address, which clients of the NBD export look for\n"
    "  --days N             lifetime; default 365, of an authority 3650\n"
    "  --config FILE        default /etc/twinloft/spool-repl.toml\n"
    "\n"
    "Exit: 0 done; 1 failed; 64 usage; 78 configuration.\n";

const CommandLine command{"spool-repl cert", usage_text};

constexpr std::size_t pem_bytes_max = 1u << 20;
constexpr std::int64_t days_of_authority = 3650, days_usual = 365, days_max = 36'500;
constexpr mode_t private_mode = 0600, public_mode = 0644;

struct Options {
  std::string config = "/etc/twinloft/spool-repl.toml", authority, name = "Twinloft", verb;
  std::vector<std::string> words, hosts;
  std::int64_t days = 0;
  unsigned replica = 0;
};

Status fill(const Fd& file, const std::string& path, const std::string& text) {
  TL_TRY(write_all(file.get(), as_bytes(text)));
  TL_TRY(sync_durably(file.get()));
  return sync_parent_durably(path);
}

Status write_new(const std::string& path, const std::string& text, mode_t mode) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return fail_errno(errno, "{}", path);
  Status filled = fill(fd, path, text);
  if (!filled) ::unlink(path.c_str());  // a part would be in the way of the next attempt
  return filled;
}

// The old file stays until the new one is complete.
Status replace(const std::string& path, const std::string& text) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) return fail_errno(errno, "{}", path);
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  TL_TRY(write_new(fresh, text, st.st_mode & 0777));
  if (::rename(fresh.c_str(), path.c_str()) != 0) return fail_errno(errno, "{}", path);
  return sync_parent_durably(path);
}

// Both or none. A key alone would belong to no certificate.
Status write_pair(const std::string& base, const tls::CertificateAndKey& made) {
  const std::string key = base + ".key", certificate = base + ".pem";
  if (::access(certificate.c_str(), F_OK) == 0) return fail_errno(EEXIST, "{}", certificate);
  TL_TRY(write_new(key, made.key, private_mode));
  if (Status written = write_new(certificate, made.certificate, public_mode); !written) {
    ::unlink(key.c_str());
    return written;
  }
  fmt::print("{}\n{}\n", certificate, key);
  return {};
}

tls::Lifetime lifetime(const Options& o, std::int64_t usual) {
  return {OsClock().wall(), o.days != 0 ? o.days : usual};
}

Status init(const Options& o) {
  const std::string& directory = o.words[0];
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(errno, "{}", directory);
  TL_TRY_ASSIGN(tls::CertificateAndKey made, tls::make_authority(o.name, lifetime(o, days_of_authority)));
  TL_TRY(write_pair(directory + "/authority", made));
  fmt::print("{}/authority.pem: the authority \"{}\". Next: spool-repl cert issue VOLUME --authority {}\n",
             directory, o.name, directory);
  return {};
}

Result<tls::CertificateAndKey> read_authority(const std::string& directory) {
  tls::CertificateAndKey out;
  TL_TRY_ASSIGN(out.certificate, read_file(directory + "/authority.pem", pem_bytes_max));
  TL_TRY_ASSIGN(out.key, read_file(directory + "/authority.key", pem_bytes_max));
  return out;
}

Result<daemon::VolumeSettings> find_volume(const Options& o) {
  TL_TRY_ASSIGN(daemon::NodeSettings node, daemon::load_config(o.config));
  for (daemon::VolumeSettings& v : node.volumes) {
    if (v.name != o.words[0]) continue;
    if (v.uuid.empty())
      return fail(Errc::invalid, "volume.{}.uuid is missing in {}: a certificate is for one volume", v.name,
                  o.config);
    return std::move(v);
  }
  return fail(Errc::invalid, "which volume? \"{}\" is not in {}", o.words[0], o.config);
}

// It has no URI, so it is no replica's.
Status client(const Options& o) {
  TL_TRY_ASSIGN(tls::CertificateAndKey authority, read_authority(o.authority));
  if (o.words[0].find('/') != std::string::npos)
    return fail(Errc::invalid, "client: \"{}\" cannot be part of a file's name", o.words[0]);
  TL_TRY_ASSIGN(tls::CertificateAndKey made,
                tls::issue(authority, {"client " + o.words[0], {}}, lifetime(o, days_usual)));
  return write_pair(fmt::format("{}/client-{}", o.authority, o.words[0]), made);
}

Status issue(const Options& o) {
  TL_TRY_ASSIGN(daemon::VolumeSettings volume, find_volume(o));
  std::vector<ReplicaId> ids{volume.replica};
  for (const daemon::PeerSettings& p : volume.peers) ids.push_back(p.id);
  std::sort(ids.begin(), ids.end());
  if (o.replica != 0 && std::find(ids.begin(), ids.end(), o.replica) == ids.end())
    return fail(Errc::invalid, "replica {} is not one of volume {} in {}", o.replica, volume.name, o.config);
  if (o.replica != 0) ids = {o.replica};
  TL_TRY_ASSIGN(tls::CertificateAndKey authority, read_authority(o.authority));
  const Uuid uuid = Uuid::parse(volume.uuid).value();
  for (ReplicaId id : ids) {
    TL_TRY_ASSIGN(
        tls::CertificateAndKey made,
        tls::issue(authority, {fmt::format("replica {}", id), {net::certificate_name(uuid, id)}, o.hosts},
                   lifetime(o, days_usual)));
    TL_TRY(write_pair(fmt::format("{}/{}-{}", o.authority, volume.name, id), made));
  }
  fmt::print(
      "\nEach replica needs its certificate, its key and authority.pem, and in [volume.{}]:\n"
      "tls_certificate = \"...\"\ntls_key = \"...\"\ntls_authority = \"...\"\n",
      volume.name);
  return {};
}

Status renew(const Options& o) {
  TL_TRY_ASSIGN(tls::CertificateAndKey authority, read_authority(o.authority));
  for (const std::string& path : o.words) {
    TL_TRY_ASSIGN(std::string before, read_file(path, pem_bytes_max));
    auto renewed = tls::renew(authority, before, lifetime(o, days_usual));
    if (!renewed) return fail(renewed.error().code, "{}: {}", path, renewed.error().message);
    TL_TRY(replace(path, *renewed));
    fmt::print("{}: renewed. Reload spool-repl where it is used\n", path);
  }
  return {};
}

Status show(const Options& o) {
  for (const std::string& path : o.words) {
    TL_TRY_ASSIGN(std::string pem, read_file(path, pem_bytes_max));
    auto facts = tls::read_certificate(pem);
    if (!facts) return fail(facts.error().code, "{}: {}", path, facts.error().message);
    std::int64_t left = facts->ends - OsClock().wall().seconds;
    fmt::print("{}: \"{}\" by \"{}\", {}\n", path, facts->name, facts->issuer,
               left <= 0 ? std::string("ENDED") : fmt::format("{} day(s) left", left / 86'400));
    for (const auto* names : {&facts->uris, &facts->hosts})
      for (const std::string& name : *names) fmt::print("  {}\n", name);
  }
  return {};
}

std::optional<int> parse(const std::vector<std::string>& arguments, Options& o) {
  po::options_description all;
  all.add_options()("config", po::value(&o.config))("authority", po::value(&o.authority))(
      "name", po::value(&o.name))("replica", po::value(&o.replica))("host", po::value(&o.hosts))(
      "days", po::value(&o.days))("help,h", "")("verb", po::value(&o.verb))("words", po::value(&o.words));
  po::positional_options_description positional;
  positional.add("verb", 1).add("words", -1);
  if (auto done = command.parse(arguments, all, positional)) return done;
  const std::vector<std::string> verbs{"init", "issue", "client", "renew", "show"};
  if (std::find(verbs.begin(), verbs.end(), o.verb) == verbs.end())
    return command.complain_usage(o.verb.empty()
                                      ? "a word is missing: init, issue, client, renew or show"
                                      : fmt::format("unknown: \"{}\"{}", o.verb, meant(o.verb, verbs)));
  bool several = o.verb == "renew" || o.verb == "show";
  const char* one_word = o.verb == "init"    ? ": name one directory"
                         : o.verb == "issue" ? ": name one volume"
                                             : ": name one client";
  if (o.words.empty() || (!several && o.words.size() > 1))
    return command.complain_usage(o.verb + (several ? ": name certificates" : one_word));
  bool signs = o.verb == "issue" || o.verb == "client" || o.verb == "renew";
  if (signs == o.authority.empty())
    return command.complain_usage(signs ? "--authority is missing"
                                        : "--authority does not apply to " + o.verb);
  if (o.days < 0 || o.days > days_max)
    return command.complain_usage(fmt::format("--days: expected a number from 1 to {}", days_max));
  return std::nullopt;
}

}  // namespace

int cert_command(const std::vector<std::string>& arguments) {
  Options o;
  if (auto done = parse(arguments, o)) return *done;
  Status done;
  if (o.verb == "init") done = init(o);
  if (o.verb == "issue") done = issue(o);
  if (o.verb == "client") done = client(o);
  if (o.verb == "renew") done = renew(o);
  if (o.verb == "show") done = show(o);
  if (done) return exit_ok;
  return command.complain(done.error(), done.error().code == Errc::invalid ? exit_config : exit_failed);
}

}  // namespace twinloft::repl::ctl
