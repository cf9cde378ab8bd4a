// mailbench: an LMTP load, and the verification that the spool has every acknowledged message. Manual:
// docs/mailbench.md.
#include <fcntl.h>
#include <signal.h>
#include <sysexits.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/suggest.h"
#include "twinloft/mailbench/calibrate.h"
#include "twinloft/mailbench/options.h"
#include "twinloft/mailbench/report.h"
#include "twinloft/mailbench/verify.h"

namespace {

using namespace twinloft;
using namespace twinloft::mailbench;

constexpr std::string_view kUsage =
    "Usage: mailbench load --to SERVER (--duration TIME | --messages N) [options]\n"
    "       mailbench verify --account FILE --spool DIR [options]\n"
    "       mailbench lda --command TEMPLATE (--duration TIME | --messages N) [options]\n"
    "       mailbench calibrate --duration TIME [options]\n"
    "       mailbench plot [--kind KIND] [-o FILE.svg] [LABEL=]REPORT.json ...\n"
    "       mailbench COMMAND --help\n"
    "       mailbench --version\n";

int complain(int code, std::string_view message) {
  fmt::print(stderr, "mailbench: {}\n", message);
  return code;
}

Status write_file(const std::string& path, std::string_view text) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return fail_errno(errno, "{}", path);
  return write_all(fd.get(), as_bytes(text));
}

// Prints the text to standard output, unless the JSON is printed there.
Status publish(const std::string& text, const std::string& json, const std::string& json_path) {
  if (json_path != "-") TL_TRY(write_all(STDOUT_FILENO, as_bytes(text)));
  if (json_path.empty()) return {};
  if (json_path == "-") return write_all(STDOUT_FILENO, as_bytes(json));
  return write_file(json_path, json);
}

int load_exit_code(const Error& error) {
  if (error.code == Errc::invalid) return EX_USAGE;
  if (error.code == Errc::not_found) return EX_NOINPUT;
  if (error.code == Errc::unavailable) return EX_UNAVAILABLE;
  if (error.code == Errc::denied) return EX_CANTCREAT;
  return EX_IOERR;
}

int search_main(const LoadCommand& command) {
  auto show = [&](const Trial& trial) {
    std::string rate = trial.rate ? fmt::format("{:.1f}/s", *trial.rate) : "closed loop";
    const Histogram& latency = trial.result.stats.latency.good;
    fmt::print(stderr, "{:<14} {:>9.0f} messages a minute, p50 {:.2f} ms, p99 {:.2f} ms: {}\n", rate,
               messages_per_minute(trial.result.stats), static_cast<double>(latency.percentile(50)) / 1e6,
               static_cast<double>(latency.percentile(99)) / 1e6,
               trial.broken.empty() ? "kept" : trial.broken);
  };
  auto result = run_search(command.load, *command.search, command.search_precision,
                           command.search_confirmations, show);
  if (!result) return complain(load_exit_code(result.error()), result.error().message);
  Status status = publish(search_text(command.load, *command.search, *result),
                          search_json(command.load, *command.search, *result), command.json);
  if (!status) return complain(EX_IOERR, status.error().message);
  return result->rate ? EX_OK : 1;
}

int load_main(const std::vector<std::string>& arguments) {
  auto command = parse_load(arguments);
  if (!command) return complain(EX_USAGE, command.error().message + " (see mailbench load --help)");
  if (command->help) return fmt::print("{}", load_help()), EX_OK;
  LoadOptions& options = command->load;
  options.progress = options.progress && ::isatty(STDERR_FILENO) == 1;
  if (command->search) return search_main(*command);
  auto result = run_load(options);
  if (!result) return complain(load_exit_code(result.error()), result.error().message);
  Status status = publish(report_text(options, *result), report_json(options, *result), command->json);
  if (status && !command->hgrm.empty())
    status = write_file(command->hgrm, hgrm_text(result->stats.latency.good));
  if (!status) return complain(EX_IOERR, status.error().message);
  const auto& last = result->stats.last_outcomes;
  return last[1] + last[2] + last[3] + last[4] + result->behind == 0 ? EX_OK : 1;
}

