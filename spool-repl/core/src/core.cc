#include "twinloft/spool-repl/core/core.h"

#include <variant>

#include "primary.h"
#include "secondary.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

// Declared in this order: the role and the checkpointer refer to the volume.
struct Core::Parts {
  Parts(const Config& config, const RecoveredLog& recovered, Arena& arena, Arena& reads, Random& random)
      : volume(config, recovered, arena, reads, random), checkpointer(volume) {}
  Volume volume;
  Checkpointer checkpointer;
  std::variant<std::monostate, Primary, Secondary> role;

  Primary* primary() { return std::get_if<Primary>(&role); }
  Secondary* secondary() { return std::get_if<Secondary>(&role); }
  template <class F>
  void with_role(F f) {
    if (auto* p = primary()) f(*p);
    else if (auto* s = secondary()) f(*s);
  }
};

Core::Core(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Core::~Core() = default;

// Uncommitted records up to the send window, one more record being built, one being received, and as much again for
// what is committed and on its way home.
std::size_t arena_blocks_min(const Config& config) {
  return 2 * (config.send_window_bytes / block_size + 2 * record_blocks_max) + 64;
}

Result<std::unique_ptr<Core>> Core::create(const Config& config, RecoveredLog recovered, Arena& arena, Arena& read_arena,
                                           Random& random) {
  if (arena.size() < arena_blocks_min(config))
    return fail(Errc::invalid, "an arena of {} MiB is too small: at least {} MiB are needed",
                arena.size() * block_size >> 20, (arena_blocks_min(config) * block_size >> 20) + 1);
  TL_CHECK(read_arena.size() >= read_arena_blocks_min);
  auto parts = std::make_unique<Parts>(config, recovered, arena, read_arena, random);
  TL_TRY(parts->volume.load(std::move(recovered)));
  if (config.role == Role::primary) {
    parts->role.emplace<Primary>(parts->volume, parts->checkpointer).start();
  } else {
    parts->role.emplace<Secondary>(parts->volume, parts->checkpointer);
  }
  std::unique_ptr<Core> core(new Core(std::move(parts)));
  core->advance();
  return core;
}

void Core::step(Event event) {
  Volume& v = parts_->volume;
  Primary* primary = parts_->primary();
  std::visit(
      [&](auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, ClientRequest>) {
          parts_->with_role([&](auto& role) { role.submit(e); });
        } else if constexpr (std::is_same_v<E, DiskDone>) {
          std::uint64_t n = number_of(e.token);
          switch (kind_of(e.token)) {
            case TokenKind::journal_write: v.on_journal_written(n, e.error); break;
            case TokenKind::client_read: primary->on_client_read(n, e.error); break;
            case TokenKind::fill_read: primary->on_fill_read(n, e.error); break;
            case TokenKind::home_write: parts_->checkpointer.on_home_written(e.error); break;
            case TokenKind::home_sync: parts_->checkpointer.on_home_synced(e.error); break;
            case TokenKind::superblock: {
              unsigned purposes = v.on_superblock_written(e.error);
              if (purposes & Volume::for_tail) parts_->checkpointer.on_tail_durable();
              if ((purposes & Volume::for_cut) && parts_->secondary()) parts_->secondary()->on_cut_durable();
              break;
            }
            case TokenKind::journal_read: TL_CHECK_MSG(false, "a journal read reports by JournalReadDone");
          }
        } else if constexpr (std::is_same_v<E, JournalReadDone>) {
          primary->on_journal_read(number_of(e.token), e.error, std::move(e.bytes));
        } else if constexpr (std::is_same_v<E, PeerUp>) {
          parts_->with_role([&](auto& role) { role.peer_up(e.peer); });
        } else if constexpr (std::is_same_v<E, PeerDown>) {
          parts_->with_role([&](auto& role) { role.peer_down(e.peer); });
        } else if constexpr (std::is_same_v<E, PeerInput>) {
          parts_->with_role([&](auto& role) { role.peer_input(e.peer, std::move(e.message)); });
        } else if constexpr (std::is_same_v<E, CheckpointNow>) {
          parts_->checkpointer.request();
        } else {
          static_assert(std::is_same_v<E, Detach>);
          v.fail_device("the device was taken away from its users");
        }
      },
      event);
  advance();
}

void Core::advance() {
  parts_->with_role([](auto& role) { role.advance(); });
  parts_->checkpointer.advance();
}

void Core::tick(Instant now) {
  parts_->volume.now = now;
  advance();
}

std::optional<Instant> Core::next_tick() const {
  std::optional<Instant> next;
  // What is due already was tried by the last tick() and waits for an event, not for time.
  auto consider = [&](std::optional<Instant> at) {
    if (at && *at > parts_->volume.now && (!next || *at < *next)) next = at;
  };
  consider(parts_->checkpointer.next_tick());
  if (auto* p = parts_->primary()) consider(p->next_tick());
  return next;
}

void Core::get_output(Output& out) {
  TL_CHECK(out.empty());
  parts_->with_role([](auto& role) { role.flush_messages(); });
  std::swap(out, parts_->volume.out);
}

VolumeStatus Core::status() const {
  const Volume& v = parts_->volume;
  VolumeStatus s = v.counters;
  s.role = v.config.role;
  s.failed = v.failed;
  s.failure = v.failure;
  s.last = v.log.last_mark().lsn;
  s.durable = v.log.mark_before(v.log.durable_end()).lsn;
  s.commit = v.commit_lsn();
  s.tail = v.log.tail_mark().lsn;
  s.journal_used = v.log.used_bytes();
  s.journal_size = v.log.ring_bytes();
  s.arena_used = std::uint64_t{v.arena.used()} * block_size;
  s.arena_size = std::uint64_t{v.arena.size()} * block_size;
  s.dirty_blocks = v.committed.data_blocks();
  parts_->with_role([&](auto& role) { role.fill_status(s); });
  return s;
}

bool Core::settled() const {
  const Volume& v = parts_->volume;
  bool role = false;
  parts_->with_role([&](auto& r) { role = r.settled(); });
  return role && v.journal_in_flight == 0 && v.log.durable_end() == v.log.end() &&
         parts_->checkpointer.nothing_to_do();
}

}  // namespace twinloft::repl::core
