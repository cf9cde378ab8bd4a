// `spool-repl salvage deliver`: delivers the mail of the loser's bundle on the winner of a split brain, each
// message once.
#include <fmt/format.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "command_line.h"
#include "offline.h"
#include "salvage_text.h"
#include "twinloft/spool-repl/net/address.h"
#include "twinloft/spool-repl/salvage/deliver.h"

namespace twinloft::repl::ctl {

namespace {

constexpr const char* usage_text =
    "usage: spool-repl salvage deliver --bundle DIR --spool DIR (--copy | --lmtp ADDRESS) [options]\n"
    "\n"
    "Delivers the mail of a bundle that `spool-repl salvage extract` made of the losing side: what the "
    "winner lacks, once. Run\n"
    "it again after any failure; it goes on where it was.\n"
    "\n"
    "  --bundle DIR         the bundle\n"
    "  --spool DIR          where the winner's volume is mounted\n"
    "  --copy               write into the Maildirs: folders, flags and times are kept\n"
    "  --lmtp ADDRESS       deliver to this LMTP server: host:port, [address]:port or unix:/path. It puts "
    "everything into the\n"
    "                       inbox, as new mail\n"
    "  --domain DOMAIN      with --lmtp: for users whose Maildirs do not tell their domain\n"
    "  --timeout TIME       with --lmtp: for the server's next reply (5min), four times that for the one to "
    "a message\n"
    "  --certain            leave the messages that may have been acknowledged before the parting already\n"
    "  --accept-problems    end with 0 also where the extraction could not take everything: you know what is "
    "missing\n"
    "  --any-spool          also where --spool has no .twinloft-spool, or another volume's, or looks like "
    "the loser's own\n"
    "  --dry-run            say what would be delivered, and change nothing\n"
    "  --list               name every message, not only those that need somebody\n"
    "  --json               all of it as JSON\n"
    "\n"
    "Exit: 0 nothing of the bundle is open, and it has all that the extraction was to take (with --dry-run: "
    "nothing is in the\n"
    "way; with --certain: but for what was left); 1 failed, nothing was delivered; 2 some messages could not "
    "be delivered: run it\n"
    "again; or the extraction had problems; 64 usage; 69 another one is running, or the bundle is not "
    "finished.\n";

constexpr std::chrono::seconds timeout_default{300}, timeout_max{24 * 3600};
const CommandLine command{"spool-repl salvage deliver", usage_text};

struct Options {
  std::string bundle, spool, lmtp;
  std::string timeout_text;
  std::chrono::seconds timeout = timeout_default;
  bool copy = false, certain = false, accept_problems = false, list = false, json = false;
  salvage::DeliverOptions deliver;
};

void add_options(boost::program_options::options_description& known, Options& o) {
  namespace po = boost::program_options;
  auto option = known.add_options();
  option("bundle", po::value(&o.bundle))("spool", po::value(&o.spool))("lmtp", po::value(&o.lmtp));
  option("domain", po::value(&o.deliver.domain))("timeout", po::value(&o.timeout_text))(
      "copy", po::bool_switch(&o.copy));
  option("certain", po::bool_switch(&o.certain))("accept-problems", po::bool_switch(&o.accept_problems))(
      "any-spool", po::bool_switch(&o.deliver.any_spool));
  option("dry-run", po::bool_switch(&o.deliver.dry_run))("list", po::bool_switch(&o.list))(
      "json", po::bool_switch(&o.json))("help,h", "");
}

std::optional<int> parse_deliver(const std::vector<std::string>& arguments, Options& o) {
  boost::program_options::options_description known;
  add_options(known, o);
  if (auto done = command.parse(arguments, known)) return done;
  if (o.bundle.empty() || o.spool.empty()) return command.complain_usage("--bundle and --spool are needed");
  if (o.copy == !o.lmtp.empty()) return command.complain_usage("either --copy or --lmtp");
  if (o.lmtp.empty() && (!o.deliver.domain.empty() || !o.timeout_text.empty()))
    return command.complain_usage("--domain and --timeout are for --lmtp");
  if (!o.timeout_text.empty()) {
    auto given = seconds_of("--timeout", o.timeout_text, std::chrono::seconds(1), timeout_max);
    if (!given) return command.complain_usage(given.error().message);
    o.timeout = *given;
  }
  o.deliver.uncertain = !o.certain;
  return std::nullopt;
}

Result<salvage::LmtpServer> lmtp_server(const std::string& text) {
  salvage::LmtpServer out;
  out.text = text;
  std::string path = text.starts_with("unix:") ? text.substr(5) : text.starts_with("/") ? text : "";
  if (path.empty()) {
    TL_TRY_ASSIGN(net::Address address, net::resolve(text));
    out.address = address.storage;
    out.length = address.length;
    return out;
  }
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  if (path.size() >= sizeof local.sun_path)
    return fail(Errc::invalid, "--lmtp {}: a socket's path has at most {} bytes", text,
                sizeof local.sun_path - 1);
  std::memcpy(local.sun_path, path.c_str(), path.size() + 1);
  std::memcpy(&out.address, &local, sizeof local);
  out.length = sizeof local;
  return out;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "localhost";
}

Result<salvage::MakeTarget> target_of(const Options& o) {
  if (o.copy) return salvage::make_copy_target;
  TL_TRY_ASSIGN(salvage::LmtpServer server, lmtp_server(o.lmtp));
  return [server, options = salvage::LmtpOptions{host_name(), o.timeout, 4 * o.timeout}](
             int, salvage::FileOps&) { return salvage::make_lmtp_target(server, options); };
}

void show_deliver_progress(std::uint64_t done, std::uint64_t total) {
  fmt::print(stderr, "\r{} of {} messages ", done, total);
}

}  // namespace

int salvage_deliver(const std::vector<std::string>& arguments) {
  Options o;
  if (auto done = parse_deliver(arguments, o)) return *done;
  auto target = target_of(o);
  if (!target) return command.complain(target.error(), exit_usage);
  auto bundle = salvage::Bundle::open(o.bundle);
  if (!bundle) return command.complain(bundle.error(), exit_code_of(bundle.error()));
  bool picture = !o.json && ::isatty(STDERR_FILENO) == 1;
  auto report = salvage::deliver(
      *bundle, o.spool, *target, o.deliver,
      picture ? show_deliver_progress : std::function<void(std::uint64_t, std::uint64_t)>());
  if (picture) fmt::print(stderr, "\n");
  if (!report) return command.complain(report.error(), exit_code_of(report.error()));
  DeliveryReport shown{o.bundle, bundle->manifest(), *report, !o.copy, o.deliver.dry_run, o.accept_problems};
  fmt::print("{}", o.json ? delivery_json(shown) : delivery_text(shown, o.list));
  bool whole = bundle->manifest().problems.empty() || o.accept_problems;
  return report->open() == 0 && whole ? exit_ok : exit_incomplete;
}

}  // namespace twinloft::repl::ctl
