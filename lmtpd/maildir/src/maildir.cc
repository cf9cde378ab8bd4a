#include "twinloft/lmtpd/maildir/maildir.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>
#include <vector>

#include "asked_quota.h"
#include "detail_folders.h"
#include "maildir_quota.h"
#include "maildir_tree.h"
#include "twinloft/lmtpd/maildir/headers.h"
#include "twinloft/lmtpd/maildir/message_writer.h"
#include "twinloft/lmtpd/proto/error_reply.h"
#include "twinloft/lmtpd/spool/unnamed_files.h"
#include "twinloft/mail/maildir_name.h"

namespace twinloft::lmtpd {

namespace {

// Received fields of this host that a message with a shared header may have; more are a loop.
constexpr std::uint32_t shared_passes_max = 10;

MadeDurable made_durable(DurabilityWay way) {
  switch (way) {
    case DurabilityWay::fsync:
    case DurabilityWay::fsync_file:
      return MadeDurable::fsync;
    case DurabilityWay::group_sync:
      return MadeDurable::group_sync;
    case DurabilityWay::intake_log:
      return MadeDurable::intake_log;
  }
  return MadeDurable::no;
}

NewEntry entry_in(const OpenMaildir& maildir) {
  return {maildir.incoming.get(), maildir.not_known};
}

// Removes a file unless keep() was called, or it has no name yet (`dir` -1). If the removal fails in tmp/,
// Maildir's 36 hours rule removes the file. In new/ a reader would see the file, so remove() reports the
// failure.
class Unlinker {
 public:
  Unlinker(FileOps& ops, int dir, std::string name) : ops_(ops), dir_(dir), name_(std::move(name)) {}
  ~Unlinker() {
    if (dir_ >= 0) (void)ops_.unlink(dir_, name_);
  }
  Unlinker(const Unlinker&) = delete;
  Unlinker& operator=(const Unlinker&) = delete;
  void moved_to(int dir, std::string name) {
    dir_ = dir;
    name_ = std::move(name);
  }
  bool has_name() const { return dir_ >= 0; }
  const std::string& name() const { return name_; }
  void keep() { dir_ = -1; }
  Status remove() {
    int dir = std::exchange(dir_, -1);
    return dir < 0 ? Status{} : ops_.unlink(dir, name_);
  }

 private:
  FileOps& ops_;
  int dir_;
  std::string name_;
};

}  // namespace

struct MaildirAgent::Impl {
  Impl(MaildirConfig c, Spool& s, std::unique_ptr<Durability> d, FileOps& o, const Clock& k)
      : config(std::move(c)),
        spool(s),
        durability(std::move(d)),
        ops(o),
        clock(k),
        names(config.hostname, ::getpid()),
        tree(o),
        folders(config.folders, tree, o, k),
        quota(config.quota, o, k),
        asked(config.quota_service, config.quota.lease, k) {}

  Result<Fd> create_in_tmp(const OpenMaildir& maildir, const std::string& name);
  Result<Fd> create(const DurableMessage& message, const SpoolHandle& handle, const OpenMaildir& maildir,
                    Unlinker& guard);
  // What the file holds now. `kept`: its bytes, if the way of durability asks for them.
  struct Written {
    StoredSize size;
    std::string kept;
  };
  Result<Written> write_file(const DurableMessage& message, int file, const std::string& header,
                             const MessageBody& body);
  Result<DeliveryOutcome> store(const SpoolHandle& handle, const Envelope& envelope,
                                const Recipient& recipient, const MessageBody& body);
  // Room held in one of the two kinds of quota.
  struct Hold {
    MaildirQuota::Hold kept;
    AskedQuota::Hold asked;
  };
  Result<Room> take_room(const SpoolHandle& handle, const MaildirPath& path, const User& user,
                         const StoredSize& size, Hold& hold);
  Result<std::optional<DeliveryOutcome>> refuse_full(const SpoolHandle& handle, const MaildirPath& path,
                                                     const User& user, const StoredSize& size, Hold& hold);
  Status appear(const SpoolHandle& handle, const OpenMaildir& maildir, int file, Unlinker& guard,
                const std::string& name);
  Status place(DurableMessage& message, const SpoolHandle& handle, const OpenMaildir& maildir, int file,
               Unlinker& guard, const PlannedMessage& planned, MaildirQuota::Hold& hold);
  void take_back(DurableMessage& message, std::size_t index, Unlinker& guard, MaildirQuota::Hold& hold,
                 Error& error);
  DeliveryOutcome delivered(const Recipient& recipient, const MaildirPath& path, const std::string& name,
                            const StoredSize& size, std::string note) const;
  struct Copy;
  struct SharedFile;
  Result<DetailFolders::Place> open_place(const SpoolHandle& handle, const Recipient& recipient);
  Status store_once(const SpoolHandle& handle, const Envelope& envelope, const MessageBody& body,
                    std::deque<Copy>& copies);
  void take_rooms(const SpoolHandle& handle, SharedFile& file, std::deque<Copy>& copies);
  Status make_whole(SharedFile& file, const std::string& kept);
  void link_copy(const SpoolHandle& handle, const Envelope& envelope, const MessageBody& body,
                 const SharedFile& file, Copy& copy);
  void sync_copies(const SpoolHandle& handle, const SharedFile& file, std::deque<Copy>& copies);

