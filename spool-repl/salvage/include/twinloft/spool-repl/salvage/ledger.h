// The ledger of the losing side's mail that was delivered to the winner: a file in the winner's spool, which
// is replicated with it.
//
// Records are not changed. Each record is durable before the next step, and the last record of a pair
// (Maildir, content) counts: `intent` before a delivery, then its outcome. An intent without an outcome means
// that the process has ended in between, and the Maildir itself must be searched. docs/formats/salvage.md has
// the format and the protocol.
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
  intent,     // the delivery is about to begin
  delivered,  // durable in the Maildir, or acknowledged by the LMTP server
  present,    // was in the Maildir already
  undone,     // certainly not delivered
};

struct LedgerKey {
  std::string maildir;  // the path below the spool's root, which does not depend on the layout
  Sha256 content;
  auto operator<=>(const LedgerKey&) const = default;
};

struct LedgerContent {
  std::map<LedgerKey, Mark> marks;  // the last mark of each key
  std::uint64_t good_bytes = 0;     // of complete records; 0: the first line is not complete
  bool torn = false;                // an incomplete record follows
};

inline constexpr const char* ledger_directory_name = ".twinloft-salvage";
inline constexpr const char* ledger_file_name = "ledger";

std::string ledger_first_line();
// The record for `offset` of the file, with its line end.
std::string encode_ledger_record(const LedgerKey& key, Mark mark, std::uint64_t offset);
// Errors: Errc::corrupt with the line, Errc::invalid for another version.
Result<LedgerContent> decode_ledger(std::string_view text);

class Ledger {
 public:
  // Opens or creates the ledger of the spool with this root, and locks it until the destructor. Errors:
  // Errc::unavailable (another process has the lock), Errc::denied (the directory belongs to another user).
  static Result<Ledger> open(int root, FileOps& ops);
  // Opens the ledger for reading, without a lock or a change. append() is an error.
  static Result<Ledger> open_to_look(int root);

  std::optional<Mark> find(const LedgerKey& key) const;
  // Appends a record durably. After an error, every later call fails, since only the next open() knows the
  // file's content.
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
