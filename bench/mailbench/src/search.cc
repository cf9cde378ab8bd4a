#include "twinloft/mailbench/search.h"

#include <algorithm>
#include <charconv>

#include "twinloft/base/check.h"
#include "twinloft/base/json.h"
#include "twinloft/base/units.h"
#include "twinloft/mailbench/report.h"

namespace twinloft::mailbench {

namespace {

constexpr double kWaitingMax = 0.001;

std::optional<double> parse_decimal(std::string_view text) {
  double value = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

double milliseconds(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

double failed_share(const LoadStats& s) {
  std::uint64_t all = 0;
  for (std::uint64_t count : s.last_outcomes) all += count;
  return all == 0 ? 0 : 1 - static_cast<double>(s.last_outcomes[0]) / static_cast<double>(all);
}

}  // namespace

Result<Promise> Promise::parse(std::string_view text) {
  Promise out;
  out.text_ = text;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    TL_TRY(out.add(item));
  }
  if (out.latencies_.empty())
    return fail(Errc::invalid, "'{}': name a limit of latency, such as p99<50ms", text);
  return out;
}

Status Promise::add(std::string_view item) {
  std::size_t sign = item.find('<');
  std::string_view name = item.substr(0, sign), value = sign == item.npos ? "" : item.substr(sign + 1);
  auto wrong = [&] {
    return fail(Errc::invalid, "'{}': write p99<50ms, mean<5ms, max<1s or failed<0.1%", item);
  };
  if (value.empty()) return wrong();
  if (name == "failed") {
    auto percent = value.ends_with('%') ? parse_decimal(value.substr(0, value.size() - 1)) : std::nullopt;
    if (!percent || *percent < 0 || *percent >= 100) return wrong();
    failed_max_ = *percent / 100;
    return {};
  }
  auto limit = parse_duration(value, BareNumber::refused);
  if (!limit || limit->count() <= 0) return wrong();
  Latency latency{std::string(name), Latency::Kind::percentile, 0,
                  static_cast<std::uint64_t>(limit->count())};
  if (name == "mean" || name == "max") {
    latency.kind = name == "mean" ? Latency::Kind::mean : Latency::Kind::max;
  } else {
    auto percent = name.starts_with('p') ? parse_decimal(name.substr(1)) : std::nullopt;
    if (!percent || !(*percent > 0 && *percent < 100)) return wrong();
    latency.percent = *percent;
  }
  latencies_.push_back(latency);
  return {};
}

std::string Promise::broken_by(const LoadResult& result) const {
  const LoadStats& s = result.stats;
  if (double failed = failed_share(s); failed > failed_max_)
    return fmt::format("{:.3g} % of the recipients failed", failed * 100);
  double waiting = static_cast<double>(result.waiting);
  if (waiting > kWaitingMax * static_cast<double>(result.messages_started + result.behind))
    return fmt::format("{} messages were due and not sent at the end", result.waiting);
  if (s.latency.good.count() == 0) return "no message was acknowledged";
  for (const Latency& l : latencies_) {
    double value = l.kind == Latency::Kind::mean  ? s.latency.good.mean()
                   : l.kind == Latency::Kind::max ? static_cast<double>(s.latency.good.max())
                                                  : static_cast<double>(s.latency.good.percentile(l.percent));
    if (value >= static_cast<double>(l.limit_ns)) return fmt::format("{} was {:.2f} ms", l.name, value / 1e6);
  }
  return {};
}

RateSearch::RateSearch(double closed_loop_rate, double precision, unsigned confirmations)
    : start_(closed_loop_rate),
      precision_(precision),
      confirmations_(confirmations),
      rate_(closed_loop_rate) {
  TL_CHECK(closed_loop_rate > 0 && precision > 0);
}

std::optional<double> RateSearch::next() const {
  return ended_ ? std::nullopt : std::optional(rate_);
}

void RateSearch::take(bool kept) {
  if (++trials_ == kTrialsMax) ended_ = true;
  if (confirming_ && kept && ++passed_ >= confirmations_) {
    confirmed_ = rate_;
    ended_ = true;
    return;
  }
  if (confirming_ && kept) return;
  if (kept) {
    low_ = rate_;
  } else {
    high_ = rate_;
    if (confirming_) low_ = 0;  // it was kept by luck
    confirming_ = false;
  }
  if (high_ == 0)
    rate_ = low_ * 1.25;
  else if (low_ == 0)
    rate_ = high_ * (high_ > start_ / 2 ? 0.8 : 0.5);
  else
    rate_ = (low_ + high_) / 2;
  if (rate_ < start_ * kLeastShare) ended_ = true;
  if (low_ == 0 || high_ == 0 || (high_ - low_) > precision_ * high_) return;
  rate_ = low_;
  passed_ = 0;
  confirming_ = confirmations_ > 0;
  if (confirming_) return;
  confirmed_ = low_;
  ended_ = true;
}

Result<SearchResult> run_search(const LoadOptions& options, const Promise& promise, double precision,
                                unsigned confirmations, const std::function<void(const Trial&)>& on_trial) {
  SearchResult out;
  auto attempt = [&](std::optional<double> rate) -> Status {
    LoadOptions o = options;
    std::string suffix = fmt::format(".{}", out.trials.size() + 1);
    o.run += suffix;
    if (!o.account.empty()) o.account += suffix;
    o.schedule.rate = rate;
    TL_TRY_ASSIGN(LoadResult result, run_load(o));
    Trial trial{rate, std::move(result), {}};
    trial.broken = promise.broken_by(trial.result);
    out.trials.push_back(std::move(trial));
    on_trial(out.trials.back());
    return {};
  };
  TL_TRY(attempt({}));
  const LoadStats& first = out.trials[0].result.stats;
  double closed = messages_per_minute(first) / 60 / static_cast<double>(options.recipients_per_message);
  if (closed <= 0)
    return fail(Errc::unavailable, "{}: no message was acknowledged in the closed loop", options.server);
  RateSearch search(options.schedule.rate.value_or(closed), precision, confirmations);
  while (auto rate = search.next()) {
    if (!out.trials.back().result.interrupted) TL_TRY(attempt(rate));
    if (out.trials.back().result.interrupted) return out;
    search.take(out.trials.back().broken.empty());
  }
  out.rate = search.found();
  return out;
}

std::string search_text(const LoadOptions& options, const Promise& promise, const SearchResult& result) {
  std::string out = fmt::format("mailbench search, {} on {}\n", promise.text(), options.server);
  if (result.rate)
    out += fmt::format("{:<15}{:.1f} messages a second ({:.0f} a minute), kept in the last trials\n",
                       "highest rate", *result.rate, *result.rate * 60);
  else
    out += fmt::format("{:<15}none that was tried keeps the promise\n", "highest rate");
  return out;
}

std::string search_json(const LoadOptions& options, const Promise& promise, const SearchResult& result) {
  json::array trials;
  for (const Trial& trial : result.trials) {
    const LoadStats& s = trial.result.stats;
    json::object one{{"kept", trial.broken.empty()}, {"broken", json_text(trial.broken)}};
    if (trial.rate) one["rate_per_s"] = *trial.rate;
    one["messages_per_minute"] = messages_per_minute(s);
    for (double p : {50.0, 90.0, 99.0, 99.9})
      one[fmt::format("p{}_ms", p)] = milliseconds(s.latency.good.percentile(p));
    one["waiting"] = trial.result.waiting;
    one["run"] = json_text(trial.result.run);
    trials.push_back(std::move(one));
  }
  json::object root{{"kind", "mailbench-search"},
                    {"version", 1},
                    {"promise", json_text(promise.text())},
                    {"settings", settings_json(options)},
                    {"trials", std::move(trials)}};
  if (result.rate) {
    root["rate_per_s"] = *result.rate;
    root["messages_per_minute"] = *result.rate * 60 * static_cast<double>(options.recipients_per_message);
  }
  return indented_json(root);
}

}  // namespace twinloft::mailbench
