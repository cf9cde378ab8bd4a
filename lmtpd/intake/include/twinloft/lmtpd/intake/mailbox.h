// A folder of a Maildir, as replay reads it: which messages are there, and their content on the disk.
//
// Below the Maildir no link is followed, and each directory must be owned by this process's user. So a name
// in a log never leads into somebody else's directory. Nothing is made here. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/spool/file_ops.h"

namespace twinloft::lmtpd {

class Mailbox {
 public:
  // maildir: relative to the root, where links that stay beneath the root are followed, as by a delivery.
  // folder: a name in the Maildir, such as ".Lists.dev"; "": the inbox. Errors: Errc::not_found if a
  // directory is missing, Errc::denied for a link, another owner or a path that leads out; the message says
  // which.
  static Result<Mailbox> open(int root, const std::string& maildir, const std::string& folder, FileOps& ops);

  // Where the message is.
  struct Found {
    bool in_cur = false;
    std::string name;  // with its flags
  };
  // By its name without flags. The directories are listed once. Errors: a listing failed.
  Result<std::optional<Found>> find(const std::string& base);

  // Whether the file has this content. Reads past the page cache. Errors: the file cannot be read, or is no
  // regular file.
  Result<bool> has_content(const Found& found, std::string_view content) const;

  // Errors: as of open().
  Result<Fd> open_tmp() const;
  int incoming() const { return incoming_.get(); }  // new/
  int maildir() const { return maildir_.get(); }
  // Notes a message that was placed in new/, so that find() sees it.
  void add(const std::string& name);

 private:
  explicit Mailbox(FileOps& ops) : ops_(&ops) {}
  int folder() const { return folder_ ? folder_.get() : maildir_.get(); }
  Status list(int directory, bool in_cur);

  FileOps* ops_;
  Fd maildir_;
  Fd folder_;  // none: the inbox
  Fd incoming_, seen_;
  std::string shown_;  // of the folder, for messages
  bool listed_ = false;
  std::unordered_map<std::string, Found> found_;  // by name without flags
};

}  // namespace twinloft::lmtpd
