// Delivers a bundle's mail to the winner, each message once, also after repeated and interrupted runs.
//
// For each message, the ledger shows whether an earlier run has delivered it. The user's Maildir shows
// whether it is there: an MTA may have delivered it to the winner, or an earlier run may have ended between a
// delivery and its record. Otherwise the message is delivered, between two records. docs/salvage.md
// describes the command, docs/formats/salvage.md explains why it is safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/salvage/bundle.h"
#include "twinloft/spool-repl/salvage/file_ops.h"
#include "twinloft/spool-repl/salvage/target.h"

namespace twinloft::repl::salvage {

enum class Fate : std::uint8_t {
  delivered,
  already_there,    // the winner has the content in one of the user's folders
  done_before,      // by the ledger
  copy_of_another,  // the bundle has the same content for the same user, which is delivered once
  left_deleted,     // may have been in flight at the split; the winner had it, and it was deleted there
  left_uncertain,   // may have been in flight at the split, and such mail is not delivered
  would_deliver,    // a dry run
  deferred,         // refused temporarily: run it again
  refused,          // refused permanently
  unknown,          // sent without a reply: the next run looks for it
  failed,           // could not be delivered or looked for
  not_tried,        // an earlier message has shown that nothing can be delivered now
};
inline constexpr std::size_t fates = 12;
std::string_view to_string(Fate fate);  // "delivered", "already-there", ...
// Whether the winner lacks the message, or may lack it.
bool is_open(Fate fate);

struct MessageFate {
  std::size_t message = 0;  // index in the manifest
  Fate fate = Fate::not_tried;
  std::string detail;
};

struct DeliverOptions {
  std::string domain;  // for users without a domain in the layout: "ann" is ann@domain
  bool dry_run = false;
  bool uncertain = true;  // false: leave mail that may have been in flight at the split
  // true: do not check the spool's marker, and whether the spool is the loser's
  bool any_spool = false;
};

struct DeliverReport {
  std::vector<MessageFate> messages;  // in the manifest's order
  std::vector<std::string> notes;
  std::uint64_t count(Fate fate) const;
  std::uint64_t open() const;
};

// Makes the target for a spool whose root is open; both arguments outlive it.
using MakeTarget = std::function<std::unique_ptr<Target>(int root, FileOps& ops)>;

// spool: of the winner, mounted. progress: may be empty. ops: null for the operating system.
//
// Errors: nothing was delivered. The bundle is damaged, the directory is not the bundle's volume (its marker
// .twinloft-spool) or is the loser's, the ledger cannot be used, or another run is in progress
// (Errc::unavailable). If the ledger fails later, the run ends: the other messages are not_tried, and a note
// has the reason.
Result<DeliverReport> deliver(const Bundle& bundle, const std::string& spool, const MakeTarget& make_target,
                              const DeliverOptions& options,
                              const std::function<void(std::uint64_t done, std::uint64_t total)>& progress,
                              FileOps* ops = nullptr);

}  // namespace twinloft::repl::salvage
