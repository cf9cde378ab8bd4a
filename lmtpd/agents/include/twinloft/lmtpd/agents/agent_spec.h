// What the configuration says about one external agent ([agent.<name>]), and what its exit codes mean.
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
  std::string enhanced = "4.3.0";  // its class fits the code
  bool operator==(const ExitReply&) const = default;
};

// Exit codes of sysexits(3) and the shell's 126/127, as DESIGN section 5 maps them. What is not listed is
// 451 4.3.0.
class ExitMap {
 public:
  ExitMap();
  ExitReply of(int exit_code) const;
  // `exit_code` 0..255; `text` is "250 2.0.0", "451 4.3.5", "550 5.1.1". Errors: a class that does not fit,
  // another code than 250 among the 2xx, and a success for anything the agent did not finish is the
  // administrator's word.
  Status set(int exit_code, std::string_view text);

 private:
  std::map<int, ExitReply> replies_;
};

struct AgentLimits {
  std::uint64_t cpu_seconds = 0;    // RLIMIT_CPU; 0 in this struct: inherited
  std::uint64_t memory_bytes = 0;   // RLIMIT_AS
  std::uint64_t file_bytes = 0;     // RLIMIT_FSIZE
  std::uint64_t open_files = 1024;  // RLIMIT_NOFILE
  std::uint64_t processes = 0;      // RLIMIT_NPROC
};

struct AgentSpec {
  std::string name;
  std::string command;  // template of DESIGN section 4; its first word is an absolute path
  ExitMap exits;
  std::chrono::milliseconds time_limit{300'000};  // then TERM to the process group
  std::chrono::milliseconds kill_grace{5'000};    // then KILL
  std::size_t output_bytes_max = 8192;            // kept of the output's end
  AgentLimits limits;
  std::uint32_t deliveries_max = unlimited_deliveries;               // at once by this agent; the others wait
  std::vector<std::string> pass_environment = {"TZ", "LANG"};        // copied from this process where set
  std::vector<std::pair<std::string, std::string>> set_environment;  // and added; HOME, USER, LOGNAME, SHELL,
                                                                     // PATH are set
  bool no_new_privs = false;    // true breaks set-gid programs that agents call, such as Postfix's sendmail
  bool must_read_stdin = true;  // exit 0 without having read the message is 451 4.3.0
  bool syncs = false;           // the agent makes its writes durable itself: no syncfs after its success
  bool smtputf8 = false;        // takes recipients beyond ASCII; without it they are refused at RCPT
  bool crlf = false;            // line ends on stdin: LF, or CRLF as on the wire
  bool add_return_path = true;  // header fields put before the message
  bool add_delivered_to = true;
  bool add_original_to = true;
  bool add_received = true;
};

// Checks names, the template, limits and environment; what would fail at run time is refused here with the
// reason. Warnings of the template's parser are appended to `*warnings`.
Status check_agent_spec(const AgentSpec& spec, std::vector<std::string>* warnings);

}  // namespace twinloft::lmtpd
