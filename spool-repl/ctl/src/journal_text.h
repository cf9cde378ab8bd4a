// The output of `spool-repl journal`.
#pragma once

#include <optional>
#include <string>

#include "twinloft/spool-repl/journal/cut.h"
#include "twinloft/spool-repl/journal/listing.h"

namespace twinloft::repl::ctl {

struct JournalReport {
  const std::string& path;
  const journal::Listing& listing;
  std::optional<Status> data_area;  // whether it fits; nullopt: not checked
  bool in_use = false;
};

std::string journal_text(const JournalReport& report, bool with_records);
std::string journal_json(const JournalReport& report, bool with_records);
std::string cut_text(const journal::History& history, Lsn lsn, const journal::CutReport& report,
                     const std::string& path);
std::string cut_json(const journal::History& history, Lsn lsn, const journal::CutReport& report,
                     const std::string& path);

}  // namespace twinloft::repl::ctl
