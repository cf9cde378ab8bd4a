// A loser, its bundle and a winner, and the results of a delivery from one to the other.
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
  // Extracts the loser's late messages into a new bundle.
  void extract();
  // Without a server, messages are copied. An error fails the test, unless `error` receives it.
  DeliverReport run(const FakeLmtp* server = nullptr, const DeliverOptions& options = {},
                    FileOps* ops = nullptr, std::optional<Error>* error = nullptr);
  // Returns "subject: fate" for each message of the report, ordered by subject.
  std::map<std::string, Fate> fates(const DeliverReport& report) const;
  // Returns the detail of the first message.
  static std::string detail(const DeliverReport& report) {
    return report.messages.empty() ? "" : report.messages[0].detail;
  }
  // The number of the winner's messages with that subject.
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
