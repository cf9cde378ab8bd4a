#include "twinloft/mailbench/options.h"

#include <boost/program_options.hpp>

#include <algorithm>
#include <sstream>

#include "twinloft/base/suggest.h"
#include "twinloft/base/units.h"
#include "twinloft/mailbench/spool.h"
#include "twinloft/mailbench/units.h"

namespace twinloft::mailbench {

namespace {

namespace po = boost::program_options;
using Texts = std::vector<std::string>;

po::options_description load_description() {
  po::options_description d("Options of mailbench load", 110, 60);
  auto text = [] { return po::value<std::string>(); };
  auto number = [] { return po::value<std::uint64_t>(); };
  d.add_options()("to,t", text(), "the LMTP server: HOST:PORT, [IPv6]:PORT or the path of a Unix socket")(
      "server", text(), "the same as --to")("clients,c", number()->default_value(8),
                                            "connections, each with one message in flight")(
      "threads", number()->default_value(1), "threads of the generator, 1 to 64")(
      "duration,d", text(), "time of the measurement, after the warm-up: 30s, 2m")(
      "messages,n", number(), "number of messages; with --duration, the first limit ends the run")(
      "warmup,w", text()->default_value("0s"), "messages are sent and accounted for, but not in the figures")(
      "drain", text()->default_value("30s"), "time limit for messages in flight at the end")(
      "rate,r", po::value<double>(), "open loop: messages a second; latency from the due time of each")(
      "users,u", number()->default_value(1), "number of mailboxes that get the messages")(
      "first-user", number()->default_value(1), "number of the first user")(
      "user-format", text()->default_value("user%u@example.org"),
      "format of the addresses; %u is the number, %05u pads it")(
      "users-file", text(), "read the addresses from this file instead, one in each line")(
      "recipients-per-message", number()->default_value(1), "different mailboxes for each message")(
      "size,s", text()->default_value("4KiB"),
      "message size: 4KiB, uniform:1KiB-64KiB, or lognormal "
      "mean:70KiB[,sigma:1.5][,min:1KiB][,max:2MiB]")("from", text()->default_value("mailbench@example.net"),
                                                      "the sender")(
      "lhlo", text()->default_value("mailbench.invalid"), "the client's name in LHLO")(
      "connections", text()->default_value("reused"), "reused, or per-message")(
      "messages-per-connection", number(), "a new connection after this number of messages")(
      "pipelining", text()->default_value("auto"), "auto: if the server offers it; off: never")(
      "retry", number()->default_value(0),
      "repetitions of a message that was not acknowledged, with the same id")(
      "retry-delay", text()->default_value("1s"), "before a repetition after a 4xx")(
      "timeout", text()->default_value("300s"), "the longest wait for a reply")(
      "connect-timeout", text()->default_value("10s"),
      "end the run if the server accepts no connection for so long")("seed", number()->default_value(1),
                                                                     "seed of sizes, recipients and text")(
      "run", text(), "the run's id, [A-Za-z0-9.] (default: random)")(
      "account", text(), "the account's file (mailbench-RUN.account)")("no-account", "write no account")(
      "json", text(),
      "also write the report as JSON to this file; - is standard output, instead of the text")(
      "quiet,q", "print no progress to standard error")("help,h", "this text");
  return d;
}

po::options_description verify_description() {
  po::options_description d("Options of mailbench verify", 110, 60);
  d.add_options()("account,a", po::value<Texts>()->composing(), "the account of a run; may be repeated")(
      "spool,s", po::value<std::string>(), "the directory above the Maildirs")(
      "maildir-format,m", po::value<Texts>()->composing(),
      "path of a user's Maildir below the spool: '%d/%n/Maildir'; default: users by Delivered-To")(
      "body-only", "do not compare the header lines (if an MTA rewrites them)")(
      "strict-deferred", "a message with 4xx in all attempts must not be stored")(
      "allow-deferred-copies", "an attempt that ended in 4xx may have stored a copy")(
      "threads", po::value<std::uint64_t>()->default_value(0), "reader threads; 0: four for each processor")(
      "show", po::value<std::uint64_t>()->default_value(20), "number of problems of each kind to list")(
      "json", po::value<std::string>(),
      "also write the result as JSON; - is standard output, instead of the text")("help,h", "this text");
  return d;
}

Result<po::variables_map> parse(const po::options_description& description, const Texts& arguments) {
  try {
    po::variables_map map;
    // No abbreviations, since a later option would change the meaning of a script.
    auto style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::positional_options_description none;
    po::store(po::command_line_parser(arguments).options(description).positional(none).style(style).run(),
              map);
    return map;
  } catch (const po::unknown_option& e) {
    std::vector<std::string> names;
    for (const auto& option : description.options()) names.push_back("--" + option->long_name());
    std::vector<std::string_view> known(names.begin(), names.end());
    auto nearest = nearest_word(e.get_option_name(), known);
    return fail(Errc::invalid, "there is no option {}{}", e.get_option_name(),
                nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "");
  } catch (const po::error& e) {
    return fail(Errc::invalid, "{}", e.what());
  }
}

// Boost reads "-1" into an unsigned type as a huge number, so every number has a maximum.
Result<std::uint64_t> bounded(const po::variables_map& map, const char* name, std::uint64_t low,
                              std::uint64_t high) {
  auto value = map[name].as<std::uint64_t>();
  if (value < low || value > high) return fail(Errc::invalid, "--{} is {} to {}", name, low, high);
  return value;
}

Result<Duration> duration(const po::variables_map& map, const char* name) {
  auto parsed = parse_duration(map[name].as<std::string>(), BareNumber::seconds);
  if (!parsed) return fail(Errc::invalid, "--{}: {}", name, parsed.error().message);
  return parsed;
}

std::string text(const po::variables_map& map, const char* name) {
  return map.count(name) ? map[name].as<std::string>() : "";
}

bool is_run_id(std::string_view run) {
  return std::ranges::all_of(run, [](unsigned char c) { return std::isalnum(c) || c == '.'; }) &&
         !run.empty() && run.size() <= 40;
}

Status fill_schedule(const po::variables_map& map, LoadOptions& o) {
  constexpr std::uint64_t kMany = 1'000'000'000'000;
  if (map.count("duration")) {
    TL_TRY_ASSIGN(o.schedule.duration, duration(map, "duration"));
  }
  if (map.count("messages")) {
    TL_TRY_ASSIGN(o.schedule.messages, bounded(map, "messages", 1, kMany));
  }
  if (!o.schedule.duration && !o.schedule.messages)
    return fail(Errc::invalid, "say how much: --duration, --messages, or both");
  TL_TRY_ASSIGN(o.schedule.warmup, duration(map, "warmup"));
  TL_TRY_ASSIGN(o.schedule.drain, duration(map, "drain"));
  if (map.count("rate")) {
    double rate = map["rate"].as<double>();
    if (!(rate > 0 && rate <= 1e7))
      return fail(Errc::invalid, "--rate is more than 0, and at most 10 million");
    o.schedule.rate = rate;
  }
  return {};
}

Status fill_connections(const po::variables_map& map, LoadOptions& o) {
  std::string connections = text(map, "connections"), pipelining = text(map, "pipelining");
  if (connections != "reused" && connections != "per-message")
    return fail(Errc::invalid, "--connections is reused or per-message, not '{}'", connections);
  if (pipelining != "auto" && pipelining != "off")
    return fail(Errc::invalid, "--pipelining is auto or off, not '{}'", pipelining);
  o.pipelining = pipelining == "auto";
  if (map.count("messages-per-connection")) {
    if (connections == "per-message")
      return fail(Errc::invalid,
                  "--connections per-message and --messages-per-connection exclude each other");
    TL_TRY_ASSIGN(o.messages_per_connection, bounded(map, "messages-per-connection", 1, 1'000'000'000));
  } else if (connections == "per-message") {
    o.messages_per_connection = 1;
  }
  TL_TRY_ASSIGN(o.timeout, duration(map, "timeout"));
  TL_TRY_ASSIGN(o.connect_timeout, duration(map, "connect-timeout"));
  TL_TRY_ASSIGN(o.retry_delay, duration(map, "retry-delay"));
  TL_TRY_ASSIGN(std::uint64_t retries, bounded(map, "retry", 0, 1'000'000));
  o.attempts = static_cast<unsigned>(retries) + 1;
  return {};
}

Status fill_messages(const po::variables_map& map, LoadOptions& o) {
  TL_TRY_ASSIGN(o.size, SizeDistribution::parse(text(map, "size")));
  TL_TRY_ASSIGN(o.users, bounded(map, "users", 1, 1'000'000'000));
  o.first_user = map["first-user"].as<std::uint64_t>();
  o.user_format = text(map, "user-format");
  o.users_file = text(map, "users-file");
  TL_TRY_ASSIGN(o.recipients_per_message, bounded(map, "recipients-per-message", 1, 10'000));
  o.from = text(map, "from");
  o.lhlo = text(map, "lhlo");
  for (const std::string& word : {o.from, o.lhlo})
    if (word.find_first_of(" \t\r\n<>") != word.npos)
      return fail(Errc::invalid, "'{}' has blanks, line ends or <> in it", word);
  o.seed = map["seed"].as<std::uint64_t>();
  if (map.count("run")) o.run = text(map, "run");
  if (!is_run_id(o.run)) return fail(Errc::invalid, "--run '{}': 1 to 40 of [A-Za-z0-9.]", o.run);
  return {};
}

std::string usage(std::string_view head, const po::options_description& description) {
  std::ostringstream out;
  out << head << description;
  return out.str();
}

}  // namespace

std::string load_help() {
  return usage(
      "Usage: mailbench load --to SERVER (--duration TIME | --messages N) [options]\n\n"
      "Exit: 0 every recipient acknowledged; 1 some were not; 64 usage; 66 no file of users; 69 no "
      "connection to\n"
      "the server; 73 the account cannot be created; 74 it cannot be written.\n\n",
      load_description());
}

std::string verify_help() {
  return usage(
      "Usage: mailbench verify --account FILE --spool DIR [options]\n\n"
      "Exit: 0 all is there, whole, and once; 1 it is not; 64 usage; 66 the account or the spool is not\n"
      "there or cannot be read, or the account has nothing to prove.\n\n",
      verify_description());
}

Result<LoadCommand> parse_load(const std::vector<std::string>& arguments) {
  TL_TRY_ASSIGN(po::variables_map map, parse(load_description(), arguments));
  LoadCommand c;
  c.help = map.count("help") > 0;
  if (c.help) return c;
  LoadOptions& o = c.load;
  if (map.count("to") + map.count("server") != 1)
    return fail(Errc::invalid, "name the server once: --to HOST:PORT or --to PATH");
  o.server = map.count("to") ? text(map, "to") : text(map, "server");
  TL_TRY_ASSIGN(o.clients, bounded(map, "clients", 1, 50'000));
  TL_TRY_ASSIGN(std::uint64_t threads, bounded(map, "threads", 1, 64));
  o.threads = static_cast<unsigned>(threads);
  TL_TRY(fill_schedule(map, o));
  TL_TRY(fill_connections(map, o));
  TL_TRY(fill_messages(map, o));
  bool no_account = map.count("no-account") > 0;
  o.account = map.count("account") || no_account ? text(map, "account") : "mailbench-" + o.run + ".account";
  if (no_account && !o.account.empty())
    return fail(Errc::invalid, "--account and --no-account exclude each other");
  c.json = text(map, "json");
  o.progress = map.count("quiet") == 0;
  return c;
}

Result<VerifyCommand> parse_verify(const std::vector<std::string>& arguments) {
  TL_TRY_ASSIGN(po::variables_map map, parse(verify_description(), arguments));
  VerifyCommand c;
  c.help = map.count("help") > 0;
  if (c.help) return c;
  if (!map.count("account")) return fail(Errc::invalid, "name the run's account: --account FILE");
  if (!map.count("spool")) return fail(Errc::invalid, "name the spool's directory: --spool DIR");
  VerifyOptions& o = c.verify;
  o.accounts = map["account"].as<Texts>();
  o.spool = text(map, "spool");
  if (map.count("maildir-format")) o.maildir_formats = map["maildir-format"].as<Texts>();
  for (const std::string& format : o.maildir_formats) TL_TRY(DirectoryMap::check(format));
  o.check_head = !map.count("body-only");
  o.strict_deferred = map.count("strict-deferred") > 0;
  o.allow_deferred_copies = map.count("allow-deferred-copies") > 0;
  TL_TRY_ASSIGN(std::uint64_t threads, bounded(map, "threads", 0, 1024));
  o.threads = static_cast<unsigned>(threads);
  TL_TRY_ASSIGN(o.problems_shown, bounded(map, "show", 0, 1'000'000));
  c.json = text(map, "json");
  return c;
}

}  // namespace twinloft::mailbench
