#include "replay.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ostream>
#include <utility>

#include "twinloft/base/json.h"
#include "twinloft/base/log.h"
#include "twinloft/base/process.h"
#include "twinloft/base/random.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/intake/log_directory.h"
#include "twinloft/lmtpd/intake/mount_instance.h"
#include "twinloft/lmtpd/intake/replay.h"
#include "twinloft/lmtpd/intake/upkeep.h"
#include "twinloft/lmtpd/process/confine.h"
#include "twinloft/lmtpd/process/privileges.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

namespace {

std::optional<ReplayMode> mode_of(std::string_view word) {
  if (word == "--create") return ReplayMode::create;
  if (word == "--retire") return ReplayMode::retire;
  if (word == "--set-aside") return ReplayMode::set_aside;
  return std::nullopt;
}

}  // namespace

Result<ReplayWords> read_replay_words(std::span<const std::string> args) {
  constexpr std::string_view spool = "--spool";
  ReplayWords out;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (auto mode = mode_of(word)) {
      if (out.mode != ReplayMode::replay)
        return fail(Errc::invalid, "--create, --retire and --set-aside exclude each other");
      out.mode = *mode;
    } else if (word == "--json") {
      out.json = true;
    } else if (word == spool) {
      if (++i == args.size()) return fail(Errc::invalid, "--spool needs a directory");
      out.spool = args[i];
    } else if (word.starts_with("--spool=")) {
      out.spool = word.substr(spool.size() + 1);
    } else {
      out.rest.push_back(word);
    }
  }
  return out;
}

namespace {

struct Ending {
  int code = 0;
  std::string text;  // whole lines
  json::object object;
};

// Errors of the log itself; those of the configuration and the spool end the command before.
int exit_code_for(const Error& error) {
  switch (error.sys) {
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
      return EX_TEMPFAIL;
    case EIO:
    case EROFS:
    case EUCLEAN:
      return EX_IOERR;
    case EACCES:
    case EPERM:
      return EX_NOPERM;
    default:
      break;
  }
  switch (error.code) {
    case Errc::corrupt:
    case Errc::not_found:
    case Errc::invalid:
    case Errc::conflict:
      return EX_DATAERR;
    case Errc::denied:
      return EX_NOPERM;
    case Errc::exhausted:
      return EX_TEMPFAIL;
    case Errc::unavailable:
      return EX_UNAVAILABLE;
    default:
      return EX_IOERR;
  }
}

std::string_view word_of(Fate fate) {
  switch (fate) {
    case Fate::differs:
      return "differs";
    case Fate::stuck:
      return "stuck";
    case Fate::kept:
      return "kept";
    default:
      return "other";
  }
}

std::string place_of(const ReplayNote& note) {
  return fmt::format("{}{}{}/new/{}", note.maildir, note.folder.empty() ? "" : "/", note.folder, note.name);
}

std::string line_of(const ReplayNote& note) {
  const PlacedOutcome& outcome = note.outcome;
  switch (outcome.fate) {
    case Fate::differs:
      return fmt::format("differs: {}: {}; left as it is; the log's content is in {}\n", place_of(note),
                         outcome.why, outcome.file);
    case Fate::stuck:
      return fmt::format("stuck: {}: {}; the message is in {}\n", place_of(note), outcome.why, outcome.file);
    default:
      return fmt::format("kept in the log: {}: {}\n", place_of(note), outcome.why);
  }
}

int exit_code_for(const ReplayReport& report) {
  if (!report.damage.empty()) return EX_DATAERR;
  int code = 0;
  for (const ReplayNote& note : report.notes) {
    if (note.outcome.fate != Fate::kept) {
      code = std::max(code, EX_CANTCREAT);
      continue;
    }
    return note.outcome.sys == EIO || note.outcome.sys == EROFS ? EX_IOERR : EX_TEMPFAIL;
  }
  return code;
}

json::object object_of(const ReplayReport& report) {
  json::object out;
  out["same_mount"] = report.same_mount;
  for (auto [name, count] : {std::pair("entries", report.entries),
                             {"delivered", report.delivered},
                             {"present", report.present},
                             {"gone", report.gone},
                             {"withdrawn", report.withdrawn},
                             {"dropped", report.dropped},
                             {"differs", report.of(Fate::differs)},
                             {"stuck", report.of(Fate::stuck)},
                             {"kept", report.of(Fate::kept)}})
    out[name] = count;
  out["retired"] = report.retired;
  if (!report.damage.empty()) out["damage"] = json_text(report.damage);
  json::array& notes = (out["notes"] = json::array()).as_array();
  for (const ReplayNote& note : report.notes)
    notes.push_back(json::object{{"number", note.number},
                                 {"fate", word_of(note.outcome.fate)},
                                 {"maildir", json_text(note.maildir)},
                                 {"folder", json_text(note.folder)},
                                 {"name", json_text(note.name)},
                                 {"why", json_text(note.outcome.why)},
                                 {"file", note.outcome.file}});
  return out;
}

std::string text_of(const ReplayReport& report) {
  std::string out;
  for (const ReplayNote& note : report.notes) out += line_of(note);
  if (!report.damage.empty()) out += report.damage + "\n";
  if (report.entries == 0) return out + "the intake log is empty\n";
  if (report.same_mount)
    return out + fmt::format(
                     "the intake log is of this mount, on which nothing was lost: {} messages, of which {} "
                     "were never acknowledged\n",
                     report.entries, report.dropped);
  out += fmt::format(
      "the intake log had {} messages: {} delivered now, {} were there, {} were moved or deleted by readers, "
      "{} "
      "were withdrawn",
      report.entries, report.delivered, report.present + report.of(Fate::differs), report.gone,
      report.withdrawn);
  if (const std::uint64_t stuck = report.of(Fate::stuck)) out += fmt::format(", {} are in stuck/", stuck);
  if (const std::uint64_t kept = report.of(Fate::kept)) out += fmt::format(", {} stay in the log", kept);
  return out + "\n";
}

Ending refused(const Error& error) {
  Ending out{exit_code_for(error), error.message + "\n", {{"error", json_text(error.message)}}};
  if (out.code == EX_DATAERR)
    out.text +=
        "The log is left as it is. \"lmtpd replay --set-aside\" renames it, so that lmtpd makes a new one; "
        "docs/operations.md says what to check before.\n";
  return out;
}

Ending said(std::string state, std::string text, int code = 0) {
  json::object object{{"state", json_text(state)}};
  return {code, std::move(text), std::move(object)};
}

// One run, as the mail user, with the spool open.
class ReplayRun {
 public:
  ReplayRun(const Config& config, const SpoolHandle& spool) : config_(config), spool_(spool) {}

