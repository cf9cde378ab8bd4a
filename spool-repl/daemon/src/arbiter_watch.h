// Asks the arbiter of a volume, also from time to time without a decision, so that an unreachable arbiter is
// detected before it is needed.
#pragma once

#include <memory>
#include <string>

#include "twinloft/spool-repl/arbiter/arbiter.h"

namespace twinloft::repl::daemon {

class ArbiterWatch {
 public:
  // answer: gets the answers to ask(). The log reports when the arbiter stops answering, and when it answers
  // again.
  ArbiterWatch(ports::Loop& loop, std::unique_ptr<arbiter::Store> store, std::string volume,
               arbiter::Arbiter::Answer answer);

  void ask(core::ArbiterRequest request) { arbiter_.ask(std::move(request)); }
  const std::string& trouble() const { return arbiter_.trouble(); }

 private:
  static constexpr Duration look_every = std::chrono::seconds(30);
  static constexpr core::Token look_token = 0;  // not a token of the core
  void look();
  void on_answer(core::ArbiterAnswer answer);

  ports::Loop& loop_;
  std::string volume_;
  arbiter::Arbiter::Answer answer_;
  bool silent_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // the timer ends with it
  arbiter::Arbiter arbiter_;
};

}  // namespace twinloft::repl::daemon
