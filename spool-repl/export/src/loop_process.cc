#include "twinloft/spool-repl/export/loop_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/log.h"
#include "twinloft/base/program.h"

namespace twinloft::repl::exports {

namespace {

constexpr std::string_view command = "loop-device", done_word = "done", failed_word = "failed";
// A suspended volume answers late, so the calls have no limit of their own.
constexpr std::chrono::hours time_max{24 * 7};
constexpr std::size_t parent_at = 2, operation_at = 3, arguments_at = 4;
constexpr std::size_t attach_arguments = 4, detach_arguments = 3;

std::atomic<bool> program_has_entry = false;

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string take_line(std::string_view& text) {
  std::string line(text.substr(0, text.find('\n')));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

// The new process.

std::string text_of(const Error& error) {
  return fmt::format("{}\n{}\n{}\n{}\n", failed_word, static_cast<int>(error.code), error.sys, error.message);
}

// path, block bytes, direct I/O (0 or 1), backing device
std::string attach(std::span<char*> arguments) {
  auto block = number_of<std::uint32_t>(arguments[1]);
  auto direct = number_of<unsigned>(arguments[2]);
  auto backing = number_of<dev_t>(arguments[3]);
  if (!block || !direct || !backing) return text_of({Errc::invalid, "a wrong number", 0});
  auto loop = attach_loop(arguments[0],
                          {.block_bytes = *block, .direct_io = *direct == 1, .backing_device = *backing});
  if (!loop) return text_of(loop.error());
  return fmt::format("{}\n{}\n{}\n", done_word, loop->device, loop->sequence);
}

// device, sequence, path
std::string detach(std::span<char*> arguments) {
  auto sequence = number_of<std::uint64_t>(arguments[1]);
  if (!sequence) return text_of({Errc::invalid, "a wrong number", 0});
  auto detached = detach_loop({arguments[0], *sequence, arguments[2]});
  return detached ? fmt::format("{}\n", done_word) : text_of(detached.error());
}

// After the server's death, this process could attach the file of the next server.
bool ends_with_parent(std::string_view parent) {
  return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && number_of<pid_t>(parent) == ::getppid();
}

std::string work(std::span<char*> words) {
  std::string_view operation = words.size() > operation_at ? words[operation_at] : "";
  if (operation.empty() || !ends_with_parent(words[parent_at]))
    return text_of({Errc::unavailable, "the process of the command does not run", 0});
  auto arguments = words.subspan(arguments_at);
  if (operation == "attach" && arguments.size() == attach_arguments) return attach(arguments);
  if (operation == "detach" && arguments.size() == detach_arguments) return detach(arguments);
  return text_of({Errc::invalid, "wrong arguments", 0});
}

// The server.

Error error_in(std::string_view text) {
  auto code = number_of<int>(take_line(text)), sys = number_of<int>(take_line(text));
  while (text.ends_with('\n')) text.remove_suffix(1);
  return {static_cast<Errc>(code.value_or(static_cast<int>(Errc::internal))), std::string(text),
          sys.value_or(0)};
}

Result<std::string> run(std::vector<std::string> words) {
  TL_CHECK_MSG(program_has_entry, "main() does not call serve_as_loop_process()");
  std::vector<std::string> argv = {"/proc/self/exe", std::string(command), std::to_string(::getpid())};
  argv.insert(argv.end(), words.begin(), words.end());
  OsClock clock;
  ProgramRunner runner(clock);
  auto ran = runner.run(argv, "", clock.now() + time_max);
  if (!ran) return fail(Errc::unavailable, "the process for the loop device: {}", ran.error().message);
  std::string_view text = ran->out;
  std::string outcome = take_line(text);
  if (outcome == done_word) return std::string(text);
  if (outcome == failed_word) return std::unexpected(error_in(text));
  return fail(Errc::unavailable, "the process for the loop device has ended with {}: {}", ran->exit_code,
              ran->err);
}

// A process that was killed may have attached a device before.
void detach_others(const std::string& path, const std::vector<LoopIdentity>& before) {
  for (const auto& loop : loops_of(path)) {
    auto known = [&](const LoopIdentity& one) {
      return one.device == loop.device && one.sequence == loop.sequence;
    };
    if (std::any_of(before.begin(), before.end(), known)) continue;
    if (auto detached = detach_loop_apart(loop); !detached)
      log_warning("left by a process for the loop device: {}", detached.error().message);
  }
}

}  // namespace

void serve_as_loop_process(int argc, char** argv) {
  program_has_entry = true;
  std::span<char*> words(argv, static_cast<std::size_t>(argc));
  if (words.size() <= parent_at || words[1] != command) return;
  // systemd sends it to each process of a unit. The server decides.
  for (int number : {SIGTERM, SIGINT, SIGHUP}) (void)::signal(number, SIG_IGN);
  std::string text = work(words);
  fmt::print("{}", text);
  std::fflush(stdout);
  ::_exit(text.starts_with(done_word) ? EXIT_SUCCESS : EXIT_FAILURE);
}

Result<LoopIdentity> attach_loop_apart(const std::string& backing_path, const LoopOptions& options) {
  TL_CHECK_MSG(!options.autoclear, "a device with autoclear would end with its process");
  auto before = loops_of(backing_path);
  auto told = run({"attach", backing_path, std::to_string(options.block_bytes), options.direct_io ? "1" : "0",
                   std::to_string(options.backing_device)});
  if (!told) {
    detach_others(backing_path, before);
    return std::unexpected(told.error());
  }
  std::string_view text = *told;
  LoopIdentity loop{take_line(text), 0, backing_path};
  auto sequence = number_of<std::uint64_t>(take_line(text));
  if (!sequence) return fail(Errc::internal, "the process for the loop device says \"{}\"", *told);
  loop.sequence = *sequence;
  return loop;
}

Status detach_loop_apart(const LoopIdentity& loop) {
  if (!is_attached(loop)) return {};
  TL_TRY(run({"detach", loop.device, std::to_string(loop.sequence), loop.backing_path}));
  return {};
}

}  // namespace twinloft::repl::exports
