#include "twinloft/mailbench/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace twinloft::mailbench {

namespace {

// Okabe and Ito's palette, which color-blind people can tell apart.
constexpr std::string_view kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                        "#56b4e9", "#e69f00", "#555555"};
constexpr double kWidth = 860, kHeight = 420, kLeft = 96, kRight = 18, kTop = 40, kBottom = 52,
                 kLegendRow = 18;

std::string_view color(std::size_t index) {
  return kColors[index % std::size(kColors)];
}

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

class Svg {
 public:
  Svg(double height, std::string_view title) {
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {:g} {:g}" role="img" )"
        R"(font-family="sans-serif" font-size="12" fill="#222">)",
        kWidth, height);
    add("<title>{}</title>", escaped(title));
    add(R"(<rect width="{:g}" height="{:g}" fill="white"/>)", kWidth, height);
    add(R"(<text x="16" y="20" font-size="15">{}</text>)", escaped(title));
  }
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  void line(double x1, double y1, double x2, double y2, std::string_view stroke, std::string_view more = "") {
    add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"{}/>)", x1, y1, x2, y2, stroke,
        more);
  }
  void words(double x, double y, std::string_view anchor, std::string_view text) {
    add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor, escaped(text));
  }
  std::string end() && { return std::move(text_) + "</svg>\n"; }

 private:
  std::string text_;
};

// The values of an axis in a linear space, and their ticks.
class Range {
 public:
  Range(const Axis& axis, double low, double high) : axis_(axis) {
    if (axis.scale == Axis::Scale::linear) {
      low = std::min(low, 0.0);
      if (high <= low) high = low + 1;
    } else if (axis.scale == Axis::Scale::log) {
      low = std::max(low, 1e-9);
      high = std::max(high, low * 1.01);
    } else {
      low = 0;
      high = std::clamp(high, 0.9, 0.999999);
    }
    low_ = inner(low);
    high_ = inner(high);
    if (axis.scale == Axis::Scale::linear) high_ += (high_ - low_) * 0.04;
    ticks_ = ticks(low, high);
  }
  double share(double value) const { return (inner(value) - low_) / (high_ - low_); }
  const std::vector<std::pair<double, std::string>>& ticks() const { return ticks_; }

 private:
  double inner(double value) const {
    if (axis_.scale == Axis::Scale::linear) return value;
    if (axis_.scale == Axis::Scale::log) return std::log10(std::max(value, 1e-9));
    return -std::log10(1 - std::clamp(value, 0.0, 0.9999999));
  }
  std::vector<std::pair<double, std::string>> ticks(double low, double high) const {
    std::vector<std::pair<double, std::string>> out;
    if (axis_.scale == Axis::Scale::percentile) {
      for (double p : {0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999})
        if (p <= high) out.emplace_back(p, fmt::format("{:g} %", p * 100));
      return out;
    }
    for (double value : axis_.ticks) out.emplace_back(value, short_number(value));
    if (!out.empty()) return out;
    bool linear = axis_.scale == Axis::Scale::linear;
    for (double value : linear ? linear_ticks(low, high) : log_ticks(low, high))
      out.emplace_back(value, short_number(value));
    return out;
  }

  const Axis& axis_;
  double low_ = 0, high_ = 1;
  std::vector<std::pair<double, std::string>> ticks_;
};

Range range_of(const Axis& axis, const std::vector<ChartLine>& lines, bool of_x) {
  double low = INFINITY, high = -INFINITY;
  for (const ChartLine& line : lines) {
    for (const ChartPoint& p : line.points) {
      low = std::min(low, of_x ? p.x : p.low.value_or(p.y));
      high = std::max(high, of_x ? p.x : p.high.value_or(p.y));
    }
  }
  if (!std::isfinite(low)) low = 0, high = 1;
  return {axis, low, high};
}

class LinePainter {
 public:
  explicit LinePainter(const LineChart& chart)
      : chart_(chart),
        x_(range_of(chart.x, chart.lines, true)),
        y_(range_of(chart.y, chart.lines, false)),
        legend_rows_((chart.lines.size() + kPerRow - 1) / kPerRow),
        top_(kTop + kLegendRow * static_cast<double>(legend_rows_)),
        svg_(kHeight, chart.title) {}

  std::string run() && {
    draw_axes();
    draw_marks();
    for (const ChartLine& line : chart_.lines) draw(line);
    draw_legend();
    return std::move(svg_).end();
  }

 private:
  static constexpr std::size_t kPerRow = 4;
  double at_x(double x) const { return kLeft + x_.share(x) * (kWidth - kLeft - kRight); }
  double at_y(double y) const { return kHeight - kBottom - y_.share(y) * (kHeight - kBottom - top_); }

