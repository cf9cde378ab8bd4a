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
            [this](core::Event&& e) { parts_.volume.step(std::move(e), parts_.loop.now()); }),
      archiver_(std::make_unique<Archiver>(parts_.loop, parts_.volume.storage.journal.fd.get(),
                                           state_directory(parts_.settings), parts_.settings.name)) {
  if (auto& spill = parts_.volume.spill)
    spill_ = std::make_unique<SpillStore>(parts_.loop, std::move(*spill));
}

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
    parts_.volume.step(core::DiskDone{token, path ? 0 : EIO}, parts_.loop.now());
  });
}

// The core reports that the spill fails, and the event log gets the file and the reason once.
void Performer::perform(core::SpillWrite& w) {
  core::Token token = w.token;
  spill_->write(std::move(w), [this, token](int error, const std::string& trouble) {
    if (error != 0) parts_.reporter.say("spill", trouble, true, 0, 0, true);
    parts_.volume.step(core::DiskDone{token, error}, parts_.loop.now());
  });
}

void Performer::perform(const core::SpillRead& r) {
  spill_->read(r, [this, token = r.token](int error, std::vector<std::byte> bytes) {
    parts_.volume.step(core::JournalReadDone{token, error, std::move(bytes)}, parts_.loop.now());
  });
}

void Performer::perform(const core::SpillDrop& d) {
  spill_->drop(d, [this](const std::string& trouble) {
    parts_.reporter.say("spill", trouble + ": the file stays", true, 0, 0, true);
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
