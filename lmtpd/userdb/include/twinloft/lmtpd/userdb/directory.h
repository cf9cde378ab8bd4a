// What an address means: the user database that the sessions ask, over one source.
//
// An address is looked up as it was given where `detail_first` says so (ann+lists@example.org), then without
// its detail (ann@example.org), then as the catch-all of its domain (@example.org) where `catch_all` says so.
// An alias is followed, and then everything is looked up anew; its own detail counts, else that of the
// address that led to it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

// Kept in memory: what the source has said. All zero: nothing.
struct CacheConfig {
  std::chrono::milliseconds positive{0};  // for so long a user is taken from there
  std::chrono::milliseconds negative{0};  // and that there is none
  std::chrono::milliseconds stale{0};  // for so long a user is, while the source gives no answer; never that
                                       // there is none
  std::size_t bytes_max = 16u << 20;   // the users asked for longest ago go first; those who are not there
                                       // have an eighth of it
};

struct DirectoryConfig {
  std::string detail_delimiter = "+";
  bool detail_first = false;
  bool catch_all = false;
  CacheConfig cache = {};
};

// One look-up in the source on the way to an answer, for a person.
struct LookupStep {
  std::string key;
  std::string found;
};

class Directory : public UserDb {
 public:
  static constexpr int aliases_max = 8;  // in a row; more are a loop

  // As lookup(), and how it came to that.
  virtual LookupResult explain(const LookupRequest& request, std::vector<LookupStep>& steps) = 0;
};

std::unique_ptr<Directory> make_directory(std::unique_ptr<UserSource> source, DirectoryConfig config,
                                          const Clock& clock);

}  // namespace twinloft::lmtpd
