#include "plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

namespace twinloft::power {

namespace {

constexpr std::string_view names[moments] = {"record", "under_way", "overlapping", "superblock",
                                             "reply",  "sync",      "home",        "any"};
constexpr unsigned percent[moments] = {18, 8, 12, 12, 20, 10, 10, 10};

class Candidates {
 public:
  explicit Candidates(const PlanOptions& options) : options_(options) {}

  void see(const EventReader::Item& item, std::uint64_t number) {
    const Event& e = item.event;
    if (e.kind == EventKind::name) files_[e.file] = std::string(as_text(item.bytes));
    const std::string& name = files_[e.file];
    if (name.ends_with(".journal")) {
      if (e.kind == EventKind::write) offsets_[e.id] = e.offset, under_way_[e.file]++;
      if (e.kind == EventKind::done) under_way_[e.file]--;
    }
    if (name == "account" && e.kind == EventKind::write) {
      account_bytes_ = std::max(account_bytes_, e.offset + e.length);
      last_reply_ = number;
    }
    if (account_bytes_ < options_.reply_bytes_min || e.kind == EventKind::name) return;
    all_[static_cast<std::size_t>(Moment::any)].push_back(number);
    if (auto moment = moment_of(e, name); moment != Moment::any)
      all_[static_cast<std::size_t>(moment)].push_back(number);
  }

  // The unmount after the load is not part of the test.
  void forget_what_came_after_the_load() {
    for (auto& numbers : all_)
      while (!numbers.empty() && numbers.back() > last_reply_) numbers.pop_back();
  }
  const std::vector<std::uint64_t>& of(Moment moment) const {
    const auto& wanted = all_[static_cast<std::size_t>(moment)];
    return wanted.empty() ? all_[static_cast<std::size_t>(Moment::any)] : wanted;
  }

 private:
  Moment moment_of(const Event& e, const std::string& name) {
    if (name == "account") return e.kind == EventKind::write ? Moment::reply : Moment::any;
    if (name.ends_with(".journal")) {
      if (e.kind == EventKind::write) return under_way_[e.file] > 1 ? Moment::overlapping : Moment::under_way;
      if (e.kind != EventKind::done) return Moment::any;
      return offsets_[e.id] < options_.ring_offset ? Moment::superblock : Moment::record;
    }
    return e.kind == EventKind::sync_begin || e.kind == EventKind::sync_done ? Moment::sync : Moment::home;
  }

  const PlanOptions& options_;
  std::map<std::uint16_t, std::string> files_;
  std::map<std::uint64_t, std::uint64_t> offsets_;  // of journal writes, by id
  std::map<std::uint16_t, int> under_way_;          // writes to journals, by file
  std::uint64_t account_bytes_ = 0, last_reply_ = 0;
  std::array<std::vector<std::uint64_t>, moments> all_;
};

Moment moment_at(std::uint64_t draw) {
  for (std::size_t i = 0; i < moments; ++i) {
    if (draw < percent[i]) return static_cast<Moment>(i);
    draw -= percent[i];
  }
  return Moment::any;
}

}  // namespace

std::string_view to_string(Moment moment) {
  return names[static_cast<std::size_t>(moment)];
}

Result<std::vector<Step>> make_plan(EventReader& log, const PlanOptions& options, SeededRandom& random) {
  Candidates candidates(options);
  EventReader::Item item;
  log.rewind();
  for (std::uint64_t number = 1; log.next(item); ++number) candidates.see(item, number);
  log.rewind();
  candidates.forget_what_came_after_the_load();
  if (candidates.of(Moment::any).empty())
    return fail(Errc::not_found,
                "the account never reached {} bytes: too little was delivered to cut anything",
                options.reply_bytes_min);
  std::vector<Step> steps;
  std::uint64_t first = random.below(100);
  for (std::size_t i = 0; i < options.steps; ++i) {
    // Spread evenly over the kinds of moments, so that even a few images cover each kind.
    Step step{0, moment_at((first + 29 * i) % 100), random.below(100) < options.lsn_percent};
    const auto& numbers = candidates.of(step.moment);
    step.event = numbers[random.below(numbers.size())];
    steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.event < b.event; });
  return steps;
}

}  // namespace twinloft::power
