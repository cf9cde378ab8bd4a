// `lmtpd replay`: places what a crash has left in the spool's intake log; makes, removes or sets aside the
// log.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

enum class ReplayMode {
  replay,
  create,     // makes the log
  retire,     // replays, then removes the log
  set_aside,  // renames a log that is refused
};

// The words of this command alone, and the words that remain for read_command_line().
struct ReplayWords {
  ReplayMode mode = ReplayMode::replay;
  std::string spool;  // empty: as configured
  bool json = false;
  std::vector<std::string> rest;
};
// Errors: two modes, or an option without its value.
Result<ReplayWords> read_replay_words(std::span<const std::string> args);

inline constexpr const char* replay_help =
    "usage: lmtpd replay [--create | --retire | --set-aside] [--spool DIR] [--json] [--config FILE]\n"
    "Places the messages of the spool's intake log that a crash has kept out of their Maildirs. Run it "
    "after\n"
    "the spool is mounted, and before Dovecot and lmtpd start, as lmtpd-replay.service does.\n"
    "  --create     makes the log. lmtpd makes it at its first use\n"
    "  --retire     replays, then removes the log: before a downgrade, or another durability\n"
    "  --set-aside  renames a log that is refused, so that lmtpd makes a new one\n"
    "  --spool DIR  the spool is mounted there, such as a snapshot\n"
    "  --json       one JSON object on standard output\n"
    "FILE is /etc/twinloft/lmtpd.toml by default. Started as root, it becomes the user of this file.\n"
    "It overwrites nothing, and makes no Maildir. What it cannot place goes to .twinloft-intake/stuck.\n"
    "Exit codes: 0 everything is in place, or there is no log,\n"
    "73 everything is in place, except for messages in stuck/, or with other content than in the log,\n"
    "75 messages stay in the log, and a later run may place them: the disk is full, or another process\n"
    "has the log,\n"
    "65 the log is refused, the message says why; 74 the file system or its disk failed,\n"
    "77 the log belongs to another user; 69 the spool is not mounted, or cannot have a log,\n"
    "64 wrong usage; 78 the configuration is wrong.\n";

// Returns the exit code, which replay_help explains.
int replay(const std::string& config_path, const ReplayWords& words, std::ostream& out, std::ostream& err);

}  // namespace twinloft::lmtpd
