// Router: the Deliverer that sends mail to next hops by LMTP (RFC 2033) if the user's row names one. Another
// Deliverer delivers all other mail.
//
// All recipients of a message with the same next hop are in one transaction. Each gets the next hop's reply
// for it. After any failure (no connection, an ended connection, a malformed or missing reply), recipients
// without a reply get 451. A message without its replies may be delivered twice, but it is never lost.
//
// One hop may be Dovecot's LMTP of this machine (NextHopSpec::local). The spool is opened before its
// transaction, and made durable after its 2xx, as for external agents.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/connect/connector.h"
#include "twinloft/lmtpd/policy/quota.h"
#include "twinloft/lmtpd/route/next_hop.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/spool/foreign_writes.h"
#include "twinloft/lmtpd/tls/tls.h"

namespace twinloft::lmtpd {

struct RouterConfig {
  struct Hop {
    NextHopSpec spec;
    std::size_t target = 0;                            // the index in the connector
    std::shared_ptr<const TlsClientContext> tls = {};  // null for HopTls::none
  };
  std::string hostname;
  std::string detail_delimiter = "+";
  OverQuota over_quota = OverQuota::reject;  // of a hop whose mail lies on the spool
  std::uint32_t received_max = 100;          // with more Received fields: 554 5.4.6 (RFC 5321 section 6.3)
  std::uint32_t passes_max = 10;             // how often a message may pass this host
  std::vector<Hop> hops;
};

class Router final : public Deliverer {
 public:
  // local, connector, clock and writes must outlive the router. local: null if no mail is delivered here;
  // users without a next hop then get 451 4.3.5. writes: for hops whose mail lies on the spool of this
  // machine. Starts threads, so call it after the last fork.
  static std::unique_ptr<Router> create(RouterConfig config, Deliverer* local, Connector& connector,
                                        const Clock& clock, ForeignWrites* writes = nullptr);
  ~Router() override;

  DeliveryLimits limits(const User& user) const override;
  std::string group_of(const User& user) const override;
  DeliveryOutcome deliver(const Envelope& envelope, const Recipient& recipient,
                          const MessageBody& body) override;
  std::vector<DeliveryOutcome> deliver_group(const Envelope& envelope,
                                             std::span<const std::size_t> recipients, const MessageBody& body,
                                             const GivenUp& given_up) override;

  // Ends deliveries in flight soon, with 451. Thread-safe.
  void give_up();
  void settle_lines();  // as DeliveryLines::settle()

 private:
  struct Impl;
  explicit Router(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
