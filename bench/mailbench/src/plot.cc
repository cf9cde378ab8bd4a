#include "twinloft/mailbench/plot.h"

#include <algorithm>
#include <functional>
#include <map>

#include "twinloft/base/fd.h"
#include "twinloft/mailbench/chart.h"

namespace twinloft::mailbench {

namespace {

constexpr std::size_t kReportMax = 256u << 20;  // bytes

// The number at a path of names in a report.
Result<double> number_at(const PlotInput& input, std::initializer_list<std::string_view> path) {
  const json::object* at = &input.report;
  const json::value* value = nullptr;
  std::string name;
  for (std::string_view part : path) {
    name += (name.empty() ? "" : ".") + std::string(part);
    value = at == nullptr ? nullptr : at->if_contains(part);
    at = value == nullptr ? nullptr : value->if_object();
  }
  if (value == nullptr || !value->is_number())
    return fail(Errc::invalid, "{}: the report has no {}", input.label, name);
  return value->to_number<double>();
}

// Values at the same place, in order.
using Places = std::map<double, std::vector<double>>;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<ChartPoint> points_of(const Places& places) {
  std::vector<ChartPoint> out;
  for (const auto& [x, values] : places) {
    ChartPoint point{.x = x, .y = median(values)};
    if (values.size() > 1) {
      point.low = std::ranges::min(values);
      point.high = std::ranges::max(values);
    }
    out.push_back(point);
  }
  return out;
}

// The labels in the order of their first report.
std::vector<std::string> labels_of(const std::vector<PlotInput>& inputs) {
  std::vector<std::string> out;
  for (const PlotInput& input : inputs)
    if (std::ranges::find(out, input.label) == out.end()) out.push_back(input.label);
  return out;
}

Result<const json::array*> array_at(const PlotInput& input, std::string_view name) {
  const json::value* value = input.report.if_contains(name);
  if (value == nullptr || !value->is_array())
    return fail(Errc::invalid, "{}: the report has no {}", input.label, name);
  return &value->get_array();
}

Result<LineChart> latency_chart(const std::vector<PlotInput>& inputs) {
  LineChart out{.title = "Latency of acknowledged messages",
                .x = {.name = "share of the messages", .scale = Axis::Scale::percentile},
                .y = {.name = "milliseconds", .scale = Axis::Scale::log}};
  for (const PlotInput& input : inputs) {
    TL_TRY_ASSIGN(const json::array* pairs, array_at(input, "latency_distribution"));
    ChartLine line{.name = input.label, .color = out.lines.size()};
    double total = pairs->empty() ? 1 : pairs->back().as_array().at(1).to_number<double>(), before = 0;
    for (const json::value& pair : *pairs) {
      double ms = pair.as_array().at(0).to_number<double>(), seen = pair.as_array().at(1).to_number<double>();
      line.points.push_back({.x = before / total, .y = ms});
      before = seen;
    }
    out.lines.push_back(std::move(line));
  }
  return out;
}

// Seconds from the start of the load to the window.
double window_begin(const PlotInput& input) {
  double out = 0;
  for (std::string_view name : {"ramp_s", "warmup_s"})
    if (auto value = number_at(input, {"settings", name})) out += *value;
  return out;
}

// The messages a minute in each step. Errors: the report has none.
Result<std::vector<double>> rates_of(const PlotInput& input, bool by_ticks) {
  std::vector<double> out;
  if (by_ticks) {
    TL_TRY_ASSIGN(const json::array* ticks, array_at(input, "acknowledged_per_tick"));
    TL_TRY_ASSIGN(double step, number_at(input, {"tick_s"}));
    for (const json::value& tick : *ticks) out.push_back(tick.to_number<double>() * 60 / step);
    return out;
  }
  TL_TRY_ASSIGN(const json::array* seconds, array_at(input, "seconds"));
  for (const json::value& second : *seconds)
    out.push_back(second.as_object().at("acknowledged").to_number<double>() * 60);
  return out;
}

Result<LineChart> time_chart(const PlotOptions& options, const std::vector<PlotInput>& inputs) {
  bool by_ticks = options.kind == PlotKind::ticks;
  LineChart out{
      .title = by_ticks ? "Messages a minute, by tenths of a second" : "Messages a minute, second by second",
      .x = {.name = "seconds since the start of the load"},
      .y = {.name = "messages a minute"},
      .marks = options.marks};
  for (const PlotInput& input : inputs) {
    TL_TRY_ASSIGN(std::vector<double> rates, rates_of(input, by_ticks));
    TL_TRY_ASSIGN(double window, number_at(input, {"window_s"}));
    double begin = window_begin(input), step = by_ticks ? *number_at(input, {"tick_s"}) : 1;
    if (begin > 0 && out.marks.empty()) out.marks.emplace_back(begin, "measured from here");
    ChartLine line{.name = input.label, .color = out.lines.size()};
    // The last step is not whole, and comes after the window.
    for (std::size_t i = 0; i < rates.size() && (static_cast<double>(i) + 0.99) * step < begin + window; ++i)
      line.points.push_back({.x = (static_cast<double>(i) + 0.5) * step, .y = rates[i]});
    out.lines.push_back(std::move(line));
  }
  return out;
}

Result<LineChart> clients_chart(const std::vector<PlotInput>& inputs) {
  LineChart out{.title = "Messages a minute over clients",
                .x = {.name = "clients", .scale = Axis::Scale::log},
                .y = {.name = "messages a minute"}};
  for (const std::string& label : labels_of(inputs)) {
    Places places;
    for (const PlotInput& input : inputs) {
      if (input.label != label) continue;
      TL_TRY_ASSIGN(double clients, number_at(input, {"settings", "clients"}));
      TL_TRY_ASSIGN(double rate, number_at(input, {"messages_per_minute"}));
      places[clients].push_back(rate);
      if (std::ranges::find(out.x.ticks, clients) == out.x.ticks.end()) out.x.ticks.push_back(clients);
    }
    out.lines.push_back(
        {.name = label, .points = points_of(places), .color = out.lines.size(), .marked = true});
  }
  return out;
}

// The p50 and p99 of a report, or of each trial of a search, at its offered rate.
Status add_rates(const PlotInput& input, Places& p50, Places& p99) {
  auto add = [&](double rate, double low, double high) {
    p50[rate * 60].push_back(low);
    p99[rate * 60].push_back(high);
  };
  if (!input.report.contains("trials")) {
    TL_TRY_ASSIGN(double rate, number_at(input, {"settings", "rate_per_s"}));
    TL_TRY_ASSIGN(double low, number_at(input, {"latency_ms", "p50"}));
    TL_TRY_ASSIGN(double high, number_at(input, {"latency_ms", "p99"}));
    add(rate, low, high);
    return {};
  }
  TL_TRY_ASSIGN(const json::array* trials, array_at(input, "trials"));
  for (const json::value& value : *trials) {
    PlotInput trial{input.label, value.as_object()};
    if (!trial.report.contains("rate_per_s")) continue;  // the closed loop
    TL_TRY_ASSIGN(double rate, number_at(trial, {"rate_per_s"}));
    TL_TRY_ASSIGN(double low, number_at(trial, {"p50_ms"}));
    TL_TRY_ASSIGN(double high, number_at(trial, {"p99_ms"}));
    add(rate, low, high);
  }
  return {};
}

Result<LineChart> rate_chart(const std::vector<PlotInput>& inputs) {
  LineChart out{.title = "Latency over the offered rate",
                .x = {.name = "messages a minute, offered"},
                .y = {.name = "milliseconds", .scale = Axis::Scale::log}};
  std::size_t color = 0;
  for (const std::string& label : labels_of(inputs)) {
    Places p50, p99;
    for (const PlotInput& input : inputs)
      if (input.label == label) TL_TRY(add_rates(input, p50, p99));
    out.lines.push_back({.name = label + " p50", .points = points_of(p50), .color = color, .marked = true});
    out.lines.push_back(
        {.name = label + " p99", .points = points_of(p99), .color = color++, .dashed = true, .marked = true});
  }
  return out;
}

Result<BarChart> bar_chart(const std::vector<PlotInput>& inputs) {
  BarChart out{.title = "Messages a minute", .unit = "/min"};
  for (const std::string& label : labels_of(inputs)) {
    std::vector<double> values;
    for (const PlotInput& input : inputs) {
      if (input.label != label) continue;
      TL_TRY_ASSIGN(double rate, number_at(input, {"messages_per_minute"}));
      values.push_back(rate);
    }
    out.bars.push_back({label, median(values), std::ranges::min(values), std::ranges::max(values)});
  }
  return out;
}

template <class Chart>
Result<Plot> drawn(Result<Chart> chart, const PlotOptions& options) {
  if (!chart) return std::unexpected(chart.error());
  if (!options.title.empty()) chart->title = options.title;
  Plot out{chart->svg(), {}};
  if constexpr (requires { chart->text(); }) out.text = chart->text();
  return out;
}

Result<Plot> plot_unchecked(const PlotOptions& options, const std::vector<PlotInput>& inputs) {
  switch (options.kind) {
    case PlotKind::latency:
      return drawn(latency_chart(inputs), options);
    case PlotKind::seconds:
    case PlotKind::ticks:
      return drawn(time_chart(options, inputs), options);
    case PlotKind::clients:
      return drawn(clients_chart(inputs), options);
    case PlotKind::rate:
      return drawn(rate_chart(inputs), options);
    case PlotKind::bars:
      return drawn(bar_chart(inputs), options);
  }
  return fail(Errc::internal, "unknown kind of plot");
}

}  // namespace

Result<Plot> plot(const PlotOptions& options, const std::vector<PlotInput>& inputs) {
  try {
    return plot_unchecked(options, inputs);
  } catch (const std::exception& e) {  // Boost.JSON: a value of another type
    return fail(Errc::invalid, "a report has not the form of mailbench's reports: {}", e.what());
  }
}

Result<PlotInput> read_plot_input(std::string_view label, const std::string& path) {
  TL_TRY_ASSIGN(std::string text, read_file(path, kReportMax));
  auto report = parse_object(text);
  if (!report) return fail(Errc::invalid, "{}: {}", path, report.error().message);
  std::string name(label);
  if (name.empty()) {
    name = path.substr(path.rfind('/') + 1);
    if (name.ends_with(".json")) name.resize(name.size() - 5);
  }
  return PlotInput{std::move(name), std::move(*report)};
}

}  // namespace twinloft::mailbench
