// Which messages from before the split may have been acknowledged after it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "twinloft/spool-repl/salvage/file_ops.h"

namespace twinloft::repl::salvage {

struct Times {
  FileTime modified, changed, born;
};

// The limits that a Maildir gives for the time of the split: after the birth of its newest message from
// before the split, and before the first change of a message from after the split.
struct Witness {
  std::optional<std::int64_t> newest_birth_s, first_change_s;
};

// The change after the split that contradicts the fewest Maildirs. Of several, the earliest, which makes more
// messages uncertain. Empty if ignoring all changes contradicts fewer. A Maildir can be wrong: users can make
// files from old blocks (reflink), or rewrite blocks without a change (defragmentation).
inline std::optional<std::int64_t> first_credible_change(const std::vector<Witness>& witnesses) {
  std::vector<std::int64_t> births, changes;
  for (const Witness& w : witnesses) {
    if (w.newest_birth_s) births.push_back(*w.newest_birth_s);
    if (w.first_change_s) changes.push_back(*w.first_change_s);
  }
  std::sort(births.begin(), births.end());
  std::sort(changes.begin(), changes.end());
  std::optional<std::int64_t> best;
  auto fewest = static_cast<std::ptrdiff_t>(changes.size()) + 1;
  for (std::int64_t change : changes) {
    auto earlier = std::lower_bound(changes.begin(), changes.end(), change) - changes.begin();
    auto born_later = births.end() - std::upper_bound(births.begin(), births.end(), change);
    if (earlier + born_later >= fewest) continue;
    fewest = earlier + born_later;
    best = change;
  }
  return best;
}

// The newest birth before the first change after the split. If all are later, the clock was set, and the
// newest birth is used.
inline std::optional<std::int64_t> newest_birth(const std::vector<std::int64_t>& births_s,
                                                std::optional<std::int64_t> first_change_s) {
  std::optional<std::int64_t> newest;
  for (std::int64_t born : births_s)
    if (!first_change_s || born <= *first_change_s) newest = std::max(newest.value_or(born), born);
  if (newest || births_s.empty()) return newest;
  return *std::max_element(births_s.begin(), births_s.end());
}

// A message is stored in tmp/, made durable, renamed into new/, and acknowledged. If the split came before
// the acknowledgement, the message was not born long before `newest_before_s`, the birth of the newest
// message from before the split. Its rename came later, which its change time shows. Most messages that were
// acknowledged before the split have an older change time.
//
// `slack`: the directory's sync is between the rename and the acknowledgement, and newer messages may be
// born in this time.
inline bool may_have_been_on_its_way(const Times& message, std::int64_t newest_before_s,
                                     std::chrono::seconds window, std::chrono::seconds slack) {
  return message.born.seconds >= newest_before_s - window.count() &&
         message.changed.seconds >= newest_before_s - slack.count();
}

}  // namespace twinloft::repl::salvage
