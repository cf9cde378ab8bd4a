// Sectors of a data area that are unreadable until they are written again, one or several, on primaries and
// secondaries. Also readable sectors with wrong content: rotten, overwritten by a misdirected write, or never
// written.
//
// The right content stays below such a sector, and the checkers read that. So they notice a repair with other
// content, and a core that trusts the disk. A read may fail only if no replica can help. The failure shows in
// the status, and the sector becomes readable later. So a cluster in which no replica can read a block also
// comes to rest.
#include <algorithm>
#include <cerrno>

#include "node.h"

namespace twinloft::repl::sim {

void Cluster::make_latent() {
  Node* p = primary();
  Node& n = p && random_.below(3) != 0 ? *p : *nodes_[random_.below(nodes_.size())];
  coverage_.hit("fault: a sector of the data area cannot be read");
  disturbances_++;
  std::uint64_t places = 1 + random_.below(4), longest = random_.below(3) == 0 ? 40 : 3;
  bool twice = random_.below(4) == 0;  // on a second replica too
  Node& other = *nodes_[(n.index + 1 + random_.below(nodes_.size() - 1)) % nodes_.size()];
  for (std::uint64_t i = 0; i < places; ++i) {
    std::uint64_t count = std::min(1 + random_.below(longest), volume_blocks_);
    std::uint64_t at = random_.below(volume_blocks_ - count + 1);
    std::string whose = twice ? fmt::format("{} and {}", n.id, other.id) : std::to_string(n.id);
    note(fmt::format("replica {}: blocks {} to {} cannot be read", whose, at, at + count - 1));
    for (std::uint64_t b = at; b < at + count; ++b) {
      n.data.make_unreadable(b * block_size);
      if (twice) other.data.make_unreadable(b * block_size);
    }
  }
}

// Not after an adoption or a loss: without digests, wrong content is not detected.
void Cluster::make_wrong() {
  Node* p = primary();
  Node& n = p && random_.below(3) != 0 ? *p : *nodes_[random_.below(nodes_.size())];
  if (adopted_ || n.damaged || n.digests_rotted || loss_accepted_) return make_latent();
  disturbances_++;
  std::uint64_t kind = random_.below(3), places = 1 + random_.below(4);
  for (std::uint64_t i = 0; i < places; ++i) {
    std::uint64_t at = random_.below(volume_blocks_), from = random_.below(volume_blocks_);
    Page content = n.data.page(from);
    if (kind == 0) {
      coverage_.hit("fault: a block of the data area rots");
      std::byte block[block_size];
      n.data.page(at).read(block);
      block[random_.below(block_size)] ^= static_cast<std::byte>(1 + random_.below(255));
      content = Page::of(block);
    } else if (kind == 1) {
      coverage_.hit("fault: a block of the data area holds another block's content");
    } else {
      coverage_.hit("fault: a block of the data area was never written");
      content = Page();
    }
    if (content.same(n.data.page(at))) continue;
    note(fmt::format("replica {}: block {} has wrong content", n.id, at));
    n.data.make_wrong(at * block_size, content);
  }
}

// Otherwise few reads would hit such a sector.
void Cluster::aim_at_unreadable(const Node& n, std::uint64_t& lba, std::uint64_t blocks) {
  auto bad = n.data.flawed();
  if (bad.empty() || random_.below(2) == 0) return;
  lba = std::min(bad[random_.below(bad.size())], volume_blocks_ - blocks);
}

// A connected replica that has everything and can read these blocks.
bool Cluster::has_helper(const Node& n, std::uint64_t lba, std::uint64_t blocks) const {
  auto peers = n.core->status().peers;
  return std::any_of(peers.begin(), peers.end(), [&](const core::PeerStatus& p) {
    const Node& other = *nodes_[p.id - 1];
    bool quiet = std::any_of(links_.begin(), links_.end(), [&](const Link& l) {
      bool ours = (l.a == n.index && l.b == other.index) || (l.b == n.index && l.a == other.index);
      return ours && l.up && !l.silent[0] && !l.silent[1];
    });
    return quiet && other.alive() && !other.replaced && !other.failed_from && !other.fault && p.in_sync &&
           !p.inconsistent && !p.sync_target && p.connection == core::ConnectionState::Connected &&
           other.data.readable(lba, blocks);
  });
}

Cluster::BeforeRead Cluster::before_read(const Node& n, std::uint64_t lba, std::uint64_t blocks) const {
  bool well = !n.fault && n.data.readable(lba, blocks);
  return {now_us_, disturbances_, n.core->status().unreadable_blocks, well || has_helper(n, lba, blocks)};
}

// An error must also show in the status, and needs a reason: a failed or detached device, or a block that no
// replica can supply. A replica that can supply it has the time that the core allows.
void Cluster::check_read_error(Node& n, std::uint64_t lba, std::uint64_t blocks, const BeforeRead& before,
                               const std::string& what) {
  if (n.failed_from) return;
  bool told = n.core->status().unreadable_blocks > before.untold;
  if (!told && !external_ && !forced_)
    violated(fmt::format("{} fails, and the status has no unreadable block", what));
  if (!told) return;  // the replica is deposed
  restore(n, lba, blocks);
  // A replica that was just deposed fails all waiting requests. It may have reported other blocks meanwhile.
  bool deposed = n.core->status().role != core::Role::primary;
  bool in_time = std::chrono::microseconds(now_us_ - before.at) < fetch_timeout_;
  if (!deposed && before.must_succeed && in_time && before.disturbances == disturbances_)
    violated(
        fmt::format("{} of blocks {} to {} fails although nothing has happened to a replica that has them",
                    what, lba, lba + blocks - 1));
}

void Cluster::restore(Node& n, std::uint64_t lba, std::uint64_t blocks) {
  schedule(1000 + below(30'000), [this, &n, lba, blocks] {
    note(fmt::format("replica {}: blocks {} to {} are readable again", n.id, lba, lba + blocks - 1));
    for (std::uint64_t b = lba; b < lba + blocks; ++b) n.data.make_readable(b * block_size);
  });
}

// At the end, all replicas are in sync. The primary must return every block that any replica can read. A
// primary that learns only now of a late grant to another replica is deposed.
void Cluster::read_everything() {
  constexpr std::uint64_t at_once = 200;
  for (std::uint64_t lba = 0; lba < volume_blocks_ && primary(); lba += at_once) {
    Node& p = *primary();
    std::uint64_t id = next_request_++, blocks = std::min(at_once, volume_blocks_ - lba);
    Request r{core::ClientOp::read,
              false,
              p.index,
              p.mount,
              0,
              p.mount->completed,
              lba * sectors_in_block,
              blocks * sectors_in_block,
              ClientMemory(blocks * block_size, true),
              before_read(p, lba, blocks)};
    p.mount->open++;
    auto& asked = requests_.emplace(id, std::move(r)).first->second;
    feed(p, core::ClientRequest{asked.op, false, lba * block_size,
                                static_cast<std::uint32_t>(blocks * block_size), asked.data.data(), id});
  }
  run_until([&] { return requests_.empty(); }, 60'000'000, "the whole volume read");
}

// ---- marks

void Cluster::note_repair(const Node& to, const PeerMessage& message) {
  if (std::holds_alternative<FetchBlock>(message) && to.is_primary())
    coverage_.hit("repair: a secondary asks");
  if (auto* m = std::get_if<FetchedBlock>(&message); m && m->kind == FetchedBlock::Kind::nothing)
    coverage_.hit("repair: the replica that was asked cannot read it either");
  if (std::holds_alternative<ReadBlocks>(message)) coverage_.hit("balanced read: asked");
  if (auto* m = std::get_if<BlocksRead>(&message))
    coverage_.hit(m->blocks == 0 ? "balanced read: a member declines" : "balanced read: a member answers");
}

void Cluster::note_repairs(const Node& n) {
  auto s = n.core->status();
  if (s.repaired_blocks > 0) coverage_.hit("repair: fetched");
  if (s.wrong_blocks > 0) coverage_.hit("repair: a block had wrong content");
  if (s.unreadable_blocks > 0) coverage_.hit("repair: no replica has it");
  if (s.reread_blocks > 0) coverage_.hit("repair: the block became readable");
  if (s.overwritten_blocks > 0) coverage_.hit("repair: the block was written meanwhile");
}

}  // namespace twinloft::repl::sim
