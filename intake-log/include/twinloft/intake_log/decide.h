// What a replay does with an entry. docs/formats/intake-log.md has the table and its reasons. Pure.
#pragma once

#include <string_view>

namespace twinloft::intake_log {

// Where the entry's file is: in new/ or, with any flags, in cur/ of its folder.
enum class Presence {
  unknown,  // nobody has looked
  absent,
  same,     // with the content of the log
  differs,  // with other content
};

struct EntryFacts {
  bool retired = false;        // its number is below what the newest group calls retired
  bool cancelled = false;      // a group has a cancel record for it
  bool settled = false;        // the mark says so
  bool on_same_mount = false;  // the entry was written on the mount that the replay runs on
  Presence presence = Presence::unknown;
};

// Whether decide() has to know the presence.
bool depends_on_presence(const EntryFacts& facts);

enum class Verdict {
  leave,    // nothing is done
  deliver,  // the file is placed in new/
  drop,     // nothing is done: the entry was never acknowledged
};
enum class Why {
  retired,       // it is durable in its Maildir
  cancelled,     // the client has got a 451, or has sent the message again
  renamed_here,  // this mount has the name
  unanswered,    // the process ended before the 250
  present,       // the name survived, and so did the content
  taken_away,    // a reader has moved or deleted the message
  missing,       // the name did not survive
};
struct Decision {
  Verdict verdict = Verdict::leave;
  Why why = Why::retired;
  bool report_difference = false;  // the file is left as it is, and its content is not that of the log
  bool operator==(const Decision&) const = default;
};
// The presence must be known if depends_on_presence().
Decision decide(const EntryFacts& facts);

std::string_view to_string(Verdict verdict);
std::string_view to_string(Why why);

}  // namespace twinloft::intake_log
