// Which of the messages of before the parting may have been acknowledged after it.
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

// What one Maildir says of when the histories parted: not before its newest message of before it was born,
// and not after its first one of after it was changed.
struct Witness {
  std::optional<std::int64_t> newest_birth_s, first_change_s;
};

// The change after the parting that contradicts the fewest Maildirs; the earliest of several, which makes
// more messages uncertain. Null where it contradicts fewer to believe none. A mail user can make a file of
// old blocks at any time (reflink), and an old file's blocks can be written anew without changing it
// (defragmentation): in his own Maildir, which is one of many.
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

// The newest birth that is not behind the first change after the parting. Where all are behind, the clock was
// set, and the newest has to do.
inline std::optional<std::int64_t> newest_birth(const std::vector<std::int64_t>& births_s,
                                                std::optional<std::int64_t> first_change_s) {
  std::optional<std::int64_t> newest;
  for (std::int64_t born : births_s)
    if (!first_change_s || born <= *first_change_s) newest = std::max(newest.value_or(born), born);
  if (newest || births_s.empty()) return newest;
  return *std::max_element(births_s.begin(), births_s.end());
}

// A message is stored in tmp/, made durable, renamed into new/, and acknowledged. So one whose content is of
// before the parting and whose acknowledgement is not was born shortly before `newest_before_s`, the birth of
// the newest message of before the parting (or is that message), and was renamed, which its change tells,
// after it. What was acknowledged before the parting was renamed before it too: most of it has an older
// change.
//
// `slack`: between the rename and the acknowledgement lies the directory's sync, and newer messages may be
// born meanwhile.
inline bool may_have_been_on_its_way(const Times& message, std::int64_t newest_before_s,
                                     std::chrono::seconds window, std::chrono::seconds slack) {
  return message.born.seconds >= newest_before_s - window.count() &&
         message.changed.seconds >= newest_before_s - slack.count();
}

}  // namespace twinloft::repl::salvage
