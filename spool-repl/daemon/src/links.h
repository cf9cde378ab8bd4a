// The links of a volume to its peers, if it has any.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/spool-repl/core/core.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/net/peer_net.h"

namespace twinloft::repl::daemon {

class Links {
 public:
  using Step = std::function<void(core::Event&&)>;
  using Trouble = std::function<void(ReplicaId peer, const std::string& text)>;
  // step: gets the input of the links. Connects and listens from now on. Errors: the addresses, or the file
  // with the secret.
  static Result<std::unique_ptr<Links>> start(const VolumeSettings& settings, const Superblock& superblock,
                                              ports::Loop& loop, Random& random, Step step, Trouble trouble);

  // For later connections.
  void reload(const std::map<ReplicaId, std::string>& addresses, const std::string& secret);
  Status set_wanted(bool wanted);  // of all peers. Errors: Errc::invalid (no peers)
  void tell_troubles(core::VolumeStatus& status) const;

  void send(const core::Send& s) { net_->send(s.peer, s.message); }
  void send(const core::SendRecord& r);
  void close(const core::ClosePeer& c) { net_->close(c.peer, c.reason); }
  void flush() {
    if (net_) net_->flush();
  }

 private:
  Links(Step step, Trouble trouble) : step_(std::move(step)), trouble_(std::move(trouble)) {}
  void on_unfit(ReplicaId peer, const std::string& text, bool other_arbiter);

  Step step_;
  Trouble trouble_;
  std::vector<ReplicaId> peers_;
  std::map<ReplicaId, std::string> unfit_;  // the differences that the last handshake found
  std::vector<ByteSpan> pieces_;            // keeps its memory
  std::unique_ptr<net::PeerNet> net_;       // nullptr: no peers
};

}  // namespace twinloft::repl::daemon
