// The links of a volume to its peers, if it has any.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "expiry_watch.h"
#include "link_shares.h"
#include "link_state.h"
#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/daemon/volume_runner.h"
#include "twinloft/spool-repl/net/peer_net.h"

namespace twinloft::repl::daemon {

class Links {
 public:
  using Step = std::function<void(core::Event&&)>;
  using Trouble = std::function<void(ReplicaId peer, const std::string& text)>;
  struct Around {
    ports::Loop& loop;
    Random& random;
    const Clock& clock;
    ProcessParts process = {};
    std::shared_ptr<LinkShares> shares = {};  // null: no bound for all links
  };
  // step: gets the input of the links. certificate: warnings before one ends; peer 0: of this replica.
  // Connects and listens from now on. Errors: the addresses, or the files of read_link_security().
  static Result<std::unique_ptr<Links>> start(const VolumeSettings& settings, const Superblock& superblock,
                                              const Around& around, Step step, Trouble trouble,
                                              Trouble certificate);
  ~Links();

  // Addresses and security count for later connections.
  void reload(const std::vector<PeerSettings>& peers, net::LinkSecurity security);
  Status set_wanted(bool wanted);  // of all peers. Errors: Errc::invalid (no peers)
  void tell_troubles(core::VolumeStatus& status) const;
  // Of the peers that are connected.
  std::map<ReplicaId, LinkState> states() const;
  std::optional<std::int64_t> certificate_ends() const { return certificate_ends_; }  // seconds since 1970

  void send(const core::Send& s) { net_->send(s.peer, s.message); }
  void send(const core::SendRecord& r);
  void close(const core::ClosePeer& c) { net_->close(c.peer, c.reason); }
  void flush() {
    if (net_) net_->flush();
  }

 private:
  Links(const Around& around, Step step, Trouble trouble, Trouble certificate)
      : loop_(around.loop),
        clock_(around.clock),
        step_(std::move(step)),
        trouble_(std::move(trouble)),
        expiry_(std::move(certificate)),
        shares_(around.shares) {}
  void watch_certificates();
  void watch_bandwidth();
  void on_unfit(ReplicaId peer, const std::string& text, bool other_arbiter);

  ports::Loop& loop_;
  const Clock& clock_;
  Step step_;
  Trouble trouble_;
  ExpiryWatch expiry_;
  std::shared_ptr<LinkShares> shares_;  // null: no bound
  ports::Loop::TimerId expiry_timer_ = 0, bandwidth_timer_ = 0;
  std::shared_ptr<stream::SharedBandwidth> bandwidth_;  // of the process
  std::optional<std::int64_t> certificate_ends_;        // of this replica
  struct Peer {
    compress::Setting compression;
    stream::BandwidthPlan bandwidth;
    stream::LinkClass link;  // of the protocol, which changes at a restart only
    stream::Rate rate = {};  // at present
  };
  std::map<ReplicaId, Peer> peers_;
  std::map<ReplicaId, std::string> unfit_;  // the differences that the last handshake found
  std::vector<ByteSpan> pieces_;            // keeps its memory
  std::unique_ptr<net::PeerNet> net_;       // nullptr: no peers
};

}  // namespace twinloft::repl::daemon
