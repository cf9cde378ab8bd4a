#include "storage.h"

#include "core_settings.h"
#include "damage.h"
#include "in_use.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/daemon/check.h"
#include "twinloft/spool-repl/daemon/events.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::daemon {

namespace {

Status keep_damaged(const VolumeSettings& settings, ports::BlockFile& journal,
                    const journal::Damage& damage) {
  log_error("volume {}: {}. Missing records are fetched from another replica", settings.name, damage.text);
  auto kept = keep_journal(journal, damage, state_directory(settings), settings.name);
  if (!kept)
    return fail(Errc::corrupt, "{}. Nothing was changed, since the journal could not be copied: {}",
                damage.text, kept.error().message);
  log_error("volume {}: a copy of the damaged journal is in {}", settings.name, *kept);
  return {};
}

}  // namespace

Result<Storage> open_storage(const VolumeSettings& settings) {
  Storage storage;
  for (auto [path, file] :
       {std::pair{&settings.journal, &storage.journal}, std::pair{&settings.data, &storage.data}}) {
    TL_TRY_ASSIGN(*file, wait_while_in_use([&] { return io::open_direct(*path, io::Access::read_write); }));
  }
  for (const io::DirectFile* f : {&storage.journal, &storage.data})
    if (!f->direct) log_warning("{}: its file system has no direct I/O; the page cache is used", f->path);
  io::OsBlockFile journal(storage.journal);
  TL_TRY_ASSIGN(journal::SuperblockCopies found, journal::read_superblock(journal));
  TL_TRY(fits_superblock(settings, found.superblock));
  return storage;
}

Result<RecoveredLog> replay(const VolumeSettings& settings, Storage& storage, MutableByteSpan room,
                            const StartEvent& happened) {
  io::OsBlockFile journal(storage.journal), data(storage.data);
  auto keep = [&](const journal::Damage& d) { return keep_damaged(settings, journal, d); };
  TL_TRY_ASSIGN(journal::RecoveredVolume r, journal::recover(journal, data, keep, room));
  const journal::RecoveryReport& report = r.report;
  if (report.superblock_repaired)
    happened("superblock-repaired", "a damaged copy of the superblock was rewritten from the intact copy",
             true);
  if (report.digest_sectors_lost > 0)
    happened("digests-lost",
             fmt::format("{} digest sectors were damaged: up to {} blocks of the data area cannot be checked "
                         "until they are written",
                         report.digest_sectors_lost, report.digest_sectors_lost * digest_sector_blocks),
             false);
  if (report.torn_frames > 0)
    happened("torn-tail",
             fmt::format("{} torn records at the journal's end were dropped", report.torn_frames), false);
  log_info(
      "volume {}: journal replayed: {} records, {} of them not known to be committed, {} blocks in memory, "
      "{} "
      "blocks written to the data area, {} torn",
      settings.name, report.records, report.uncommitted, r.log.loaded.size(), report.blocks_replayed,
      report.torn_frames);
  return std::move(r.log);
}

}  // namespace twinloft::repl::daemon
