// The command line of `mailbench plot`.
#include <charconv>

#include "option_parser.h"
#include "twinloft/mailbench/options.h"

namespace twinloft::mailbench {

namespace {

po::options_description plot_description() {
  po::options_description d("Options of mailbench plot", 110, 60);
  auto o = d.add_options();
  o("kind,k", po::value<std::string>()->default_value("latency"),
    "latency (over percentiles), seconds or ticks (rate over time), clients (rate over clients), rate "
    "(latency over "
    "the "
    "offered rate), or bars (rates)");
  o("title,t", po::value<std::string>(), "the title");
  o("mark", po::value<Texts>()->composing(),
    "seconds, ticks: SECONDS=TEXT, a vertical line; may be repeated");
  o("output,o", po::value<std::string>(), "the SVG file (default: standard output)");
  o("text", "bars: print them as text too, for a terminal");
  o("report", po::value<Texts>()->composing(),
    "FILE or LABEL=FILE: a report in JSON; the option's name may be left out");
  o("help,h", "this text");
  return d;
}

Status fill_marks(const po::variables_map& map, PlotOptions& o) {
  if (!map.count("mark")) return {};
  if (o.kind != PlotKind::seconds && o.kind != PlotKind::ticks)
    return fail(Errc::invalid, "--mark needs --kind seconds or ticks");
  for (const std::string& mark : map["mark"].as<Texts>()) {
    double seconds = 0;
    auto [end, ec] = std::from_chars(mark.data(), mark.data() + mark.size(), seconds);
    if (ec != std::errc{} || end == mark.data() + mark.size() || *end != '=')
      return fail(Errc::invalid, "--mark '{}': write SECONDS=TEXT", mark);
    o.marks.emplace_back(seconds, std::string(end + 1, mark.data() + mark.size()));
  }
  return {};
}

}  // namespace

std::string plot_help() {
  return usage_text(
      "Usage: mailbench plot [--kind KIND] [-o FILE.svg] [LABEL=]REPORT.json ...\n\n"
      "Draws reports of mailbench load, lda and --search. Reports with the same label become one line: "
      "their\n"
      "median, with the spread. Exit: 0; 64 usage; 65 a report has not what the kind needs; 66 no such "
      "file.\n\n",
      plot_description());
}

Result<PlotCommand> parse_plot(const std::vector<std::string>& arguments) {
  TL_TRY_ASSIGN(po::variables_map map, parse_arguments(plot_description(), arguments, "report"));
  PlotCommand c;
  c.help = map.count("help") > 0;
  if (c.help) return c;
  constexpr std::string_view kinds[] = {"latency", "seconds", "ticks", "clients", "rate", "bars"};
  TL_TRY_ASSIGN(std::size_t kind, word_option(map, "kind", kinds));
  c.plot.kind = static_cast<PlotKind>(kind);
  c.plot.title = text_option(map, "title");
  c.output = text_option(map, "output");
  c.text = map.count("text") > 0;
  TL_TRY(fill_marks(map, c.plot));
  if (c.text && c.plot.kind != PlotKind::bars) return fail(Errc::invalid, "--text needs --kind bars");
  if (c.text && c.output.empty())
    return fail(Errc::invalid, "--text needs --output: the SVG would be among it");
  if (!map.count("report")) return fail(Errc::invalid, "name the reports: mailbench plot FILE.json");
  for (const std::string& report : map["report"].as<Texts>()) {
    std::size_t sign = report.find('=');
    std::size_t start = sign == report.npos ? 0 : sign + 1;
    c.reports.emplace_back(report.substr(0, start == 0 ? 0 : sign), report.substr(start));
  }
  return c;
}

}  // namespace twinloft::mailbench
