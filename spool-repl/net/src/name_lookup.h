// Looks names up on threads of their own: a name server may take minutes to answer, and the owner thread
// waits for nobody.
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
  ~NameLookup();  // waits for nobody: an answer that comes later is dropped
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // `done` comes on a later turn of the loop. Each call is a thread: the caller sees to it that few are under
  // way.
  void start(const std::string& text, Done done);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace twinloft::repl::net
