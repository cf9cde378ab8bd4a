// The user database of the sessions: finds the user of an address by looking up keys in a source.
//
// The keys are, in this order: with `detail_first` the address itself (ann+lists@example.org), the address
// without its detail (ann@example.org), and with `catch_all` the catch-all of the domain (@example.org). For
// an alias, all keys of its address are looked up in turn. The detail is that of the last address that has
// one.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

// Results of the source that are kept in memory. All times are zero: no cache.
struct CacheConfig {
  std::chrono::milliseconds positive{0};  // how long a user is served from memory
  std::chrono::milliseconds negative{0};  // how long "no such user" is served from memory
  std::chrono::milliseconds stale{0};  // how long a user is served while the source fails. "No such user" is
                                       // never served stale
  std::size_t bytes_max = 16u << 20;  // least recently used entries are evicted first. An eighth of it is for
                                      // "no such user"
};

struct DirectoryConfig {
  std::string detail_delimiter = "+";
  bool detail_first = false;
  bool catch_all = false;
  CacheConfig cache = {};
};

// One look-up in the source, for `lmtpd user`.
struct LookupStep {
  std::string key;
  std::string found;
};

class Directory : public UserDb {
 public:
  static constexpr int aliases_max = 8;  // one after the other; more count as a loop

  // As lookup(), and appends each look-up to `steps`.
  virtual LookupResult explain(const LookupRequest& request, std::vector<LookupStep>& steps) = 0;
};

std::unique_ptr<Directory> make_directory(std::unique_ptr<UserSource> source, DirectoryConfig config,
                                          const Clock& clock);

}  // namespace twinloft::lmtpd
