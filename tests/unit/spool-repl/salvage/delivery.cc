#include "delivery.h"

namespace twinloft::repl::salvage {

void Delivery::extract() {
  bundle_ = beside_ / fmt::format("bundle-{}", ++bundles_);
  extract_from(loser_, bundle_);
}

DeliverReport Delivery::run(const FakeLmtp* server, const DeliverOptions& options, FileOps* ops,
                            std::optional<Error>* error) {
  MakeTarget make = [&](int root, FileOps& used) {
    return server ? make_lmtp_target(server->server(), {}) : make_copy_target(root, used);
  };
  auto done = deliver(open_bundle(bundle_), winner_.root(), make, options, {}, ops);
  if (!done && error) *error = done.error();
  EXPECT_TRUE(done || error) << (done ? "" : done.error().message);
  return done.value_or(DeliverReport{});
}

std::map<std::string, Fate> Delivery::fates(const DeliverReport& report) const {
  std::map<std::string, Fate> out;
  Bundle bundle = open_bundle(bundle_);
  for (const MessageFate& m : report.messages) {
    std::string content = read(
        fmt::format("{}/messages/{}", bundle_, bundle.manifest().messages[m.message].number));
    std::size_t at = content.find("Subject: ") + 9;
    out[content.substr(at, content.find('\n', at) - at)] = m.fate;
  }
  return out;
}

}  // namespace twinloft::repl::salvage