int calibrate_main(const std::vector<std::string>& arguments) {
  auto command = parse_calibrate(arguments);
  if (!command) return complain(EX_USAGE, command.error().message + " (see mailbench calibrate --help)");
  if (command->help) return fmt::print("{}", calibrate_help()), EX_OK;
  LoadOptions& options = command->load;
  options.progress = options.progress && ::isatty(STDERR_FILENO) == 1;
  auto result = run_calibrate(options, command->tcp);
  if (!result) {
    int code = load_exit_code(result.error());
    return complain(code == EX_USAGE || code == EX_NOINPUT ? code : EX_OSERR, result.error().message);
  }
  Status status = publish(calibrate_text(options, *result), report_json(options, *result), command->json);
  if (status && !command->hgrm.empty())
    status = write_file(command->hgrm, hgrm_text(result->stats.latency.good));
  return status ? EX_OK : complain(EX_IOERR, status.error().message);
}

int lda_main(const std::vector<std::string>& arguments) {
  auto command = parse_lda(arguments);
  if (!command) return complain(EX_USAGE, command.error().message + " (see mailbench lda --help)");
  if (command->help) return fmt::print("{}", lda_help()), EX_OK;
  LoadOptions& options = command->load;
  options.progress = options.progress && ::isatty(STDERR_FILENO) == 1;
  auto result = run_lda(options, *command->lda);
  if (!result) return complain(load_exit_code(result.error()), result.error().message);
  Status status = publish(lda_text(options, *command->lda, *result),
                          lda_json(options, *command->lda, *result), command->json);
  const LoadStats& s = result->load.stats;
  if (status && !command->hgrm.empty()) status = write_file(command->hgrm, hgrm_text(s.latency.good));
  if (!status) return complain(EX_IOERR, status.error().message);
  return s.outcomes[0] == s.attempts ? EX_OK : 1;
}

int plot_main(const std::vector<std::string>& arguments) {
  auto command = parse_plot(arguments);
  if (!command) return complain(EX_USAGE, command.error().message + " (see mailbench plot --help)");
  if (command->help) return fmt::print("{}", plot_help()), EX_OK;
  std::vector<PlotInput> inputs;
  for (const auto& [label, path] : command->reports) {
    auto input = read_plot_input(label, path);
    if (!input)
      return complain(input.error().code == Errc::invalid ? EX_DATAERR : EX_NOINPUT, input.error().message);
    inputs.push_back(std::move(*input));
  }
  auto drawn = plot(command->plot, inputs);
  if (!drawn) return complain(EX_DATAERR, drawn.error().message);
  Status status = command->output.empty() ? write_all(STDOUT_FILENO, as_bytes(drawn->svg))
                                          : write_file(command->output, drawn->svg);
  if (status && command->text) status = write_all(STDOUT_FILENO, as_bytes(drawn->text));
  return status ? EX_OK : complain(EX_IOERR, status.error().message);
}

int verify_main(const std::vector<std::string>& arguments) {
  auto command = parse_verify(arguments);
  if (!command) return complain(EX_USAGE, command.error().message + " (see mailbench verify --help)");
  if (command->help) return fmt::print("{}", verify_help()), EX_OK;
  auto result = run_verify(command->verify);
  if (!result) return complain(EX_NOINPUT, result.error().message);
  auto status = publish(verify_text(command->verify, *result), verify_json(command->verify, *result),
                        command->json);
  if (!status) return complain(EX_IOERR, status.error().message);
  return result->good() ? EX_OK : 1;
}

}  // namespace

int main(int argc, char** argv) {
  for (int number : {SIGPIPE, SIGUSR1, SIGUSR2}) ::signal(number, SIG_IGN);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return complain(EX_USAGE, fmt::format("name a command\n{}", kUsage));
  std::string command = arguments.front();
  arguments.erase(arguments.begin());
  if (command == "load") return load_main(arguments);
  if (command == "lda") return lda_main(arguments);
  if (command == "plot") return plot_main(arguments);
  if (command == "calibrate") return calibrate_main(arguments);
  if (command == "verify") return verify_main(arguments);
  if (command == "--help" || command == "-h" || command == "help") return fmt::print("{}", kUsage), EX_OK;
  if (command == "--version" || command == "-V") return fmt::print("mailbench {}\n", TWINLOFT_VERSION), EX_OK;
  constexpr std::string_view known[] = {"load", "verify", "lda", "calibrate", "plot"};
  return complain(
      EX_USAGE, fmt::format("'{}' is not a command; {}\n{}", command, did_you_mean(command, known), kUsage));
}
