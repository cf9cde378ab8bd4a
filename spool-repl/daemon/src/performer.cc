#include "performer.h"

#include <cerrno>

#include "core_settings.h"

namespace twinloft::repl::daemon {

Performer::Performer(Parts parts)
    : parts_(std::move(parts)),
      resyncs_(
          parts_.loop, parts_.volume.superblock.volume_blocks,
          [this] { return parts_.volume.core->status(); },
          [this](ReplicaId peer, std::string text) {
            parts_.reporter.say("resync-progress", std::move(text), false, peer);
          }),
      disk_(parts_.loop, parts_.volume.storage.journal, parts_.volume.storage.data,
            [this](core::Event&& e) { parts_.volume.core->step(std::move(e)); }),
      archiver_(std::make_unique<Archiver>(parts_.loop, parts_.volume.storage.journal.fd.get(),
                                           state_directory(parts_.settings), parts_.settings.name)) {}

void Performer::perform_all() {
  for (;;) {
    parts_.volume.core->get_output(out_);
    if (out_.empty()) return;
    core::perform_in_order(out_, *this);
    out_.clear();
  }
}

void Performer::perform(core::ArchiveTail& tail) {
  archiver_->start(std::move(tail), [this, token = tail.token, first = tail.first,
                                     last = tail.last](Result<std::string> path) {
    std::string records = fmt::format("records {} to {}", first.v, last.v);
    parts_.reporter.warn("archived",
                         path ? fmt::format("{} are kept in {}", records, *path)
                              : fmt::format("{} cannot be kept: {}", records, path.error().message));
    parts_.volume.core->step(core::DiskDone{token, path ? 0 : EIO});
  });
}

void Performer::perform(core::ArbiterRequest& r) {
  if (parts_.arbiter) parts_.arbiter->ask(std::move(r));  // null at the end
}

// A refused connection is tried again, and gets the same text.
void Performer::perform(const core::Notice& n) {
  using enum core::NoticeKind;
  bool once = n.kind == other || n.kind == refused || n.kind == split_brain;
  disk_failed_ = disk_failed_ || n.kind == failed;
  parts_.reporter.say(name_of(n.kind), n.text, n.serious, n.peer, n.epoch, once);
  if (n.kind == connected || n.kind == resync_begun) resyncs_.begin();
}

// A promotion is complete when its device exists.
void Performer::perform(const core::CommandDone& c) {
  CommandDesk::Reply reply = parts_.commands.take(c.token);
  if (!reply) return;
  if (!c.ok) return reply(fail(Errc::conflict, "{}", c.text));
  if (!parts_.front_ends.is_attaching()) return reply(c.text + "\n");
  parts_.front_ends.when_attached([reply = std::move(reply), text = c.text](Status attached) {
    reply(attached ? Result<std::string>(text + "\n") : std::unexpected(attached.error()));
  });
}

}  // namespace twinloft::repl::daemon
