// The directory stuck/ of the intake log: messages that replay could not place, each with a text file that
// says why and for whom. Replay only adds files. An administrator delivers or removes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/base/fd.h"
#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/spool/file_ops.h"

namespace twinloft::lmtpd {

inline constexpr const char* stuck_directory_name = "stuck";

struct StuckMessage {
  std::uint64_t number = 0;  // of the log's entry
  std::string maildir, folder, name;
  std::string why;
  std::string_view content;
};

class Stuck {
 public:
  // Makes the directory if there is none. log: the log's directory.
  static Result<Stuck> open(int log, const Uuid& incarnation, FileOps& ops);

  // Keeps a message and its text file, durably. Returns the name of the message's file, relative to the
  // spool's root. The same message again replaces its files. Errors: nothing is promised; the message must
  // stay in the log.
  Result<std::string> keep(const StuckMessage& message);

 private:
  Stuck(Fd directory, const Uuid& incarnation, FileOps& ops)
      : directory_(std::move(directory)), incarnation_(incarnation), ops_(&ops) {}
  Status write(const std::string& name, std::string_view content);

  Fd directory_;
  Uuid incarnation_;
  FileOps* ops_;
};

}  // namespace twinloft::lmtpd
