#include "twinloft/lmtpd/spool/durability.h"

#include <optional>
#include <utility>

namespace twinloft::lmtpd {

Result<DurabilityWay> parse_durability(std::string_view text) {
  if (text == "fsync") return DurabilityWay::fsync;
  if (text == "fsync-file") return DurabilityWay::fsync_file;
  if (text == "group-sync") return DurabilityWay::group_sync;
  if (text == "intake-log") return DurabilityWay::intake_log;
  return fail(Errc::invalid,
              "unknown durability \"{}\": use \"fsync\", \"fsync-file\", \"group-sync\" or \"intake-log\"",
              text);
}

std::string_view to_string(DurabilityWay way) {
  switch (way) {
    case DurabilityWay::fsync:
      return "fsync";
    case DurabilityWay::fsync_file:
      return "fsync-file";
    case DurabilityWay::group_sync:
      return "group-sync";
    case DurabilityWay::intake_log:
      return "intake-log";
  }
  return "unknown";
}

namespace {

// A message whose way keeps nothing beside the file and its names: there is nothing to take back.
class OnlyFiles : public DurableMessage {
 public:
  bool may_be_unnamed() const override { return false; }
  bool keeps_content() const override { return false; }
  Status withdraw(std::size_t) override { return {}; }
};

// The sync of the directory commits the file's extents and its name, and flushes its data.
class Fsynced final : public OnlyFiles {
 public:
  Fsynced(FileOps& ops, const SpoolHandle& spool, bool data_first)
      : ops_(ops), spool_(spool), data_first_(data_first) {}
  DurabilityWay way() const override {
    return data_first_ ? DurabilityWay::fsync : DurabilityWay::fsync_file;
  }

  // With data first, the link that gives the file its name is behind the writeback, as a rename would be.
  bool may_be_unnamed() const override { return data_first_; }
  Status content(int file, const PlannedMessage&) override {
    return data_first_ ? ops_.write_back(file) : ops_.sync_file(file);
  }
  Status entry(std::size_t, const NewEntry& entry) override {
    TL_TRY(ops_.sync_file(entry.directory));
    for (const Fd& directory : entry.above) TL_TRY(ops_.sync_file(directory.get()));
    return entry.above.empty() ? Status{} : ops_.sync_file(spool_.root.get());
  }

 private:
  FileOps& ops_;
  const SpoolHandle& spool_;
  const bool data_first_;
};

class ByFsync final : public Durability {
 public:
  // may_write_data_first null: never.
  ByFsync(FileOps& ops, DataFirstRule may_write_data_first)
      : ops_(ops), may_write_data_first_(std::move(may_write_data_first)) {}
  DurabilityWay way() const override {
    return may_write_data_first_ ? DurabilityWay::fsync : DurabilityWay::fsync_file;
  }
  std::unique_ptr<DurableMessage> begin(const SpoolHandle& spool, const MessagePlan&) override {
    return std::make_unique<Fsynced>(ops_, spool, may_write_data_first_ && may_write_data_first_(spool));
  }

 private:
  FileOps& ops_;
  const DataFirstRule may_write_data_first_;
};

class GroupSynced final : public OnlyFiles {
 public:
  GroupSynced(FileOps& ops, SyncGroup& syncs, const SpoolHandle& spool)
      : ops_(ops), syncs_(syncs), spool_(spool) {}
  DurabilityWay way() const override { return DurabilityWay::group_sync; }

  Status content(int file, const PlannedMessage&) override { return sync(file); }
  // One syncfs covers every name, and every directory, that was made before it.
  Status entry(std::size_t, const NewEntry& entry) override {
    if (!entries_) entries_ = sync(entry.directory);
    return *entries_;
  }

 private:
  // The syncfs is called on the spool's root, which the mail user may not write to. So a file or directory
  // of the message shows whether the file system has failed.
  Status sync(int own) {
    TL_TRY(syncs_.sync(spool_));
    return ops_.check_not_failed(own);
  }

  FileOps& ops_;
  SyncGroup& syncs_;
  const SpoolHandle& spool_;
  std::optional<Status> entries_;
};

class ByGroupSync final : public Durability {
 public:
  ByGroupSync(FileOps& ops, SyncGroup& syncs) : ops_(ops), syncs_(syncs) {}
  DurabilityWay way() const override { return DurabilityWay::group_sync; }
  std::unique_ptr<DurableMessage> begin(const SpoolHandle& spool, const MessagePlan&) override {
    return std::make_unique<GroupSynced>(ops_, syncs_, spool);
  }

 private:
  FileOps& ops_;
  SyncGroup& syncs_;
};

}  // namespace

std::unique_ptr<Durability> make_durability(DurabilityWay way, FileOps& ops, SyncGroup& syncs,
                                            DataFirstRule may_write_data_first) {
  switch (way) {
    case DurabilityWay::fsync:
    case DurabilityWay::intake_log:
      return std::make_unique<ByFsync>(ops, std::move(may_write_data_first));
    case DurabilityWay::fsync_file:
      return std::make_unique<ByFsync>(ops, nullptr);
    case DurabilityWay::group_sync:
      return std::make_unique<ByGroupSync>(ops, syncs);
  }
  return nullptr;
}

}  // namespace twinloft::lmtpd