  MaildirConfig config;
  Spool& spool;
  const std::unique_ptr<Durability> durability;
  FileOps& ops;
  const Clock& clock;
  mail::MaildirNames names;
  UnnamedFiles unnamed;
  MaildirTree tree;
  DetailFolders folders;
  MaildirQuota quota;
  AskedQuota asked;
};

Result<Fd> MaildirAgent::Impl::create_in_tmp(const OpenMaildir& maildir, const std::string& name) {
  auto file = ops.create_file(maildir.tmp.get(), name);
  if (file) return file;
  Error error = std::move(file).error();
  error.message = "tmp/: " + error.message;
  return std::unexpected(std::move(error));
}

// The file gets no name where that is possible, else guard's name in tmp/.
Result<Fd> MaildirAgent::Impl::create(const DurableMessage& message, const SpoolHandle& handle,
                                      const OpenMaildir& maildir, Unlinker& guard) {
  if (message.may_be_unnamed() && unnamed.may_try(handle.device)) {
    auto file = ops.create_unnamed(maildir.incoming.get());
    if (file || !unnamed.give_up(handle.device, UnnamedStep::create, file.error())) return file;
  }
  TL_TRY_ASSIGN(Fd file, create_in_tmp(maildir, guard.name()));
  guard.moved_to(maildir.tmp.get(), guard.name());
  return file;
}

Result<MaildirAgent::Impl::Written> MaildirAgent::Impl::write_file(const DurableMessage& message, int file,
                                                                   const std::string& header,
                                                                   const MessageBody& body) {
  Written out;
  if (message.keeps_content()) out.kept.reserve(header.size() + body.size);
  TL_TRY_ASSIGN(out.size, write_message(header, body, false, [&](std::string_view chunk) {
                  if (message.keeps_content()) out.kept += chunk;
                  return ops.write(file, as_bytes(chunk));
                }));
  return out;
}

// Gives the file its name in new/. A link that is not possible here fails this message only.
Status MaildirAgent::Impl::appear(const SpoolHandle& handle, const OpenMaildir& maildir, int file,
                                  Unlinker& guard, const std::string& name) {
  const int incoming = maildir.incoming.get();
  if (guard.has_name()) {
    TL_TRY(ops.rename(maildir.tmp.get(), guard.name(), incoming, name));
  } else if (Status linked = ops.link_unnamed(file, incoming, name); !linked) {
    (void)unnamed.give_up(handle.device, UnnamedStep::link, linked.error());
    return linked;
  }
  guard.moved_to(incoming, name);
  return {};
}

// The durable order. At every step `guard` has the name to remove if the step fails.
Status MaildirAgent::Impl::place(DurableMessage& message, const SpoolHandle& handle,
                                 const OpenMaildir& maildir, int file, Unlinker& guard,
                                 const PlannedMessage& planned, MaildirQuota::Hold& hold) {
  TL_TRY(message.content(file, planned));
  TL_TRY(quota.place(hold, [&] { return appear(handle, maildir, file, guard, planned.names.front().name); }));
  return message.entry(0, entry_in(maildir));
}

namespace {

// The name is not in new/. False: the failure is added to the error.
bool withdraw(DurableMessage& message, std::size_t index, Error& error) {
  Status withdrawn = message.withdraw(index);
  if (!withdrawn)
    error.message += fmt::format("; a power cut may bring the undelivered message back ({})",
                                 withdrawn.error().message);
  return withdrawn.has_value();
}

}  // namespace

// After a failure of content(), or later: removes the name that `guard` has, and withdraws the planned name.
void MaildirAgent::Impl::take_back(DurableMessage& message, std::size_t index, Unlinker& guard,
                                   MaildirQuota::Hold& hold, Error& error) {
  if (Status removed = quota.take_back(hold, [&] { return guard.remove(); }); !removed)
    error.message += fmt::format("; the undelivered file could not be removed ({})", removed.error().message);
  (void)withdraw(message, index, error);
}

Result<Room> MaildirAgent::Impl::take_room(const SpoolHandle& handle, const MaildirPath& path,
                                           const User& user, const StoredSize& size, Hold& hold) {
  if (asked.on()) return asked.take(user, size.crlf_bytes, hold.asked);
  if (!quota.counts(path.folder)) return Room::enough;
  TL_TRY_ASSIGN(Fd directory, ops.open_directory(handle.root.get(), path.maildir));
  return quota.take({directory.get(), path.maildir, user.quota}, size.bytes, hold.kept);
}

// Takes room for the message, or returns the refusal.
Result<std::optional<DeliveryOutcome>> MaildirAgent::Impl::refuse_full(const SpoolHandle& handle,
                                                                       const MaildirPath& path,
                                                                       const User& user,
                                                                       const StoredSize& size, Hold& hold) {
  auto room = take_room(handle, path, user, size, hold);
  if (!room && asked.on()) return DeliveryOutcome{quota_unknown(), room.error().message};
  if (!room && room.error().code == Errc::exhausted && room.error().sys == 0)
    return DeliveryOutcome{quota_held(), room.error().message};
  if (!room) return std::unexpected(std::move(room).error());
  if (*room == Room::enough) return std::nullopt;
  return DeliveryOutcome{reply_of(*room, config.quota.over, user),
                         fmt::format("{} bytes more would exceed the quota {}", size.bytes,
                                     asked.on() ? "that Dovecot counts" : "of " + quota_text(user.quota))};
}

Result<DetailFolders::Place> MaildirAgent::Impl::open_place(const SpoolHandle& handle,
                                                            const Recipient& recipient) {
  TL_TRY_ASSIGN(std::string relative, spool.relative(recipient.user.maildir));
  return folders.open(handle, relative, recipient);
}

DeliveryOutcome MaildirAgent::Impl::delivered(const Recipient& recipient, const MaildirPath& path,
                                              const std::string& name, const StoredSize& size,
                                              std::string note) const {
  return {
      Reply{250, "2.0.0", "Delivered"}, std::move(note),
      fmt::format("{}{}{}/new/{}", recipient.user.maildir, path.folder.empty() ? "" : "/", path.folder, name),
      size.bytes};
}

Result<DeliveryOutcome> MaildirAgent::Impl::store(const SpoolHandle& handle, const Envelope& envelope,
                                                  const Recipient& recipient, const MessageBody& body) {
  TL_TRY_ASSIGN(DetailFolders::Place at, open_place(handle, recipient));
  const OpenMaildir& maildir = at.maildir;
  WallTime now = clock.wall();
  const std::string header = delivery_header(envelope, recipient, {}, config.hostname, now);
  std::unique_ptr<DurableMessage> message = durability->begin(
      handle, {header.size() + body.size, !maildir.not_known.empty()});
  std::string unique = names.next(now);
  Unlinker guard(ops, -1, unique);
  TL_TRY_ASSIGN(Fd file, create(*message, handle, maildir, guard));
  TL_TRY_ASSIGN(Written written, write_file(*message, file.get(), header, body));
  const StoredSize& size = written.size;
  Hold hold;
  TL_TRY_ASSIGN(std::optional<DeliveryOutcome> full,
                refuse_full(handle, at.path, recipient.user, size, hold));
  if (full) return *std::move(full);
  const PlannedName name{at.path.maildir, at.path.folder,
                         mail::with_sizes(unique, size.bytes, size.crlf_bytes)};
  DeliveryOutcome outcome = delivered(recipient, at.path, name.name, size, std::move(at.note));
  Status placed = place(*message, handle, maildir, file.get(), guard, {written.kept, {&name, 1}}, hold.kept);
  if (!placed) {
    Error error = std::move(placed).error();
    take_back(*message, 0, guard, hold.kept, error);
    return std::unexpected(std::move(error));
  }
  outcome.durable = made_durable(message->way());
  guard.keep();
  if (!maildir.not_known.empty()) tree.remember(handle, at.path, maildir);
  return outcome;
}

namespace {

DeliveryOutcome looped(const std::string& how) {
  return {make_reply(554, "5.4.6", clean_reply_text(how)), how};
}

DeliveryOutcome not_delivered(const Recipient& recipient, const Error& error) {
  return {reply_of_error(error), fmt::format("{}: {}", recipient.user.maildir, error.message)};
}

}  // namespace

// ---- one file for several recipients

// The delivery to one of the recipients.
struct MaildirAgent::Impl::Copy {
  const Recipient* recipient;
  std::optional<DeliveryOutcome> outcome{};  // set when this delivery has ended
  std::optional<DetailFolders::Place> at{};
  std::unique_ptr<Hold> hold = std::make_unique<Hold>();
  std::size_t index = 0;            // of its planned name; valid without an outcome after take_rooms()
  std::optional<Unlinker> entry{};  // the name in new/; nullopt: not linked
};

// The file in the first recipient's tmp/.
struct MaildirAgent::Impl::SharedFile {
  std::unique_ptr<DurableMessage> message;
  int directory;  // tmp/
  std::string name;
  Fd fd;
  StoredSize size{};
  std::vector<PlannedName> planned{};
};

// Writes the file durably into the first recipient's tmp/, then links it into each recipient's new/. After an
// error the message is in no new/.
Status MaildirAgent::Impl::store_once(const SpoolHandle& handle, const Envelope& envelope,
                                      const MessageBody& body, std::deque<Copy>& copies) {
  auto unended = [](const Copy& copy) { return !copy.outcome; };
  const OpenMaildir& first = std::ranges::find_if(copies, unended)->at->maildir;
  WallTime now = clock.wall();
  const std::string header = shared_header(envelope, config.hostname, now);
  const bool new_directories = std::ranges::any_of(
      copies, [](const Copy& copy) { return !copy.outcome && !copy.at->maildir.not_known.empty(); });
  SharedFile file{durability->begin(handle, {header.size() + body.size, new_directories}), first.tmp.get(),
                  names.next(now), Fd{}};
  TL_TRY_ASSIGN(file.fd, create_in_tmp(first, file.name));
  Unlinker guard(ops, file.directory, file.name);
  TL_TRY_ASSIGN(Written written, write_file(*file.message, file.fd.get(), header, body));
  file.size = written.size;
  take_rooms(handle, file, copies);
  if (file.planned.empty()) return {};
  TL_TRY(make_whole(file, written.kept));
  for (Copy& copy : copies)
    if (!copy.outcome) link_copy(handle, envelope, body, file, copy);
  sync_copies(handle, file, copies);
  return {};
}

// Plans a name for each recipient who has room.
void MaildirAgent::Impl::take_rooms(const SpoolHandle& handle, SharedFile& file, std::deque<Copy>& copies) {
  for (Copy& copy : copies) {
    if (copy.outcome) continue;
    const MaildirPath& path = copy.at->path;
    auto full = refuse_full(handle, path, copy.recipient->user, file.size, *copy.hold);
    copy.outcome = full ? *std::move(full) : not_delivered(*copy.recipient, full.error());
    if (copy.outcome) continue;
    copy.index = file.planned.size();
    file.planned.push_back(
        {path.maildir, path.folder,
         mail::with_sizes(names.next(clock.wall()), file.size.bytes, file.size.crlf_bytes)});
  }
}

Status MaildirAgent::Impl::make_whole(SharedFile& file, const std::string& kept) {
  Status whole = file.message->content(file.fd.get(), {kept, file.planned});
  if (whole) return {};
  Error error = std::move(whole).error();
  for (std::size_t i = 0; i < file.planned.size(); ++i) (void)withdraw(*file.message, i, error);
  return std::unexpected(std::move(error));
}

void MaildirAgent::Impl::link_copy(const SpoolHandle& handle, const Envelope& envelope,
                                   const MessageBody& body, const SharedFile& file, Copy& copy) {
  const std::string& name = file.planned[copy.index].name;
  const int incoming = copy.at->maildir.incoming.get();
  auto appear = [&]() -> Status {
    copy.entry.emplace(ops, incoming, name);
    Status linked = ops.link(file.directory, file.name, incoming, name);
    if (!linked) copy.entry->keep(), copy.entry.reset();
    return linked;
  };
  Status placed = quota.place(copy.hold->kept, appear);
  if (placed) return;
  Error error = std::move(placed).error();
  // Too many links, another file system or quota project, or a file system without links: store a separate
  // file.
  const bool other_file = error.sys == EMLINK || error.sys == EXDEV || error.sys == EPERM ||
                          error.sys == EOPNOTSUPP;
  const bool withdrawn = withdraw(*file.message, copy.index, error);
  if (!other_file || !withdrawn) {
    copy.outcome = not_delivered(*copy.recipient, error);
    return;
  }
  copy.hold = std::make_unique<Hold>();
  auto stored = store(handle, envelope, *copy.recipient, body);
  copy.outcome = stored ? *std::move(stored) : not_delivered(*copy.recipient, stored.error());
}

// Makes the entries in each new/ durable. The first commit of the file system's journal contains most of the
// other entries too.
void MaildirAgent::Impl::sync_copies(const SpoolHandle& handle, const SharedFile& file,
                                     std::deque<Copy>& copies) {
  for (Copy& copy : copies) {
    if (!copy.entry) continue;
    Status synced = file.message->entry(copy.index, entry_in(copy.at->maildir));
    if (synced) {
      copy.outcome = delivered(*copy.recipient, copy.at->path, copy.entry->name(), file.size,
                               std::move(copy.at->note));
      copy.outcome->durable = made_durable(file.message->way());
      copy.entry->keep();
      if (!copy.at->maildir.not_known.empty()) tree.remember(handle, copy.at->path, copy.at->maildir);
      continue;
    }
    Error error = std::move(synced).error();
    take_back(*file.message, copy.index, *copy.entry, copy.hold->kept, error);
    copy.outcome = not_delivered(*copy.recipient, error);
  }
}

MaildirAgent::MaildirAgent(MaildirConfig config, Spool& spool, SyncGroup& syncs, FileOps& ops,
                           const Clock& clock)
    : MaildirAgent(config, spool, make_durability(config.durability, ops, syncs, config.may_write_data_first),
                   ops, clock) {}
MaildirAgent::MaildirAgent(MaildirConfig config, Spool& spool, std::unique_ptr<Durability> durability,
                           FileOps& ops, const Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(config), spool, std::move(durability), ops, clock)) {}
