// Charts as SVG. Pure: the same input gives the same text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace twinloft::mailbench {

struct Axis {
  enum class Scale {
    linear,
    log,
    percentile
  };  // percentile: 1 / (1 - p), with the ticks 50 %, 90 %, 99 % ...
  std::string name{};
  Scale scale = Scale::linear;
  std::vector<double> ticks{};  // empty: round values
};

struct ChartPoint {
  double x = 0, y = 0;
  std::optional<double> low{}, high{};  // of y: drawn as a whisker
};

struct ChartLine {
  std::string name{};
  std::vector<ChartPoint> points{};
  std::size_t color = 0;  // lines of one color belong together
  bool dashed = false;
  bool marked = false;  // a dot at each point
};

struct LineChart {
  std::string title{};
  Axis x{}, y{};
  std::vector<ChartLine> lines{};
  std::vector<std::pair<double, std::string>> marks{};  // vertical lines with a text

  std::string svg() const;
};

struct Bar {
  std::string name{};
  double value = 0;
  double low = 0, high = 0;
};

struct BarChart {
  std::string title{};
  std::string unit{};
  std::vector<Bar> bars{};

  std::string svg() const;
  std::string text(std::size_t width = 72) const;  // for a terminal
};

// Round values from low to high, both included where they are round; at most about `wanted`.
std::vector<double> linear_ticks(double low, double high, std::size_t wanted = 6);
std::vector<double> log_ticks(double low, double high);
std::string short_number(double value);  // 1500 is 1,500; 0.25 stays

}  // namespace twinloft::mailbench
