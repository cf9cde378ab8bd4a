// The command lines of mailbench's commands.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/mailbench/lda.h"
#include "twinloft/mailbench/load.h"
#include "twinloft/mailbench/plot.h"
#include "twinloft/mailbench/search.h"
#include "twinloft/mailbench/verify.h"

namespace twinloft::mailbench {

struct RunCommand {
  LoadOptions load;
  std::string json;  // the file; "-": standard output; empty: none
  std::string hgrm;  // the file; empty: none
  bool help = false;
};
struct LoadCommand : RunCommand {
  std::optional<Promise> search;
  double search_precision = 0.03;
  unsigned search_confirmations = 2;
};
struct CalibrateCommand : RunCommand {
  bool tcp = false;
};
struct LdaCommand : RunCommand {
  std::optional<LdaOptions> lda;  // set, except with `help`
};
struct VerifyCommand {
  VerifyOptions verify;
  std::string json;
  bool help = false;
};

struct PlotCommand {
  PlotOptions plot;
  std::vector<std::pair<std::string, std::string>> reports;  // label (or empty) and file
  std::string output;                                        // empty: standard output
  bool text = false;
  bool help = false;
};

// arguments: after the name of the command. Errors: Errc::invalid with the option and the reason.
Result<LoadCommand> parse_load(const std::vector<std::string>& arguments);
Result<CalibrateCommand> parse_calibrate(const std::vector<std::string>& arguments);
Result<LdaCommand> parse_lda(const std::vector<std::string>& arguments);
Result<PlotCommand> parse_plot(const std::vector<std::string>& arguments);
Result<VerifyCommand> parse_verify(const std::vector<std::string>& arguments);
std::string load_help();
std::string calibrate_help();
std::string lda_help();
std::string plot_help();
std::string verify_help();

}  // namespace twinloft::mailbench
