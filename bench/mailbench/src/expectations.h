// The content of the accounts: the digest of each message, and the outcomes of the attempts for each
// recipient.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/hash.h"
#include "twinloft/base/result.h"
#include "twinloft/mailbench/account.h"

namespace twinloft::mailbench {

struct MessageKey {
  std::uint32_t run = 0;  // index of the account
  std::uint64_t number = 0;
  bool operator==(const MessageKey&) const = default;
};
struct PairKey {
  MessageKey message;
  std::uint32_t recipient = 0;  // index into Expectations::recipients
  bool operator==(const PairKey&) const = default;
};
struct KeyHash {
  std::size_t operator()(const MessageKey& k) const { return (k.number + k.run) * 0x9e3779b97f4a7c15ULL; }
  std::size_t operator()(const PairKey& k) const {
    return ((*this)(k.message) ^ k.recipient) * 0xbf58476d1ce4e5b9ULL;
  }
};

// A message and a recipient of it: the attempts by outcome, and the copies that were found.
struct Pair {
  std::uint32_t acknowledged = 0, deferred = 0, refused = 0, unknown = 0;
  std::uint32_t intact = 0, damaged = 0;
  std::int64_t acknowledged_us = 0;  // the last time, since 1970; 0: unknown
  std::int64_t stored_us = 0;        // the first intact copy; 0: unknown
};

struct Expectations {
  std::vector<std::string> runs;
  std::vector<bool> complete;                    // by run: the account has its closing line
  std::vector<std::optional<WallTime>> started;  // by run
  std::vector<std::string> recipients;
  std::unordered_map<std::string, std::uint32_t> recipient_index;  // as in the account
  std::unordered_map<std::string, std::uint32_t> lower_case_index;
  std::unordered_map<MessageKey, Hash128, KeyHash> messages;
  std::unordered_map<PairKey, Pair, KeyHash> pairs;

  // By recipient: an attempt for it may have stored something.
  std::vector<bool> may_have_mail;

  Status read(const std::string& account_path);
  // Nothing: not an id of these runs.
  std::optional<MessageKey> parse_id(std::string_view id) const;
  std::string id_of(const MessageKey& key) const;

 private:
  Status add(std::uint32_t run, const AccountLine& line);
  std::uint32_t intern(std::string_view recipient);
};

std::int64_t microseconds(WallTime time);
std::string lower_case(std::string_view text);

}  // namespace twinloft::mailbench
