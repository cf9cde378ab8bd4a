// What of a losing side's mail was delivered to the winner: a file in the winner's spool, replicated like
// everything there.
//
// Its records are never changed, each is durable before what comes next, and the last one of a (Maildir,
// content) counts: `intent` before a delivery is begun, then what became of it. An intent that stands alone
// says that the process ended in between: the Maildir itself has to be asked. docs/formats/salvage.md has the
// format and the whole protocol.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/salvage/digest.h"
#include "twinloft/spool-repl/salvage/file_ops.h"

namespace twinloft::repl::salvage {

enum class Mark : std::uint8_t {
  intent,     // is about to be delivered
  delivered,  // is durable in the Maildir, or acknowledged by the LMTP server
  present,    // was there already
  undone,     // was not delivered, for certain
};

struct LedgerKey {
  std::string maildir;  // path below the spool's root: however layouts name the user, it is the same
  Sha256 content;
  auto operator<=>(const LedgerKey&) const = default;
};

struct LedgerContent {
  std::map<LedgerKey, Mark> marks;  // the last one of each
  std::uint64_t good_bytes = 0;     // 0: not even the first line is whole
  bool torn = false;                // behind these lies the beginning of a record that was being written
};

inline constexpr const char* ledger_directory_name = ".twinloft-salvage";
inline constexpr const char* ledger_file_name = "ledger";

std::string ledger_first_line();
// The record as it stands at `offset` of the file, with its line end.
std::string encode_ledger_record(const LedgerKey& key, Mark mark, std::uint64_t offset);
// Errors: Errc::corrupt with the line, Errc::invalid for another version.
Result<LedgerContent> decode_ledger(std::string_view text);

class Ledger {
 public:
  // Of the spool whose root is `root`; made where there is none. Held until the object goes:
  // Errc::unavailable where another process has it. Errc::denied where its directory is not this process's
  // own.
  static Result<Ledger> open(int root, FileOps& ops);
  // For looking only: makes and changes nothing, and waits for nobody. append() is an error.
  static Result<Ledger> open_to_look(int root);

  std::optional<Mark> find(const LedgerKey& key) const;
  // Durable when it returns. After an error the object takes nothing more: what the file holds is known to
  // the next open().
  Status append(const LedgerKey& key, Mark mark);
  bool was_torn() const { return content_.torn; }

 private:
  Status load();
  Status make_new();
  Status begin();

  FileOps* ops_ = nullptr;
  int root_ = -1;
  Fd dir_, file_;
  LedgerContent content_;
  std::optional<Error> failed_;
};

}  // namespace twinloft::repl::salvage