MaildirAgent::~MaildirAgent() = default;

Status MaildirAgent::check_owner(const User& user) const {
  uid_t uid = ::geteuid();
  gid_t gid = ::getegid();
  if (user.uid == 0 || user.gid == 0)
    return fail(Errc::denied, "user {} has uid {} and gid {}: mail is never delivered as root", user.name,
                user.uid, user.gid);
  if (user.uid != uid || user.gid != gid)
    return fail(Errc::denied,
                "user {} has uid {} and gid {}, but the built-in Maildir agent writes as lmtpd's user, "
                "{}:{}; give the "
                "row these ids, or an external agent, which runs with the row's ids",
                user.name, user.uid, user.gid, uid, gid);
  return {};
}

// Returns a refusal if nothing may be stored for this recipient.
std::optional<DeliveryOutcome> MaildirAgent::deny(const Recipient& recipient, const MessageBody& body) {
  if (Status owner = check_owner(recipient.user); !owner)
    return DeliveryOutcome{reply_of_error(owner.error()), owner.error().message};
  auto loop = find_loop(body, recipient, {impl_->config.delivered_to_check, impl_->config.received_max});
  if (!loop) return DeliveryOutcome{reply_of_error(loop.error()), loop.error().message};
  if (!*loop) return std::nullopt;
  return looped(**loop);
}