  Ending run(ReplayMode mode) {
    Result<Ending> ending = mode == ReplayMode::create      ? create()
                            : mode == ReplayMode::set_aside ? set_aside()
                                                            : replay_it(mode == ReplayMode::retire);
    return ending ? *std::move(ending) : refused(ending.error());
  }

 private:
  int root() const { return spool_.root.get(); }

  Result<Ending> create() {
    if (LogDirectory::open(root())) return said("exists", "there is an intake log already\n");
    TL_TRY(find_mount_instance(spool_.device));
    TL_TRY(create_log(root(), config_.delivery.intake.log_bytes, random_));
    return said("created", "the intake log was made\n");
  }

  Result<Ending> replay_it(bool retire) {
    TL_TRY_ASSIGN(std::optional<LogPlace> place, find_log(root()));
    if (!place) return said("no log", "there is no intake log\n");
    auto opened = LogDirectory::open(root());
    if (!opened && opened.error().code == Errc::not_found)
      return said("no log", opened.error().message + "\n");  // unfinished, or what is left of one
    TL_TRY_ASSIGN(LogDirectory log, std::move(opened));
    TL_TRY_ASSIGN(MountInstance here, find_mount_instance(spool_.device));
    TL_TRY_ASSIGN(bool mine, log.lock());
    if (!mine) return in_use(log, here, retire);
    TL_TRY_ASSIGN(ReplayReport report, replay_log(log, {root(), here, counts()}, ops_));
    Ending out{exit_code_for(report), text_of(report), object_of(report)};
    if (retire && report.retired) {
      TL_TRY(remove_log(std::move(log), root()));
      out.text += "the intake log was removed\n";
      out.object["removed"] = true;
    }
    return out;
  }

