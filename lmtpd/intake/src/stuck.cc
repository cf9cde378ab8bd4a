#include "twinloft/lmtpd/intake/stuck.h"

#include <cerrno>
#include <utility>

#include "twinloft/lmtpd/intake/log_directory.h"

namespace twinloft::lmtpd {

namespace {

std::string explain(const StuckMessage& message, const std::string& file) {
  return fmt::format(
      "The message beside this file, {}, was accepted, and could not be placed in its Maildir.\n"
      "\n"
      "Maildir: {}\n"
      "Folder: {}\n"
      "Name: new/{}\n"
      "Why: {}\n"
      "\n"
      "Correct the cause, then copy the message into new/ of the Maildir or folder under the name above, "
      "with "
      "the\nMaildir's owner and mode 600. Then remove both files.\n",
      file, message.maildir, message.folder.empty() ? "(the inbox)" : message.folder, message.name,
      message.why);
}

}  // namespace

Result<Stuck> Stuck::open(int log, const Uuid& incarnation, FileOps& ops) {
  TL_TRY(ops.make_directory(log, stuck_directory_name));
  TL_TRY_ASSIGN(Fd directory, ops.open_directory(log, stuck_directory_name));
  TL_TRY(ops.sync_file(log));
  return Stuck(std::move(directory), incarnation, ops);
}

// The name appears with the whole content, or not at all.
Status Stuck::write(const std::string& name, std::string_view content) {
  const std::string unfinished = name + ".unfinished";
  if (Status removed = ops_->unlink(directory_.get(), unfinished); !removed && removed.error().sys != ENOENT)
    return removed;
  TL_TRY_ASSIGN(Fd file, ops_->create_file(directory_.get(), unfinished));
  Status written = ops_->write(file.get(), as_bytes(content));
  if (written) written = ops_->sync_file(file.get());
  if (written) return ops_->replace(directory_.get(), unfinished, name);
  (void)ops_->unlink(directory_.get(), unfinished);
  return written;
}

Result<std::string> Stuck::keep(const StuckMessage& message) {
  const std::string name = fmt::format("{}-{}", incarnation_.text().substr(0, 8), message.number);
  const std::string file = name + ".eml";
  TL_TRY(write(name + ".txt", explain(message, file)));
  TL_TRY(write(file, message.content));
  TL_TRY(ops_->sync_file(directory_.get()));
  return fmt::format("{}/{}/{}", log_directory_name, stuck_directory_name, file);
}

}  // namespace twinloft::lmtpd
