// Router: the Deliverer that hands mail on by LMTP (RFC 2033) where a user's row names a next hop, and has
// another one deliver the rest.
//
// All recipients of a message who have one next hop are delivered to in one transaction there. Each gets the
// reply that the next hop gave for it. Whatever else happens (no connection, a connection that ends, a reply
// that is none, too few of them) is 451 for those without one. A message whose replies did not come may have
// been delivered: it comes a second time then, and never not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/connect/connector.h"
#include "twinloft/lmtpd/route/next_hop.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/tls/tls.h"

namespace twinloft::lmtpd {

struct RouterConfig {
  struct Hop {
    NextHopSpec spec;
    std::size_t target = 0;                            // the connector's
    std::shared_ptr<const TlsClientContext> tls = {};  // null: where it is HopTls::none
  };
  std::string hostname;
  std::string detail_delimiter = "+";
  std::uint32_t received_max = 100;  // more Received fields than that: 554 5.4.6 (RFC 5321 section 6.3)
  std::uint32_t passes_max = 10;     // as often a message may come by here
  std::vector<Hop> hops;
};

class Router final : public Deliverer {
 public:
  // `local`, the connector and the clock outlive it. `local` null: users without a next hop get 451 4.3.5.
  // Starts threads: after any fork.
  static std::unique_ptr<Router> create(RouterConfig config, Deliverer* local, Connector& connector,
                                        const Clock& clock);
  ~Router() override;

  DeliveryLimits limits(const User& user) const override;
  std::string group_of(const User& user) const override;
  bool may_refuse(const User& user) const override;
  std::optional<Reply> refusal(const User& user, const std::string& detail, std::uint64_t size) override;
  DeliveryOutcome deliver(const Envelope& envelope, const Recipient& recipient,
                          const MessageBody& body) override;
  std::vector<DeliveryOutcome> deliver_group(const Envelope& envelope,
                                             std::span<const std::size_t> recipients, const MessageBody& body,
                                             const GivenUp& given_up) override;

  // What is under way ends soon, with 451. Thread-safe.
  void give_up();

 private:
  struct Impl;
  explicit Router(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
