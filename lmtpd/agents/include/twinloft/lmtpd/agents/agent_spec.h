// The configuration of an external agent ([agent.<name>]), and the replies to its exit codes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/proto/reply.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

struct ExitReply {
  int code = 451;                  // 250, 4xx or 5xx
  std::string enhanced = "4.3.0";  // of the class of the code
  bool operator==(const ExitReply&) const = default;
};

// The replies to exit codes: those of sysexits(3) and of the shell (126, 127), as docs/lmtpd.md lists them.
// Any other code is 451 4.3.0.
class ExitMap {
 public:
  ExitMap();
  ExitReply of(int exit_code) const;
  // Sets the reply to an exit code of 0 to 255. text: such as "250 2.0.0", "451 4.3.5" or "550 5.1.1".
  // Errors: the classes differ, or the code is a 2xx other than 250. The administrator decides which exit
  // code is a success.
  Status set(int exit_code, std::string_view text);

 private:
  std::map<int, ExitReply> replies_;
};

struct AgentLimits {
  std::uint64_t cpu_seconds = 0;    // RLIMIT_CPU. In this struct, 0 means inherited
  std::uint64_t memory_bytes = 0;   // RLIMIT_AS
  std::uint64_t file_bytes = 0;     // RLIMIT_FSIZE
  std::uint64_t open_files = 1024;  // RLIMIT_NOFILE
  std::uint64_t processes = 0;      // RLIMIT_NPROC
};

struct AgentSpec {
  std::string name;
  std::string command;  // the template (docs/argv.md); its first word is an absolute path
  ExitMap exits;
  std::chrono::milliseconds time_limit{300'000};  // then SIGTERM to the process group
  std::chrono::milliseconds kill_grace{5'000};    // then SIGKILL
  std::size_t output_bytes_max = 8192;            // the end of the output that is kept
  AgentLimits limits;
  std::uint32_t deliveries_max = unlimited_deliveries;         // of this agent at a time; the others wait
  std::vector<std::string> pass_environment = {"TZ", "LANG"};  // copied from this process where set
  // Added to the environment. HOME, USER, LOGNAME, SHELL and PATH are always set.
  std::vector<std::pair<std::string, std::string>> set_environment;
  bool no_new_privs = false;    // true breaks set-gid programs of agents, such as Postfix's sendmail
  bool must_read_stdin = true;  // exit code 0 without reading the message is 451 4.3.0
  bool syncs = false;           // the agent makes its writes durable itself: no syncfs after its success
  bool smtputf8 = false;        // accepts recipients in UTF-8; without it, they are refused at RCPT
  bool crlf = false;            // the line ends on stdin: false for LF, true for CRLF
  bool add_return_path = true;  // the header fields before the message
  bool add_delivered_to = true;
  bool add_original_to = true;
  bool add_received = true;
};

// Checks names, the template, limits and environment, so that errors are found before a delivery. Appends the
// warnings of the template's parser to `*warnings`. Errors: Errc::invalid with the reason.
Status check_agent_spec(const AgentSpec& spec, std::vector<std::string>* warnings);

}  // namespace twinloft::lmtpd
