// The command line of `mailbench verify`.
#include <algorithm>

#include "option_parser.h"
#include "twinloft/base/fd.h"
#include "twinloft/mailbench/options.h"
#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {

namespace {

po::options_description verify_description() {
  po::options_description d("Options of mailbench verify", 110, 60);
  d.add_options()("account,a", po::value<Texts>()->composing(), "the account of a run; may be repeated")(
      "spool,s", po::value<std::string>(), "the directory above the Maildirs")(
      "imap", po::value<std::string>(),
      "read the mailboxes of all recipients from this IMAP server instead: HOST:PORT")(
      "imap-user", po::value<std::string>()->default_value("%u"),
      "user name at login: %u is the address, %n its local part; with a master user: '%u*master'")(
      "imap-password-file", po::value<std::string>(),
      "the file whose first line is the password of all users")(
      "imap-security", po::value<std::string>()->default_value("none"), "none, starttls or tls")(
      "tls-ca", po::value<std::string>(), "check the server's certificate by this file of authorities (PEM)")(
      "tls-name", po::value<std::string>(),
      "the name that the certificate must have (default: the host of --imap)")(
      "wait", po::value<std::string>()->default_value("0s"),
      "wait so long for missing messages, for an MTA that delivers after its reply")(
      "queue", po::value<Texts>()->composing(),
      "a directory of the MTA's queue, which must have no file at the end; may be repeated")(
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

Status fill_imap(const po::variables_map& map, VerifyOptions& o) {
  constexpr std::string_view securities[] = {"none", "starttls", "tls"};
  TL_TRY_ASSIGN(std::size_t security, word_option(map, "imap-security", securities));
  o.imap_security = static_cast<ImapClient::Security>(security);
  o.imap = text_option(map, "imap");
  if (o.imap.empty()) {
    for (const char* name : {"imap-password-file", "tls-ca", "tls-name"})
      if (map.count(name)) return fail(Errc::invalid, "--{} needs --imap", name);
    return {};
  }
  if (!o.maildir_formats.empty()) return fail(Errc::invalid, "--maildir-format is for --spool");
  o.imap_user_format = text_option(map, "imap-user");
  TL_TRY(check_address_format("user name", o.imap_user_format));
  if (!map.count("imap-password-file"))
    return fail(Errc::invalid, "name the file with the users' password: --imap-password-file FILE");
  TL_TRY_ASSIGN(o.imap_password, read_file(text_option(map, "imap-password-file"), 4096));
  o.imap_password.resize(std::min(o.imap_password.size(), o.imap_password.find_first_of("\r\n")));
  o.imap_tls = {text_option(map, "tls-ca"), text_option(map, "tls-name")};
  bool checked = !o.imap_tls.authority.empty() || !o.imap_tls.name.empty();
  if (checked && security == 0) return fail(Errc::invalid, "--tls-ca and --tls-name need --imap-security");
  if (o.imap_tls.authority.empty() && !o.imap_tls.name.empty())
    return fail(Errc::invalid, "--tls-name needs --tls-ca: without an authority no certificate is checked");
  return {};
}

}  // namespace

std::string verify_help() {
  return usage_text(
      "Usage: mailbench verify --account FILE (--spool DIR | --imap HOST:PORT) [options]\n\n"
      "Exit: 0 all is there, whole, and once; 1 it is not; 64 usage; 66 the account or the spool is not\n"
      "there or cannot be read, or the account has nothing to prove.\n\n",
      verify_description());
}

Result<VerifyCommand> parse_verify(const std::vector<std::string>& arguments) {
  TL_TRY_ASSIGN(po::variables_map map, parse_arguments(verify_description(), arguments));
  VerifyCommand c;
  c.help = map.count("help") > 0;
  if (c.help) return c;
  if (!map.count("account")) return fail(Errc::invalid, "name the run's account: --account FILE");
  if (map.count("spool") + map.count("imap") != 1)
    return fail(Errc::invalid, "name what to read: --spool DIR, or --imap HOST:PORT");
  VerifyOptions& o = c.verify;
  o.accounts = map["account"].as<Texts>();
  o.spool = text_option(map, "spool");
  if (map.count("maildir-format")) o.maildir_formats = map["maildir-format"].as<Texts>();
  for (const std::string& format : o.maildir_formats) TL_TRY(DirectoryMap::check(format));
  TL_TRY_ASSIGN(o.wait, duration_option(map, "wait"));
  if (map.count("queue")) o.queues = map["queue"].as<Texts>();
  TL_TRY(fill_imap(map, o));
  o.check_head = !map.count("body-only");
  o.strict_deferred = map.count("strict-deferred") > 0;
  o.allow_deferred_copies = map.count("allow-deferred-copies") > 0;
  TL_TRY_ASSIGN(std::uint64_t threads, bounded(map, "threads", 0, 1024));
  o.threads = static_cast<unsigned>(threads);
  TL_TRY_ASSIGN(o.problems_shown, bounded(map, "show", 0, 1'000'000));
  c.json = text_option(map, "json");
  return c;
}

}  // namespace twinloft::mailbench
