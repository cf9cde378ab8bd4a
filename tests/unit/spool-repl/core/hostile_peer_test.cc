// A hostile peer with the secret: its messages are changed, repeated, omitted or old. The replica refuses or
// follows each message. The process never ends, and the disk stays recoverable.
#include "roles.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl::core {
namespace {

struct HostilePeer : RolesTest {
  SeededRandom dice{1};
  std::vector<std::vector<PeerMessage>> said;  // all messages that each replica has sent
  int changed = 0;
  std::optional<EpochValue> held;     // the arbiter's value
  std::vector<std::size_t> answered;  // the requests of each replica that are answered, or were lost with its
                                      // process

  bool one_in(std::uint64_t n) { return dice.below(n) == 0; }

  // Replaces a part (a mark, an epoch) by that of an earlier message of the same kind, so that it names
  // something that exists.
  void splice(ReplicaId from, const PeerMessage& message, std::vector<std::byte>& bytes) {
    std::vector<const PeerMessage*> alike;
    for (const PeerMessage& old : said[from - 1])
      if (old.index() == message.index()) alike.push_back(&old);
    if (alike.empty()) return;
    std::vector<std::byte> old;
    encode_peer_message(*alike[dice.below(alike.size())], old);
    std::size_t both = std::min(old.size(), bytes.size()), at = dice.below((both + 7) / 8) * 8;
    std::size_t most = std::min<std::size_t>(both - std::min(both, at), 8 * (1 + dice.below(6)));
    std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(at), most,
                bytes.begin() + static_cast<std::ptrdiff_t>(at));
  }
  // Replaces one number of the message by a near or a far one, or changes one byte.
  PeerMessage changed_message(ReplicaId from, const PeerMessage& message) {
    std::vector<std::byte> bytes;
    encode_peer_message(message, bytes);
    if (bytes.empty()) return message;
    bool spliced = one_in(2);
    if (spliced) splice(from, message, bytes);
    for (std::uint64_t times = spliced ? 0 : 1 + dice.below(2); times > 0; --times) {
      if (bytes.size() < 8 || one_in(3)) {
        bytes[dice.below(bytes.size())] = std::byte(dice.below(256));
        continue;
      }
      std::size_t at = std::min<std::size_t>(dice.below((bytes.size() + 7) / 8) * 8, bytes.size() - 8);
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data() + at, 8);
      constexpr std::uint64_t far[] = {0, 1, 2, 5, 1000, UINT32_MAX, UINT64_MAX};
      value = one_in(2) ? value + dice.below(9) - 4 : far[dice.below(std::size(far))];
      std::memcpy(bytes.data() + at, &value, 8);
    }
    auto out = decode_peer_message(wire_type(message), bytes);
    if (!out) return message;
    ++changed;
    return *out;
  }
  void deliver(ReplicaId from, ReplicaId to, const PeerMessage& message) {
    if (!up[{std::min(from, to), std::max(from, to)}]) return;
    node(to).input(from, message);
    if (!std::holds_alternative<RecordMessage>(message) || one_in(8)) said[from - 1].push_back(message);
  }
  void lie(ReplicaId from, ReplicaId to, const PeerMessage& message) {
    switch (dice.below(5)) {
      case 0:
        return;
      case 1:
        deliver(from, to, message);
        return deliver(from, to, message);
      case 2:
        if (!said[from - 1].empty()) deliver(from, to, said[from - 1][dice.below(said[from - 1].size())]);
        return deliver(from, to, message);
      default:
        return deliver(from, to, changed_message(from, message));
    }
  }
  // When either side closes a connection, it is down for both.
  void end_refused() {
    for (ReplicaId id = 1; id <= nodes.size(); ++id)
      for (const ClosePeer& c : std::exchange(node(id).closed, {}))
        if (up[{std::min(id, c.peer), std::max(id, c.peer)}]) disconnect(id, c.peer);
  }
  // The arbiter's answer is true, or it is lost.
  bool ask_arbiter(ReplicaId id) {
    std::size_t asked = node(id).arbiter_requests.size();
    if (answered[id - 1] == asked || !one_in(4)) return false;
    answered[id - 1] = asked;
    ArbiterRequest r = node(id).arbiter_requests.back();
    bool equal = r.read || r.expected == held;
    if (equal && !r.read) held = r.desired;
    Outcome outcome = one_in(5) ? Outcome::unknown : equal ? Outcome::granted : Outcome::refused;
    node(id).step(ArbiterAnswer{r.token, outcome, held, "no answer"});
    return true;
  }
  void converse(std::uint64_t lies, int most) {
    for (bool moved = true; moved && most > 0;) {
      moved = false;
      for (ReplicaId from = 1; from <= nodes.size(); ++from) {
        for (; delivered[from - 1] < node(from).sent.size(); moved = true, --most) {
          std::size_t i = delivered[from - 1]++;
          PeerMessage message = node(from).sent[i];
          ReplicaId to = node(from).sent_to[i];
          if (lies != 0 && one_in(lies))
            lie(from, to, message);
          else
            deliver(from, to, message);
          end_refused();
        }
        for (std::uint64_t n = dice.below(6); n > 0 && node(from).complete_one(); --n) moved = true, --most;
        if (ask_arbiter(from)) moved = true, --most;
      }
    }
  }
  void happen() {
    ReplicaId id = static_cast<ReplicaId>(1 + dice.below(nodes.size())),
              other = static_cast<ReplicaId>(1 + dice.below(nodes.size()));
    bool connected = up[{std::min(id, other), std::max(id, other)}];
    switch (dice.below(12)) {
      case 0:
        node(id).step(Promote{77, one_in(3), one_in(9)});
        break;
      case 1:
        node(id).step(Demote{78});
        break;
      case 2:
        node(id).step(Discard{79, one_in(2)});
        break;
      case 3:
        checkpoint_begin(id);
        break;
      case 4:
        node(id).pass_time(std::chrono::milliseconds(dice.below(8000)));
        break;
      case 5:
        for (ReplicaId peer = 1; peer <= nodes.size(); ++peer)
          if (peer != id && up[{std::min(id, peer), std::max(id, peer)}]) disconnect(id, peer);
        ASSERT_NO_FATAL_FAILURE(restart(id));
        answered[id - 1] = node(id).arbiter_requests.size();
        break;
      case 6:
      case 7:
        if (id != other && connected)
          disconnect(id, other);
        else if (id != other)
          connect(id, other);
        break;
      default:
        for (std::uint64_t n = 1 + dice.below(30); n > 0; --n)
          node(id).submit(ClientOp::write, dice.below(200) * block_size, block_size, in.data());
        node(id).submit(ClientOp::flush);
    }
  }
  void checkpoint_begin(ReplicaId id) { node(id).step(CheckpointNow{}); }
  void run(std::uint64_t seed, Arbiter arbiter) {
    dice = SeededRandom(seed);
    std::size_t count = 2 + dice.below(2);
    also = nullptr;
    if (count > 2 && one_in(2))  // replicas 2 and 3 are at another site than 1
      also = [](ReplicaId id, Config& c) {
        c.site = id == 1 ? "here" : "there";
        for (PeerConfig& p : c.peers) p.site = p.id == 1 ? "here" : "there";
      };
    make(count, arbiter, one_in(2) ? OnPeerLoss::go_on : OnPeerLoss::suspend);
    said.assign(count, {});
    held.reset();
    answered.assign(count, 0);
    connect_all();
    converse(0, 400);
    node(1).step(Promote{77, false});
    converse(0, 400);
    for (int turn = 0; turn < 30 && !HasFatalFailure(); ++turn) {
      happen();
      converse(2 + dice.below(30), 300);
      if (one_in(3))
        for (ReplicaId a = 1; a <= count; ++a)
          for (ReplicaId b = a + 1; b <= count; ++b)
            if (!up[{a, b}]) connect(a, b);
    }
  }
  void run_all(Arbiter arbiter) {
    const char* set = std::getenv("TWINLOFT_HOSTILE_SEEDS");
    std::uint64_t seeds = set ? std::strtoull(set, nullptr, 10) : 150;
    const char* from = std::getenv("TWINLOFT_HOSTILE_FIRST");
    std::uint64_t first = from ? std::strtoull(from, nullptr, 10) : 1;
    for (std::uint64_t seed = first; seed < first + seeds && !HasFailure(); ++seed) {
      SCOPED_TRACE(fmt::format("seed {}", seed));
      if (set) std::fprintf(stderr, "seed %llu\r", static_cast<unsigned long long>(seed));
      run(seed, arbiter);
    }
    EXPECT_GT(changed, 100);
  }
};

TEST_F(HostilePeer, NothingThatItSaysEndsTheProcess) {
  run_all(Arbiter::manual);
}

TEST_F(HostilePeer, NothingThatItSaysEndsTheProcessOfAReplicaWithAnArbiter) {
  run_all(Arbiter::external);
}

}  // namespace
}  // namespace twinloft::repl::core
