// Looks up names in separate threads: a name server may take minutes to answer, and the owner's thread must
// not wait.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/net/address.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::net {

class NameLookup {
 public:
  using Resolve = std::function<Result<std::vector<Address>>(const std::string& text)>;  // called on any
                                                                                         // thread
  using Done = std::function<void(Result<std::vector<Address>>)>;

  NameLookup(ports::Loop& loop, Resolve resolve);
  ~NameLookup();  // does not wait: a later answer is dropped
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // Calls `done` in a later turn of the loop. Each call starts a thread, so the caller must limit the number
  // of calls in flight.
  void start(const std::string& text, Done done);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace twinloft::repl::net