DeliveryOutcome MaildirAgent::deliver(const SpoolHandle& handle, const Envelope& envelope,
                                      const Recipient& recipient, const MessageBody& body) {
  if (auto denied = deny(recipient, body)) return *std::move(denied);
  auto stored = impl_->store(handle, envelope, recipient, body);
  return stored ? *std::move(stored) : not_delivered(recipient, stored.error());
}

bool MaildirAgent::links() const {
  return impl_->config.hard_links;
}

// A shared header has no Delivered-To, so a loop is detected by this host's own Received fields.
std::vector<DeliveryOutcome> MaildirAgent::deliver_linked(const SpoolHandle& handle, const Envelope& envelope,
                                                          std::span<const std::size_t> recipients,
                                                          const MessageBody& body) {
  std::deque<Impl::Copy> copies;
  for (std::size_t i : recipients) copies.emplace_back(&envelope.recipients[i]);
  auto passes = find_route_loop(body, impl_->config.hostname, impl_->config.received_max, shared_passes_max);
  for (Impl::Copy& copy : copies) {
    copy.outcome = passes && *passes ? looped(**passes) : deny(*copy.recipient, body);
    if (copy.outcome) continue;
    auto place = impl_->open_place(handle, *copy.recipient);
    if (place)
      copy.at = std::move(*place);
    else
      copy.outcome = not_delivered(*copy.recipient, place.error());
  }
  bool any = std::ranges::any_of(copies, [](const Impl::Copy& copy) { return !copy.outcome; });
  Status stored = any ? impl_->store_once(handle, envelope, body, copies) : Status{};
  std::vector<DeliveryOutcome> outcomes;
  for (Impl::Copy& copy : copies) {
    if (!copy.outcome) copy.outcome = not_delivered(*copy.recipient, stored.error());
    outcomes.push_back(std::move(*copy.outcome));
  }
  return outcomes;
}

