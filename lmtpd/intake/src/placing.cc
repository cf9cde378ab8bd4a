#include "twinloft/lmtpd/intake/placing.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "twinloft/intake_log/decide.h"
#include "twinloft/lmtpd/intake/mailbox.h"
#include "twinloft/lmtpd/intake/stuck.h"

namespace twinloft::lmtpd {

namespace {

// Messages that become durable together. Each has at most one open Mailbox, of five descriptors.
constexpr std::size_t batch_messages_max = 128;
constexpr std::size_t name_bytes_max = 255;

auto mailbox_of(const PlacedEntry& entry) {
  return std::tie(entry.maildir, entry.folder);
}

Status check_name(const std::string& name) {
  const bool good = !name.empty() && name.size() <= name_bytes_max && name.front() != '.' &&
                    name.find('/') == name.npos && name.find('\0') == name.npos;
  if (good) return {};
  return fail(Errc::denied, "\"{}\" is not the name of a message", name);
}

// Content is compared later, and changes nothing but the report.
Fate fate_of(const intake_log::Decision& decision) {
  if (decision.verdict == intake_log::Verdict::deliver) return Fate::missing;
  return decision.why == intake_log::Why::taken_away ? Fate::gone : Fate::present;
}

// A later run may succeed, and the copy in stuck/ would fail for the same reason.
bool is_of_machine(int sys) {
  return sys == ENOSPC || sys == EDQUOT || sys == EROFS || sys == EMFILE || sys == ENFILE || sys == ENOMEM;
}

}  // namespace

// A message whose file is in tmp/, whole.
struct Placing::Written {
  std::size_t index;
  std::shared_ptr<Mailbox> mailbox;
  Fd tmp;
  bool appeared = false;
};

Placing::Placing(PlacingConfig config, std::span<const PlacedEntry> entries, FileOps& ops)
    : config_(std::move(config)),
      entries_(entries),
      ops_(ops),
      order_(entries.size()),
      outcomes_(entries.size()) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::stable_sort(order_, {}, [&](std::size_t i) { return mailbox_of(entries_[i]); });
}

void Placing::each_mailbox(const std::function<void(std::span<const std::size_t>)>& visit) {
  for (std::size_t from = 0; from < order_.size();) {
    std::size_t to = from + 1;
    while (to < order_.size() && mailbox_of(entries_[order_[to]]) == mailbox_of(entries_[order_[from]])) ++to;
    visit(std::span(order_).subspan(from, to - from));
    from = to;
  }
}

// A folder that cannot be opened or listed has no message that replay could find. place() says why.
void Placing::look() {
  each_mailbox([&](std::span<const std::size_t> indices) {
    const PlacedEntry& first = entries_[indices.front()];
    auto mailbox = Mailbox::open(config_.root, first.maildir, first.folder, ops_);
    for (std::size_t i : indices) {
      const bool found = mailbox && mailbox->find(entries_[i].name).value_or(std::nullopt);
      outcomes_[i].fate = fate_of(intake_log::decide(
          {.settled = entries_[i].settled,
           .presence = found ? intake_log::Presence::same : intake_log::Presence::absent}));
    }
  });
}

void Placing::verify() {
  each_mailbox([&](std::span<const std::size_t> indices) {
    auto is_present = [&](std::size_t i) { return outcomes_[i].fate == Fate::present; };
    if (std::ranges::none_of(indices, is_present)) return;
    const PlacedEntry& first = entries_[indices.front()];
    auto mailbox = Mailbox::open(config_.root, first.maildir, first.folder, ops_);
    for (std::size_t i : indices)
      if (mailbox && is_present(i)) verify(i, *mailbox);
  });
}

void Placing::verify(std::size_t index, Mailbox& mailbox) {
  const PlacedEntry& entry = entries_[index];
  auto found = mailbox.find(entry.name);
  if (!found || !*found) return;
  auto same = mailbox.has_content(**found, entry.content);
  if (!same)
    keep_copy(index, Fate::differs, same.error().message);
  else if (!*same)
    keep_copy(index, Fate::differs, "the file has other content than the log");
}

Status Placing::place(const std::function<Status()>& batch_done) {
  std::vector<std::size_t> missing;
  for (std::size_t i : order_)
    if (outcomes_[i].fate == Fate::missing) missing.push_back(i);
  for (std::size_t at = 0; at < missing.size(); at += batch_messages_max) {
    auto batch = std::span(missing).subspan(at, std::min(batch_messages_max, missing.size() - at));
    TL_TRY(place_batch(batch));
    TL_TRY(batch_done());
  }
  return {};
}

