// Delivers a bundle's mail to the winner, each message once, however often it is run and wherever it was
// ended.
//
// For each message: the ledger says whether it was done; the user's Maildir, whether it is there (an MTA may
// have tried again on the winner's side; an earlier run may have ended between a delivery and its record);
// only then is it delivered, between two records. docs/spool-repl.md says what an administrator sees of it,
// docs/formats/salvage.md why it is safe.
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
  already_there,    // the winner has that content in one of the user's folders
  done_before,      // says the ledger
  copy_of_another,  // the bundle has the same content for the same user, which is delivered once
  left_deleted,     // may have been on its way; the winner had it, and deleted it
  left_uncertain,   // may have been on its way, and those are not to be delivered
  would_deliver,    // a dry run
  deferred,         // refused for now: run it again
  refused,          // refused for good
  unknown,          // handed over without a reply: the next run looks whether it is there
  failed,           // could not be delivered, or not be looked for
  not_tried,        // an earlier one showed that nothing can be delivered now
};
inline constexpr std::size_t fates = 12;
std::string_view to_string(Fate fate);  // "delivered", "already-there", ...
// Neither delivered nor settled otherwise: mail that the winner still lacks, or may lack.
bool is_open(Fate fate);

struct MessageFate {
  std::size_t message = 0;  // index in the manifest
  Fate fate = Fate::not_tried;
  std::string detail;
};

struct DeliverOptions {
  std::string domain;  // for users whose layout knows none: "ann" is ann@domain
  bool dry_run = false;
  bool uncertain = true;  // false: leave what may have been on its way
  // true: do not ask for the spool's marker, nor whether it is the loser's own
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

// `spool`: the winner's, mounted. `progress` may be empty. `ops` null: the operating system.
//
// Errors are those by which nothing was delivered: the bundle is damaged, the directory is not the bundle's
// volume (its marker .twinloft-spool) or the loser's own, the ledger can not be used, or Errc::unavailable:
// another run is under way. A ledger that fails in the middle ends the run: the rest is not_tried, and a note
// says why.
Result<DeliverReport> deliver(const Bundle& bundle, const std::string& spool, const MakeTarget& make_target,
                              const DeliverOptions& options,
                              const std::function<void(std::uint64_t done, std::uint64_t total)>& progress,
                              FileOps* ops = nullptr);

}  // namespace twinloft::repl::salvage