bool MaildirAgent::has_limits(const User& user) const {
  return impl_->asked.on() || (impl_->quota.on() && !user.quota.unlimited());
}

// A missing Maildir counts as empty.
Result<Room> MaildirAgent::room_of(const SpoolHandle& handle, const User& user, const std::string& detail,
                                   std::uint64_t bytes) {
  bytes = std::max<std::uint64_t>(bytes, 1);
  if (impl_->asked.on()) return impl_->asked.room(user, bytes);
  TL_TRY_ASSIGN(std::string relative, impl_->spool.relative(user.maildir));
  TL_TRY_ASSIGN(MaildirPath path, impl_->folders.look(handle, relative, user, detail));
  if (!impl_->quota.counts(path.folder)) return Room::enough;
  // MAIL announces the size with CRLF line ends, but LF line ends are stored. Assuming lines of 16 bytes
  // avoids refusing a message for a size that it would not have.
  bytes -= bytes / 16;
  auto directory = impl_->ops.open_directory(handle.root.get(), relative);
  if (!directory && directory.error().sys == ENOENT)
    return room_for(bytes, {}, user.quota, impl_->config.quota.grace_percent);
  if (!directory) return std::unexpected(std::move(directory).error());
  return impl_->quota.room({directory->get(), relative, user.quota}, bytes);
}

std::optional<MailboxState> MaildirAgent::look_now(const User& user, std::uint64_t bytes) const {
  const bool known = impl_->asked.on() && impl_->asked.has_lease(user, std::max<std::uint64_t>(bytes, 1));
  return known ? std::optional<MailboxState>(MailboxState{}) : std::nullopt;
}

MailboxState MaildirAgent::look(const SpoolHandle& handle, const User& user, const std::string& detail,
                                std::uint64_t bytes) {
  if (!has_limits(user) || !check_owner(user)) return {};
  auto room = room_of(handle, user, detail, bytes);
  if (room) return {.room = *room};
  if (impl_->asked.on()) return {.counter = std::move(room).error()};
  Error error = std::move(room).error();
  error.message = fmt::format("{}: {}", user.maildir, error.message);
  return {.spool = std::move(error)};
}

}  // namespace twinloft::lmtpd