// The files become durable together, then the names.
Status Placing::place_batch(std::span<const std::size_t> batch) {
  std::vector<Written> written;
  for (std::size_t i : batch) (void)write(i, written);
  if (written.empty()) return {};
  Status durable = ops_.sync_file_system(written.front().tmp.get());
  for (Written& file : written) {
    if (durable) appear(file);
    (void)ops_.unlink(file.tmp.get(), entries_[file.index].name);
  }
  TL_TRY(durable);
  TL_TRY(ops_.sync_file_system(written.front().tmp.get()));
  for (const Written& file : written)
    if (file.appeared) outcomes_[file.index].fate = Fate::delivered;
  return {};
}

// Writes the file into tmp/, under its later name. A file of this name there is of an earlier replay, since
// the delivery used a name without sizes.
bool Placing::write(std::size_t index, std::vector<Written>& written) {
  const PlacedEntry& entry = entries_[index];
  auto attempt = [&]() -> Status {
    TL_TRY(check_name(entry.name));
    std::shared_ptr<Mailbox> mailbox;
    if (!written.empty() && mailbox_of(entries_[written.back().index]) == mailbox_of(entry)) {
      mailbox = written.back().mailbox;
    } else {
      TL_TRY_ASSIGN(Mailbox opened, Mailbox::open(config_.root, entry.maildir, entry.folder, ops_));
      mailbox = std::make_shared<Mailbox>(std::move(opened));
    }
    TL_TRY(mailbox->find(entry.name));  // a folder that cannot be listed may have the message
    TL_TRY_ASSIGN(Fd tmp, mailbox->open_tmp());
    if (Status removed = ops_.unlink(tmp.get(), entry.name); !removed && removed.error().sys != ENOENT)
      return removed;
    TL_TRY_ASSIGN(Fd file, ops_.create_file(tmp.get(), entry.name));
    if (Status stored = ops_.write(file.get(), as_bytes(entry.content)); !stored) {
      (void)ops_.unlink(tmp.get(), entry.name);
      return stored;
    }
    written.push_back({index, std::move(mailbox), std::move(tmp)});
    return {};
  };
  Status done = attempt();
  if (!done) refuse(index, done.error());
  return done.has_value();
}

// A link never replaces a file.
void Placing::appear(Written& written) {
  const std::string& name = entries_[written.index].name;
  Status linked = ops_.link(written.tmp.get(), name, written.mailbox->incoming(), name);
  if (!linked) return refuse(written.index, linked.error());
  written.appeared = true;
  count(written);
}

// A file without this line would report a mailbox as smaller than it is. Without a file, the next delivery
// counts.
void Placing::count(const Written& written) {
  const PlacedEntry& entry = entries_[written.index];
  if (!config_.counts || !config_.counts(entry.folder)) return;
  const std::string line = fmt::format("{} 1\n", entry.content.size());
  auto added = ops_.append(written.mailbox->maildir(), "maildirsize", as_bytes(line));
  if (!added && added.error().sys != ENOENT) (void)ops_.unlink(written.mailbox->maildir(), "maildirsize");
}

void Placing::refuse(std::size_t index, const Error& error) {
  if (is_of_machine(error.sys)) {
    outcomes_[index] = {Fate::kept, error.message, {}, error.sys};
    return;
  }
  keep_copy(index, Fate::stuck, error.message);
}

// A message that differs stays in its Maildir, also if no copy can be kept.
void Placing::keep_copy(std::size_t index, Fate fate, std::string why) {
  const PlacedEntry& entry = entries_[index];
  auto keep = [&]() -> Result<std::string> {
    TL_TRY_ASSIGN(Stuck stuck, Stuck::open(config_.log, config_.incarnation, ops_));
    return stuck.keep({entry.number, entry.maildir, entry.folder, entry.name, why, entry.content});
  };
  auto file = keep();
  if (file) {
    outcomes_[index] = {fate, std::move(why), *std::move(file), 0};
    return;
  }
  outcomes_[index] = {Fate::kept,
                      fmt::format("{}; no copy could be kept: {}", why, file.error().message),
                      {},
                      file.error().sys};
}

}  // namespace twinloft::lmtpd
