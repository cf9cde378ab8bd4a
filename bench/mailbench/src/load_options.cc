// The command line of `mailbench load` and of those that run loads too.
#include <fmt/format.h>

#include "option_parser.h"
#include "twinloft/base/units.h"
#include "twinloft/mailbench/options.h"
#include "twinloft/mailbench/units.h"

namespace twinloft::mailbench {

namespace {

auto text() {
  return po::value<std::string>();
}
auto number() {
  return po::value<std::uint64_t>();
}

void add_target_options(po::options_description& d) {
  auto o = d.add_options();
  o("to,t", text(), "the server: HOST:PORT, [IPv6]:PORT or the path of a Unix socket");
  o("server", text(), "the same as --to");
  o("protocol", text()->default_value("lmtp"), "lmtp, or smtp: for an MTA (see mailbench verify --wait)");
}

void add_client_options(po::options_description& d) {
  auto o = d.add_options();
  o("clients,c", number()->default_value(8), "connections, each with one message in flight");
  o("threads", number()->default_value(1), "threads of the generator, 1 to 64");
}

void add_schedule_options(po::options_description& d) {
  auto o = d.add_options();
  o("duration,d", text(), "time of the measurement, after the warm-up: 30s, 2m");
  o("messages,n", number(), "number of messages; with --duration, the first limit ends the run");
  o("ramp", text()->default_value("0s"),
    "before the warm-up: clients begin one after the other; with --rate, the rate grows");
  o("warmup,w", text()->default_value("0s"), "messages are sent and accounted for, but not in the figures");
  o("drain", text()->default_value("30s"), "time limit for messages in flight at the end");
  o("rate,r", po::value<double>(), "open loop: messages a second; latency from the due time of each");
  o("arrivals", text()->default_value("constant"), "with --rate: constant, or poisson");
}

void add_message_options(po::options_description& d) {
  auto o = d.add_options();
  o("users,u", number()->default_value(1), "number of mailboxes that get the messages");
  o("first-user", number()->default_value(1), "number of the first user");
  o("user-format", text()->default_value("user%u@example.org"),
    "format of the addresses; %u is the number, %05u pads it");
  o("users-file", text(), "read the addresses from this file instead, one in each line");
  o("zipf", po::value<double>()->default_value(0),
    "exponent of Zipf's law: a few users get most mail (1 is usual); 0: all are alike");
  o("size,s", text()->default_value("4KiB"),
    "message size: 4KiB, uniform:1KiB-64KiB, or lognormal mean:70KiB[,sigma:1.5][,min:1KiB][,max:2MiB]");
  o("messages-from", text(), "send the messages of this directory, Maildir or mbox, at random");
  o("from", text()->default_value("mailbench@example.net"), "the sender");
  o("seed", number()->default_value(1), "seed of arrivals, sizes, recipients and text");
}

void add_connection_options(po::options_description& d) {
  auto o = d.add_options();
  o("hello,lhlo", text()->default_value("mailbench.invalid"), "the client's name in LHLO or EHLO");
  o("recipients-per-message", number()->default_value(1), "different mailboxes for each message");
  o("connections", text()->default_value("reused"), "reused, or per-message");
  o("messages-per-connection", number(), "a new connection after this number of messages");
  o("pipelining", text()->default_value("auto"), "auto: if the server offers it; off: never");
  o("starttls", "encrypt the connections; the server must offer it");
  o("tls-ca", text(), "check the server's certificate by this file of authorities (PEM)");
  o("tls-name", text(), "the name that the certificate must have (default: the host of --to)");
  o("bdat", "send messages by BDAT (CHUNKING) in place of DATA; the server must offer it");
  o("chunk", text(), "with --bdat: bytes of a chunk (default: the whole message)");
  o("retry", number()->default_value(0),
    "repetitions of a message that was not acknowledged, with the same id");
  o("retry-delay", text()->default_value("1s"), "before a repetition after a 4xx");
  o("backoff-max", text()->default_value("1s"), "the longest pause before a lost connection is made again");
  o("connect-timeout", text()->default_value("10s"),
    "end the run if the server accepts no connection for so long");
}

void add_output_options(po::options_description& d) {
  auto o = d.add_options();
  o("timeout", text()->default_value("300s"), "the longest wait for a reply, or for a program's end");
  o("run", text(), "the run's id, [A-Za-z0-9.] (default: random)");
  o("account", text(), "the account's file (mailbench-RUN.account)");
  o("no-account", "write no account");
  o("json", text(), "also write the report as JSON to this file; - is standard output, instead of the text");
  o("hgrm", text(),
    "also write the latencies of successes to this file, as HdrHistogram's plotters read them");
  o("quiet,q", "print no progress to standard error");
  o("help,h", "this text");
}

void add_search_options(po::options_description& d) {
  auto o = d.add_options();
  o("search", text(), "find the highest rate that keeps a promise: 'p99<50ms,failed<0.1%'");
  o("search-precision", po::value<double>()->default_value(3), "percent to which the rate is found");
  o("search-confirm", number()->default_value(2), "further trials that the found rate must pass");
}

po::options_description load_description() {
  po::options_description d("Options of mailbench load", 110, 60);
  add_target_options(d);
  add_client_options(d);
  add_schedule_options(d);
  add_message_options(d);
  add_connection_options(d);
  add_search_options(d);
  add_output_options(d);
  return d;
}

po::options_description calibrate_description() {
  po::options_description d("Options of mailbench calibrate", 110, 60);
  d.add_options()("transport", text()->default_value("unix"), "unix, or tcp: on the loopback interface");
  add_client_options(d);
  add_schedule_options(d);
  add_message_options(d);
  add_connection_options(d);
  add_output_options(d);
  return d;
}

Status fill_schedule(const po::variables_map& map, LoadOptions& o) {
  constexpr std::uint64_t kMany = 1'000'000'000'000;
  if (map.count("duration")) {
    TL_TRY_ASSIGN(o.schedule.duration, duration_option(map, "duration"));
  }
  if (map.count("messages")) {
    TL_TRY_ASSIGN(o.schedule.messages, bounded(map, "messages", 1, kMany));
  }
  if (!o.schedule.duration && !o.schedule.messages)
    return fail(Errc::invalid, "say how much: --duration, --messages, or both");
  TL_TRY_ASSIGN(o.schedule.ramp, duration_option(map, "ramp"));
  TL_TRY_ASSIGN(o.schedule.warmup, duration_option(map, "warmup"));
  TL_TRY_ASSIGN(o.schedule.drain, duration_option(map, "drain"));
  if (map.count("rate")) {
    double rate = map["rate"].as<double>();
    if (!(rate > 0 && rate <= 1e7))
      return fail(Errc::invalid, "--rate is more than 0, and at most 10 million");
    o.schedule.rate = rate;
  }
  constexpr std::string_view arrivals[] = {"constant", "poisson"};
  TL_TRY_ASSIGN(std::size_t kind, word_option(map, "arrivals", arrivals));
  o.schedule.arrivals = kind == 0 ? Arrivals::Kind::constant : Arrivals::Kind::poisson;
  bool searched = map.count("search") > 0;
  if (kind == 1 && !o.schedule.rate && !searched)
    return fail(Errc::invalid, "--arrivals poisson needs --rate: a closed loop has no arrivals of its own");
  return {};
}

Status fill_clients(const po::variables_map& map, LoadOptions& o) {
  TL_TRY_ASSIGN(o.clients, bounded(map, "clients", 1, 50'000));
  TL_TRY_ASSIGN(std::uint64_t threads, bounded(map, "threads", 1, 64));
  o.threads = static_cast<unsigned>(threads);
  return {};
}

Status fill_tls(const po::variables_map& map, LoadOptions& o) {
  if (map.count("starttls"))
    o.starttls = TlsSettings{text_option(map, "tls-ca"), text_option(map, "tls-name")};
  else if (map.count("tls-ca") || map.count("tls-name"))
    return fail(Errc::invalid, "--tls-ca and --tls-name need --starttls");
  if (!o.starttls) return {};
  if (o.starttls->authority.empty() && !o.starttls->name.empty())
    return fail(Errc::invalid, "--tls-name needs --tls-ca: without an authority no certificate is checked");
  if (!o.starttls->authority.empty() && o.starttls->name.empty() && o.server.find('/') != std::string::npos)
    return fail(Errc::invalid, "a Unix socket has no name: give the certificate's name by --tls-name");
  return {};
}

Status fill_bdat(const po::variables_map& map, LoadOptions& o) {
  o.bdat = map.count("bdat") > 0;
  if (!map.count("chunk")) return {};
  if (!o.bdat) return fail(Errc::invalid, "--chunk needs --bdat");
  auto chunk = parse_size(text_option(map, "chunk"));
  if (!chunk || *chunk < 64)
    return fail(Errc::invalid, "--chunk is a size of at least 64 bytes, such as 64KiB");
  o.chunk = *chunk;
  return {};
}

Status fill_connections(const po::variables_map& map, LoadOptions& o) {
  constexpr std::string_view connections[] = {"reused", "per-message"}, pipelining[] = {"auto", "off"};
  TL_TRY_ASSIGN(std::size_t per_message, word_option(map, "connections", connections));
  TL_TRY_ASSIGN(std::size_t off, word_option(map, "pipelining", pipelining));
  o.pipelining = off == 0;
  if (map.count("messages-per-connection")) {
    if (per_message)
      return fail(Errc::invalid,
                  "--connections per-message and --messages-per-connection exclude each other");
    TL_TRY_ASSIGN(o.messages_per_connection, bounded(map, "messages-per-connection", 1, 1'000'000'000));
  } else if (per_message) {
    o.messages_per_connection = 1;
  }
  TL_TRY_ASSIGN(o.recipients_per_message, bounded(map, "recipients-per-message", 1, 10'000));
  TL_TRY_ASSIGN(o.connect_timeout, duration_option(map, "connect-timeout"));
  TL_TRY_ASSIGN(o.backoff_max, duration_option(map, "backoff-max"));
  if (o.backoff_max < std::chrono::milliseconds(1))
    return fail(Errc::invalid, "--backoff-max is at least 1ms");
  TL_TRY_ASSIGN(o.retry_delay, duration_option(map, "retry-delay"));
  TL_TRY_ASSIGN(std::uint64_t retries, bounded(map, "retry", 0, 1'000'000));
  o.attempts = static_cast<unsigned>(retries) + 1;
  o.hello = text_option(map, "hello");
  TL_TRY(check_word(o.hello));
  TL_TRY(fill_tls(map, o));
  return fill_bdat(map, o);
}

Status fill_users(const po::variables_map& map, LoadOptions& o) {
  TL_TRY_ASSIGN(o.users, bounded(map, "users", 1, 1'000'000'000));
  o.first_user = map["first-user"].as<std::uint64_t>();
  o.user_format = text_option(map, "user-format");
  o.users_file = text_option(map, "users-file");
  o.zipf = map["zipf"].as<double>();
  if (!(o.zipf >= 0 && o.zipf <= 10)) return fail(Errc::invalid, "--zipf is 0 to 10");
  return {};
}

Status fill_messages(const po::variables_map& map, LoadOptions& o) {
  TL_TRY_ASSIGN(o.size, SizeDistribution::parse(text_option(map, "size")));
  o.messages_from = text_option(map, "messages-from");
  if (!o.messages_from.empty() && !map["size"].defaulted())
    return fail(Errc::invalid, "--messages-from and --size exclude each other");
  o.from = text_option(map, "from");
  TL_TRY(check_word(o.from));
  o.schedule.seed = o.seed = map["seed"].as<std::uint64_t>();
  return {};
}

Status fill_output(const po::variables_map& map, bool account_by_default, RunCommand& c) {
  LoadOptions& o = c.load;
  TL_TRY_ASSIGN(o.timeout, duration_option(map, "timeout"));
  if (map.count("run")) o.run = text_option(map, "run");
  if (!is_run_id(o.run)) return fail(Errc::invalid, "--run '{}': 1 to 40 of [A-Za-z0-9.]", o.run);
  bool no_account = map.count("no-account") > 0;
  if (map.count("account"))
    o.account = text_option(map, "account");
  else if (account_by_default && !no_account)
    o.account = "mailbench-" + o.run + ".account";
  if (no_account && !o.account.empty())
    return fail(Errc::invalid, "--account and --no-account exclude each other");
  c.json = text_option(map, "json");
  c.hgrm = text_option(map, "hgrm");
  o.progress = map.count("quiet") == 0;
  return {};
}

Status fill_search(const po::variables_map& map, LoadCommand& c) {
  if (!map.count("search")) return {};
  TL_TRY_ASSIGN(c.search, Promise::parse(text_option(map, "search")));
  if (!c.load.schedule.duration || c.load.schedule.messages)
    return fail(Errc::invalid, "--search needs --duration, for each trial, and no --messages");
  if (!c.hgrm.empty()) return fail(Errc::invalid, "--hgrm and --search exclude each other");
  double percent = map["search-precision"].as<double>();
  if (!(percent >= 0.1 && percent <= 50))
    return fail(Errc::invalid, "--search-precision is 0.1 to 50 percent");
  c.search_precision = percent / 100;
  TL_TRY_ASSIGN(std::uint64_t confirm, bounded(map, "search-confirm", 0, 100));
  c.search_confirmations = static_cast<unsigned>(confirm);
  return {};
}

}  // namespace

void add_lda_options(po::options_description& d) {
  add_schedule_options(d);
  add_message_options(d);
  add_output_options(d);
}

Status fill_lda(const po::variables_map& map, RunCommand& c) {
  TL_TRY(fill_schedule(map, c.load));
  TL_TRY(fill_users(map, c.load));
  TL_TRY(fill_messages(map, c.load));
  return fill_output(map, true, c);
}

std::string load_help() {
  return usage_text(
      "Usage: mailbench load --to SERVER (--duration TIME | --messages N) [options]\n\n"
      "Exit: 0 every recipient acknowledged (--search: a rate was found); 1 not; 64 usage; 66 no file of "
      "users\n"
      "or messages; 69 no connection to the server; 73 the account cannot be created; 74 it cannot be "
      "written.\n\n",
      load_description());
}

std::string calibrate_help() {
  return usage_text(
      "Usage: mailbench calibrate (--duration TIME | --messages N) [options]\n\n"
      "Loads a server inside of mailbench that throws messages away, and so tells what the generator can do "
      "on\n"
      "this machine. Exit: 0; 64 usage; 71 the server cannot be started.\n\n",
      calibrate_description());
}

Result<LoadCommand> parse_load(const std::vector<std::string>& arguments) {
  TL_TRY_ASSIGN(po::variables_map map, parse_arguments(load_description(), arguments));
  LoadCommand c;
  c.help = map.count("help") > 0;
  if (c.help) return c;
  LoadOptions& o = c.load;
  if (map.count("to") + map.count("server") != 1)
    return fail(Errc::invalid, "name the server once: --to HOST:PORT or --to PATH");
  o.server = map.count("to") ? text_option(map, "to") : text_option(map, "server");
  constexpr std::string_view protocols[] = {"lmtp", "smtp"};
  TL_TRY_ASSIGN(std::size_t protocol, word_option(map, "protocol", protocols));
  o.protocol = protocol == 0 ? Protocol::lmtp : Protocol::smtp;
  TL_TRY(fill_schedule(map, o));
  TL_TRY(fill_clients(map, o));
  TL_TRY(fill_connections(map, o));
  TL_TRY(fill_users(map, o));
  TL_TRY(fill_messages(map, o));
  TL_TRY(fill_output(map, true, c));
  TL_TRY(fill_search(map, c));
  return c;
}

Result<CalibrateCommand> parse_calibrate(const std::vector<std::string>& arguments) {
  TL_TRY_ASSIGN(po::variables_map map, parse_arguments(calibrate_description(), arguments));
  CalibrateCommand c;
  c.help = map.count("help") > 0;
  if (c.help) return c;
  constexpr std::string_view transports[] = {"unix", "tcp"};
  TL_TRY_ASSIGN(std::size_t transport, word_option(map, "transport", transports));
  c.tcp = transport == 1;
  TL_TRY(fill_schedule(map, c.load));
  TL_TRY(fill_clients(map, c.load));
  TL_TRY(fill_connections(map, c.load));
  if (c.load.starttls) return fail(Errc::invalid, "the server of calibrate has no TLS: leave --starttls out");
  TL_TRY(fill_users(map, c.load));
  TL_TRY(fill_messages(map, c.load));
  TL_TRY(fill_output(map, false, c));
  return c;
}

}  // namespace twinloft::mailbench
