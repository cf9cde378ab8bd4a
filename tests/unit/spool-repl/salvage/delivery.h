// A loser, its bundle and a winner, and what a delivery from one to the other came to.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "fake_lmtp.h"
#include "fault_ops.h"
#include "spool.h"
#include "twinloft/spool-repl/salvage/deliver.h"

namespace twinloft::repl::salvage {

class Delivery : public testing::Test {
 protected:
  // The loser's late messages, into a new bundle.
  void extract();
  // Without a server: copies. An error is the test's failure, unless `error` takes it.
  DeliverReport run(const FakeLmtp* server = nullptr, const DeliverOptions& options = {},
                    FileOps* ops = nullptr, std::optional<Error>* error = nullptr);
  // "subject: fate" of each message of the report, by subject.
  std::map<std::string, Fate> fates(const DeliverReport& report) const;
  // The detail of the first message.
  static std::string detail(const DeliverReport& report) {
    return report.messages.empty() ? "" : report.messages[0].detail;
  }
  // How often the winner has a message of that subject.
  std::size_t count(const std::string& subject) const {
    return winner_.find("Subject: " + subject + "\n").size();
  }

  Spool loser_, winner_;
  TemporaryDirectory beside_;
  std::string bundle_;

 private:
  int bundles_ = 0;
};

}  // namespace twinloft::repl::salvage
