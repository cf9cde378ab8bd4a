#include "expectations.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace twinloft::mailbench {

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::int64_t microseconds(WallTime time) {
  return time.seconds * 1'000'000 + time.microseconds;
}

Status Expectations::read(const std::string& account_path) {
  TL_TRY_ASSIGN(AccountReader reader, AccountReader::open(account_path));
  if (std::ranges::find(runs, reader.run()) != runs.end())
    return fail(Errc::invalid, "account {}: run {} is in another account already", account_path,
                reader.run());
  auto run = static_cast<std::uint32_t>(runs.size());
  runs.push_back(reader.run());
  complete.push_back(false);
  started.push_back(reader.started());
  AccountLine line;
  for (;;) {
    TL_TRY_ASSIGN(bool there, reader.next(line));
    if (!there) break;
    if (auto added = add(run, line); !added)
      return fail(added.error().code, "account {}: {}", account_path, added.error().message);
  }
  complete[run] = reader.complete();
  return {};
}

Status Expectations::add(std::uint32_t run, const AccountLine& line) {
  auto key = parse_id(line.id);
  if (!key || key->run != run) return fail(Errc::corrupt, "message {} is not of run {}", line.id, runs[run]);
  auto [message, is_new] = messages.emplace(*key, line.digest);
  if (!is_new && message->second != line.digest)
    return fail(Errc::corrupt, "message {} has two digests", line.id);
  std::uint32_t recipient = intern(line.recipient);
  Pair& pair = pairs[{*key, recipient}];
  if (line.outcome != Outcome::refused && line.outcome != Outcome::unsent) may_have_mail[recipient] = true;
  switch (line.outcome) {
    case Outcome::acknowledged:
      ++pair.acknowledged;
      if (started[run])
        pair.acknowledged_us = microseconds(*started[run]) + static_cast<std::int64_t>(line.since_us);
      break;
    case Outcome::deferred:
      ++pair.deferred;
      break;
    case Outcome::refused:
      ++pair.refused;
      break;
    case Outcome::unknown:
      ++pair.unknown;
      break;
    case Outcome::unsent:
      break;
  }
  return {};
}

std::uint32_t Expectations::intern(std::string_view recipient) {
  auto [it, is_new] = recipient_index.emplace(recipient, static_cast<std::uint32_t>(recipients.size()));
  if (is_new) {
    recipients.emplace_back(recipient);
    may_have_mail.push_back(false);
    lower_case_index.emplace(lower_case(recipient), it->second);
  }
  return it->second;
}

std::optional<MessageKey> Expectations::parse_id(std::string_view id) const {
  std::size_t dash = id.rfind('-');
  if (dash == id.npos) return {};
  auto run = std::ranges::find(runs, id.substr(0, dash));
  std::string_view digits = id.substr(dash + 1);
  MessageKey key;
  auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), key.number);
  if (run == runs.end() || ec != std::errc{} || end != digits.data() + digits.size()) return {};
  key.run = static_cast<std::uint32_t>(run - runs.begin());
  return key;
}

std::string Expectations::id_of(const MessageKey& key) const {
  return fmt::format("{}-{}", runs[key.run], key.number);
}

}  // namespace twinloft::mailbench
