// The command line of `mailbench verify`.
#include "option_parser.h"
#include "twinloft/mailbench/options.h"
#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {

namespace {

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

}  // namespace

std::string verify_help() {
  return usage_text(
      "Usage: mailbench verify --account FILE --spool DIR [options]\n\n"
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
  if (!map.count("spool")) return fail(Errc::invalid, "name the spool's directory: --spool DIR");
  VerifyOptions& o = c.verify;
  o.accounts = map["account"].as<Texts>();
  o.spool = text_option(map, "spool");
  if (map.count("maildir-format")) o.maildir_formats = map["maildir-format"].as<Texts>();
  for (const std::string& format : o.maildir_formats) TL_TRY(DirectoryMap::check(format));
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