  void draw_axes() {
    for (const auto& [value, text] : y_.ticks()) {
      svg_.line(kLeft, at_y(value), kWidth - kRight, at_y(value), "#e2e2e2");
      svg_.words(kLeft - 6, at_y(value) + 4, "end", text);
    }
    for (const auto& [value, text] : x_.ticks()) {
      svg_.line(at_x(value), kHeight - kBottom, at_x(value), kHeight - kBottom + 4, "#888");
      svg_.words(at_x(value), kHeight - kBottom + 18, "middle", text);
    }
    svg_.line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "#888");
    svg_.words((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", chart_.x.name);
    svg_.add(R"svg(<text x="16" y="{0:.1f}" text-anchor="middle" )svg"
             R"svg(transform="rotate(-90 16 {0:.1f})">{1}</text>)svg",
             (top_ + kHeight - kBottom) / 2, escaped(chart_.y.name));
  }

  void draw_marks() {
    for (const auto& [x, text] : chart_.marks) {
      svg_.line(at_x(x), top_, at_x(x), kHeight - kBottom, "#888", R"( stroke-dasharray="3 3")");
      svg_.words(at_x(x) + 4, top_ + 12, "start", text);
    }
  }

  void draw(const ChartLine& line) {
    std::string points;
    for (const ChartPoint& p : line.points) points += fmt::format("{:.1f},{:.1f} ", at_x(p.x), at_y(p.y));
    if (!points.empty()) points.pop_back();
    svg_.add(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="1.8"{}/>)", points,
             color(line.color), line.dashed ? R"( stroke-dasharray="6 4")" : "");
    for (const ChartPoint& p : line.points) {
      if (p.low && p.high) svg_.line(at_x(p.x), at_y(*p.low), at_x(p.x), at_y(*p.high), color(line.color));
      if (line.marked)
        svg_.add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>)", at_x(p.x), at_y(p.y),
                 color(line.color));
    }
  }

  void draw_legend() {
    double width = (kWidth - 16 - kRight) / kPerRow;
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) {
      double x = 16 + width * static_cast<double>(i % kPerRow);
      double y = kTop - 2 + kLegendRow * static_cast<double>(i / kPerRow);
      svg_.line(
          x, y, x + 18, y, color(chart_.lines[i].color),
          chart_.lines[i].dashed ? R"( stroke-width="3" stroke-dasharray="5 3")" : R"( stroke-width="3")");
      svg_.words(x + 24, y + 4, "start", chart_.lines[i].name);
    }
  }

  const LineChart& chart_;
  Range x_, y_;
  std::size_t legend_rows_;
  double top_;
  Svg svg_;
};

double highest(const std::vector<Bar>& bars) {
  double out = 0;
  for (const Bar& bar : bars) out = std::max({out, bar.value, bar.high});
  return out > 0 ? out : 1;
}

std::size_t longest_name(const std::vector<Bar>& bars) {
  std::size_t out = 0;
  for (const Bar& bar : bars) out = std::max(out, bar.name.size());
  return out;
}

}  // namespace

std::vector<double> linear_ticks(double low, double high, std::size_t wanted) {
  double rough = (high - low) / static_cast<double>(wanted);
  double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    step = power * factor;
    if (step >= rough * 0.999) break;
  }
  std::vector<double> out;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    out.push_back(i * step + 0.0);
  return out;
}

std::vector<double> log_ticks(double low, double high) {
  bool narrow = high / low < 1000;
  std::vector<double> out;
  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high * 1.0001; power *= 10)
    for (double factor : {1.0, 2.0, 5.0})
      if ((factor == 1 || narrow) && power * factor >= low * 0.9999 && power * factor <= high * 1.0001)
        out.push_back(power * factor);
  return out;
}

std::string short_number(double value) {
  if (std::abs(value) < 1000) return fmt::format("{:.4g}", value);
  std::string digits = fmt::format("{:.0f}", value);
  for (std::size_t at = digits.size(); at > 3 + (value < 0 ? 1u : 0u);) digits.insert(at -= 3, ",");
  return digits;
}

std::string LineChart::svg() const {
  return LinePainter(*this).run();
}

std::string BarChart::svg() const {
  constexpr double kBar = 22, kGap = 10;
  double left = std::min(330.0, 20 + 7.2 * static_cast<double>(longest_name(bars))), right = 190;
  double height = 40 + (kBar + kGap) * static_cast<double>(bars.size()) + 12;
  Svg svg(height, title);
  double scale = (kWidth - left - right) / highest(bars);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    double y = 36 + (kBar + kGap) * static_cast<double>(i), middle = y + kBar / 2;
    svg.words(left - 8, middle + 4, "end", bar.name);
    svg.add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:g}" fill="{}"/>)", left, y,
            bar.value * scale, kBar, color(0));
    if (bar.high > bar.low)
      svg.line(left + bar.low * scale, middle, left + bar.high * scale, middle, "#222",
               R"( stroke-width="2")");
    svg.words(left + std::max(bar.value, bar.high) * scale + 8, middle + 4, "start",
              fmt::format("{} {}", short_number(bar.value), unit));
  }
  return std::move(svg).end();
}

std::string BarChart::text(std::size_t width) const {
  std::size_t names = longest_name(bars);
  std::size_t room = width > names + 24 ? width - names - 24 : 10;
  std::string out = title + "\n";
  for (const Bar& bar : bars) {
    auto filled = static_cast<std::size_t>(
        std::lround(bar.value / highest(bars) * static_cast<double>(room)));
    std::string block;
    for (std::size_t i = 0; i < filled; ++i) block += "█";
    out += fmt::format("  {:<{}}  {}{} {} {}\n", bar.name, names, block, std::string(room - filled, ' '),
                       short_number(bar.value), unit);
  }
  return out;
}

}  // namespace twinloft::mailbench