  // lmtpd writes a log only after its replay.
  Result<Ending> in_use(const LogDirectory& log, const MountInstance& here, bool retire) {
    TL_TRY_ASSIGN(LogContent content, look_into_log(log, here));
    if (content.of_this_mount && !retire)
      return said("in use", "lmtpd uses the intake log on this mount: nothing has to be replayed\n");
    return said("in use", "another process uses the intake log, such as lmtpd: stop it first\n", EX_TEMPFAIL);
  }

  // Only a log that nobody can replay: the others have accepted mail.
  Result<Ending> set_aside() {
    if (auto log = LogDirectory::open(root())) {
      TL_TRY_ASSIGN(MountInstance here, find_mount_instance(spool_.device));
      if (look_into_log(*log, here))
        return said("in order", "the intake log is in order, and is not set aside: use \"lmtpd replay\"\n",
                    EX_USAGE);
    }
    auto renamed = set_log_aside(root());
    if (!renamed && renamed.error().code == Errc::not_found)
      return said("no log", "there is no intake log\n");
    if (!renamed && renamed.error().code == Errc::conflict)
      return said("in use", renamed.error().message + "\n", EX_TEMPFAIL);
    TL_TRY_ASSIGN(std::string name, std::move(renamed));
    Ending out = said("set aside", fmt::format("the intake log is {} now\n", name));
    out.object["name"] = name;
    return out;
  }

  std::function<bool(const std::string&)> counts() const {
    const QuotaConfig& quota = config_.delivery.maildir.quota;
    if (quota.driver != QuotaDriver::maildir) return nullptr;
    return [&quota](const std::string& folder) {
      return std::ranges::find(quota.ignored, folder) == quota.ignored.end();
    };
  }

  const Config& config_;
  const SpoolHandle& spool_;
  OsFileOps ops_;
  OsRandom random_;
};

// Becomes the mail user, and is confined as lmtpd's server process.
Status become_mail_user(const Config& config) {
  TL_TRY_ASSIGN(Identity identity, find_identity(config.user, config.group));
  if (Status raised = raise_descriptor_limit(); !raised) log_warning("{}", raised.error().message);
  if (::geteuid() != 0 && ::geteuid() != identity.uid)
    return fail_errno(EPERM, "this is uid {}, and the mail belongs to {}: run it as root, or as that user",
                      ::geteuid(), identity.uid);
  return become_server(identity, config.user);
}

int finish(const Ending& ending, bool as_json, std::ostream& out, std::ostream& err) {
  if (as_json) {
    json::object object = ending.object;
    object["exit"] = ending.code;
    out << indented_json(object);
  } else {
    (ending.code == 0 || ending.code == EX_CANTCREAT ? out : err) << ending.text;
  }
  out.flush();
  return ending.code;
}

}  // namespace

int replay(const std::string& config_path, const ReplayWords& words, std::ostream& out, std::ostream& err) {
  auto config = load_config(config_path);
  if (!config) {
    err << config.error().message << "\n";
    return EX_CONFIG;
  }
  SpoolConfig spool_config = config->delivery.spool;
  if (!words.spool.empty()) spool_config.root = words.spool;
  if (spool_config.root.empty()) {
    err << config->file << ": there is no [spool]: name its directory by --spool\n";
    return EX_CONFIG;
  }
  if (Status became = become_mail_user(*config); !became) {
    err << "user: " << became.error().message << "\n";
    return became.error().sys == EPERM ? EX_NOPERM : EX_CONFIG;
  }
  OsFileOps ops;
  auto spool = Spool::create(spool_config, ops);
  if (!spool) {
    err << "spool: " << spool.error().message << "\n";
    return EX_USAGE;
  }
  auto handle = (*spool)->open();
  if (!handle) {
    err << handle.error().message << "\n";
    return EX_UNAVAILABLE;
  }
  return finish(ReplayRun(*config, *handle).run(words.mode), words.json, out, err);
}

}  // namespace twinloft::lmtpd
