#include "twinloft/mailbench/chart.h"

#include <gtest/gtest.h>

#include "twinloft/mailbench/plot.h"

namespace twinloft::mailbench {
namespace {

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

TEST(Chart, TicksAreRound) {
  EXPECT_EQ(linear_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_ticks(0, 1), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(linear_ticks(3, 27, 6), (std::vector<double>{5, 10, 15, 20, 25}));
  EXPECT_EQ(log_ticks(0.5, 30), (std::vector<double>{0.5, 1, 2, 5, 10, 20}));
  EXPECT_EQ(log_ticks(1, 100000), (std::vector<double>{1, 10, 100, 1000, 10000, 100000}));
  EXPECT_EQ(short_number(1234567), "1,234,567");
  EXPECT_EQ(short_number(-1234), "-1,234");
  EXPECT_EQ(short_number(0.25), "0.25");
}

TEST(Chart, NamesAreEscaped) {
  LineChart chart{.title = "<a & \"b\">",
                  .x = {.name = "x"},
                  .y = {.name = "y"},
                  .lines = {{.name = "<l>"}},
                  .marks = {}};
  std::string svg = chart.svg();
  EXPECT_NE(svg.find("&lt;a &amp; &quot;b&quot;&gt;"), std::string::npos);
  EXPECT_EQ(svg.find("<l>"), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

// Every number of a chart is finite, whatever its points are.
TEST(Chart, OddPointsGiveFiniteNumbers) {
  for (auto scale : {Axis::Scale::linear, Axis::Scale::log, Axis::Scale::percentile}) {
    for (const std::vector<ChartPoint>& points : {std::vector<ChartPoint>{},
                                                  {{.x = 0, .y = 0}},
                                                  {{.x = 5, .y = 5}, {.x = 5, .y = 5}},
                                                  {{.x = 1, .y = 1e12}, {.x = 0.5, .y = 0}}}) {
      LineChart chart{.title = "t",
                      .x = {.name = "x", .scale = scale},
                      .y = {.name = "y", .scale = scale},
                      .lines = {{.name = "l", .points = points, .marked = true}},
                      .marks = {{0, "m"}}};
      std::string svg = chart.svg();
      EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
    }
  }
}

TEST(Chart, BarsAsText) {
  BarChart chart{
      .title = "Rates", .unit = "/min", .bars = {{"a", 1000, 1000, 1000}, {"longer", 500, 400, 600}}};
  EXPECT_EQ(chart.text(42),
            "Rates\n"
            "  a       ████████████ 1,000 /min\n"
            "  longer  ██████       500 /min\n");
  EXPECT_EQ(count(chart.svg(), "<rect"), 3u);  // with the background
}

PlotInput report(const std::string& label, std::string_view json) {
  return {label, parse_object(json).value()};
}

TEST(Plot, ReportsOfOneLabelAreOnePoint) {
  std::vector<PlotInput> inputs = {
      report("a", R"({"settings": {"clients": 1}, "messages_per_minute": 100})"),
      report("a", R"({"settings": {"clients": 1}, "messages_per_minute": 300})"),
      report("a", R"({"settings": {"clients": 1}, "messages_per_minute": 200})"),
      report("a", R"({"settings": {"clients": 8}, "messages_per_minute": 900})"),
      report("b", R"({"settings": {"clients": 8}, "messages_per_minute": 500})")};
  auto chart = plot({.kind = PlotKind::clients}, inputs);
  ASSERT_TRUE(chart) << chart.error().message;
  EXPECT_EQ(count(chart->svg, "<polyline"), 2u);
  EXPECT_EQ(count(chart->svg, "<circle"), 3u);
  auto bars = plot({.kind = PlotKind::bars, .title = "All"}, inputs);
  ASSERT_TRUE(bars);
  EXPECT_NE(bars->text.find("a  "), std::string::npos);
  EXPECT_NE(bars->text.find("250 /min"), std::string::npos) << bars->text;
  EXPECT_NE(bars->svg.find(">All<"), std::string::npos);
}

TEST(Plot, RatesOfLoadsAndOfASearch) {
  std::vector<PlotInput> inputs = {
      report("a", R"({"settings": {"rate_per_s": 10}, "latency_ms": {"p50": 1, "p99": 5}})"),
      report("a",
             R"({"trials": [{"p50_ms": 9, "p99_ms": 9}, {"rate_per_s": 20, "p50_ms": 2, "p99_ms": 6}]})")};
  auto chart = plot({.kind = PlotKind::rate}, inputs);
  ASSERT_TRUE(chart) << chart.error().message;
  EXPECT_EQ(count(chart->svg, "<polyline"), 2u);
  EXPECT_EQ(count(chart->svg, "<circle"), 4u);  // two rates, each with p50 and p99
}

TEST(Plot, LatencyAndSeconds) {
  PlotInput input = report("a",
                           R"({"settings": {"warmup_s": 1, "ramp_s": 0}, "window_s": 2, "tick_s": 0.5,
      "acknowledged_per_tick": [1, 2, 3, 4, 5, 6, 7],
      "latency_distribution": [[1.5, 90], [20, 99], [30, 100]],
      "seconds": [{"acknowledged": 5}, {"acknowledged": 7}, {"acknowledged": 6}, {"acknowledged": 1}]})");
  auto latency = plot({.kind = PlotKind::latency}, {input});
  ASSERT_TRUE(latency) << latency.error().message;
  auto seconds = plot({.kind = PlotKind::seconds}, {input});
  ASSERT_TRUE(seconds) << seconds.error().message;
  EXPECT_NE(seconds->svg.find("measured from here"), std::string::npos);
  std::size_t at = seconds->svg.find("points=\"");
  EXPECT_EQ(count(seconds->svg.substr(at, seconds->svg.find("fill", at) - at), ","), 3u)
      << "the second after the window is left out";
}

TEST(Plot, TicksAndMarks) {
  PlotInput input = report("a", R"({"settings": {"warmup_s": 0, "ramp_s": 0}, "window_s": 2, "tick_s": 0.5,
      "acknowledged_per_tick": [1, 2, 3, 4, 5, 6]})");
  auto chart = plot({.kind = PlotKind::ticks, .marks = {{1.2, "killed <here>"}}}, {input});
  ASSERT_TRUE(chart) << chart.error().message;
  EXPECT_NE(chart->svg.find("killed &lt;here&gt;"), std::string::npos);
  std::size_t at = chart->svg.find("points=\"");
  EXPECT_EQ(count(chart->svg.substr(at, chart->svg.find("fill", at) - at), ","), 4u)
      << "two seconds have four ticks";
}

TEST(Plot, WhatIsMissingIsNamed) {
  for (PlotKind kind : {PlotKind::latency, PlotKind::seconds, PlotKind::ticks, PlotKind::clients,
                        PlotKind::rate, PlotKind::bars}) {
    auto chart = plot({.kind = kind}, {report("broken", R"({"settings": 5})")});
    ASSERT_FALSE(chart);
    EXPECT_NE(chart.error().message.find("broken: the report has no"), std::string::npos)
        << chart.error().message;
  }
  EXPECT_FALSE(plot({.kind = PlotKind::latency}, {report("x", R"({"latency_distribution": [5]})")}));
  EXPECT_FALSE(
      plot({.kind = PlotKind::seconds}, {report("x", R"({"window_s": 9, "seconds": [{"failed": 1}]})")}));
  EXPECT_FALSE(plot({.kind = PlotKind::rate}, {report("x", R"({"trials": [7]})")}));
}

}  // namespace
}  // namespace twinloft::mailbench
