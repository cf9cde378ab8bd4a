// Performs the core's output in its legal order.
#pragma once

#include <memory>

#include "arbiter_watch.h"
#include "archiver.h"
#include "client_requests.h"
#include "command_desk.h"
#include "disk_shell.h"
#include "front_end_life.h"
#include "links.h"
#include "opened_volume.h"
#include "reporter.h"
#include "resync_watch.h"
#include "spill_store.h"

namespace twinloft::repl::daemon {

class Performer {
 public:
  struct Parts {
    const VolumeSettings& settings;
    io::UringLoop& loop;
    OpenedVolume& volume;
    Links& links;
    ClientRequests& requests;
    FrontEndLife& front_ends;
    CommandDesk& commands;
    Reporter& reporter;
    std::unique_ptr<ArbiterWatch> arbiter;  // nullptr: manual
  };
  explicit Performer(Parts parts);

  // Performs until the core has no more output.
  void perform_all();

  const DiskShell& disk() const { return disk_; }
  const ResyncWatch& resyncs() const { return resyncs_; }
  const ArbiterWatch* arbiter() const { return parts_.arbiter.get(); }
  bool disk_has_failed() const { return disk_failed_; }  // since the start
  // For the end, in this order: no more requests to the arbiter, and no more archiving thread.
  void end_arbiter() { parts_.arbiter.reset(); }
  void end_archiver() {
    archiver_.reset();
    spill_.reset();
  }

 private:
  template <class Effects>
  friend void core::perform_in_order(core::Output& out, Effects& performer);
  template <class DiskEffect>
  void perform(const DiskEffect& effect) {
    disk_.perform(effect);
  }
  void perform(core::ArchiveTail& tail);
  void perform(core::SpillWrite& write);
  void perform(const core::SpillRead& read);
  void perform(const core::SpillDrop& drop);
  void perform(core::ArbiterRequest& r);
  void perform(const core::Send& s) { parts_.links.send(s); }
  void perform(const core::SendRecord& r) { parts_.links.send(r); }
  void all_sent() { parts_.links.flush(); }
  void perform(const core::ClosePeer& c) { parts_.links.close(c); }
  void perform(const core::Notice& n);
  void perform(const core::Complete& c) { parts_.requests.complete(c); }
  void perform(const core::RoleChange& change) { parts_.front_ends.on_role(change); }
  void perform(const core::CommandDone& c);

  Parts parts_;
  ResyncWatch resyncs_;
  DiskShell disk_;
  std::unique_ptr<Archiver> archiver_;
  std::unique_ptr<SpillStore> spill_;  // nullptr: none
  core::Output out_;
  bool disk_failed_ = false;
};

}  // namespace twinloft::repl::daemon
