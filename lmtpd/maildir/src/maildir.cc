#include "twinloft/lmtpd/maildir/maildir.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "asked_quota.h"
#include "detail_folders.h"
#include "maildir_quota.h"
#include "maildir_tree.h"
#include "twinloft/lmtpd/maildir/headers.h"
#include "twinloft/lmtpd/maildir/message_writer.h"
#include "twinloft/lmtpd/proto/error_reply.h"
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
  }
  return MadeDurable::no;
}

NewEntry entry_in(const OpenMaildir& maildir) {
  return {maildir.incoming.get(), maildir.not_known};
}

// Removes a file unless keep() was called. If the removal fails in tmp/, Maildir's 36 hours rule removes the
// file. In new/ a reader would see the file, so remove() reports the failure.
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
  Impl(MaildirConfig c, Spool& s, SyncGroup& g, FileOps& o, const Clock& k)
      : config(std::move(c)),
        spool(s),
        durability(make_durability(config.durability, o, g, config.may_write_data_first)),
        ops(o),
        clock(k),
        names(config.hostname, ::getpid()),
        tree(o),
        folders(config.folders, tree, o, k),
        quota(config.quota, o, k),
        asked(config.quota_service, config.quota.lease, k) {}

  Result<Fd> create_in_tmp(const OpenMaildir& maildir, const std::string& name);
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
  Status place(DurableMessage& message, const OpenMaildir& maildir, int file, Unlinker& guard,
               const std::string& stored_name, MaildirQuota::Hold& hold);
  DeliveryOutcome delivered(const Recipient& recipient, const MaildirPath& path, const std::string& name,
                            const StoredSize& size, std::string note) const;
  struct Copy;
  Result<DetailFolders::Place> open_place(const SpoolHandle& handle, const Recipient& recipient);
  Status store_once(const SpoolHandle& handle, const Envelope& envelope, const MessageBody& body,
                    std::deque<Copy>& copies);
  void link_copy(const SpoolHandle& handle, const Envelope& envelope, const MessageBody& body,
                 const Copy& first, const std::string& name, const StoredSize& size, Copy& copy);
  void sync_copies(const SpoolHandle& handle, DurableMessage& message, const StoredSize& size,
                   std::deque<Copy>& copies);
  Status undo(Copy& copy);

  MaildirConfig config;
  Spool& spool;
  const std::unique_ptr<Durability> durability;
  FileOps& ops;
  const Clock& clock;
  mail::MaildirNames names;
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

// The durable order. At every step `guard` has the name to remove if the step fails.
Status MaildirAgent::Impl::place(DurableMessage& message, const OpenMaildir& maildir, int file,
                                 Unlinker& guard, const std::string& stored_name, MaildirQuota::Hold& hold) {
  auto appear = [&]() -> Status {
    TL_TRY(ops.rename(maildir.tmp.get(), guard.name(), maildir.incoming.get(), stored_name));
    guard.moved_to(maildir.incoming.get(), stored_name);
    return {};
  };
  TL_TRY(message.content(file));
  TL_TRY(quota.place(hold, appear));
  return message.entry(entry_in(maildir));
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
      size.bytes, made_durable(durability->way())};
}

Result<DeliveryOutcome> MaildirAgent::Impl::store(const SpoolHandle& handle, const Envelope& envelope,
                                                  const Recipient& recipient, const MessageBody& body) {
  TL_TRY_ASSIGN(DetailFolders::Place at, open_place(handle, recipient));
  const OpenMaildir& maildir = at.maildir;
  WallTime now = clock.wall();
  std::string unique = names.next(now);
  TL_TRY_ASSIGN(Fd file, create_in_tmp(maildir, unique));
  Unlinker guard(ops, maildir.tmp.get(), unique);
  std::string header = delivery_header(envelope, recipient, {}, config.hostname, now);
  TL_TRY_ASSIGN(StoredSize size, write_message(header, body, false, [&](std::string_view chunk) {
                  return ops.write(file.get(), as_bytes(chunk));
                }));
  Hold hold;
  TL_TRY_ASSIGN(std::optional<DeliveryOutcome> full,
                refuse_full(handle, at.path, recipient.user, size, hold));
  if (full) return *std::move(full);
  std::string stored_name = mail::with_sizes(unique, size.bytes, size.crlf_bytes);
  std::unique_ptr<DurableMessage> message = durability->begin(handle);
  DeliveryOutcome outcome = delivered(recipient, at.path, stored_name, size, std::move(at.note));
  Status placed = place(*message, maildir, file.get(), guard, stored_name, hold.kept);
  if (!placed) {
    Error error = std::move(placed).error();
    if (Status removed = quota.take_back(hold.kept, [&] { return guard.remove(); }); !removed)
      error.message += fmt::format("; the undelivered file could not be removed ({})",
                                   removed.error().message);
    return std::unexpected(std::move(error));
  }
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
  std::optional<Unlinker> entry{};  // the name in new/; nullopt: not linked
};

// Writes the file durably into the first recipient's tmp/, then links it into each recipient's new/. After an
// error the message is in no new/.
Status MaildirAgent::Impl::store_once(const SpoolHandle& handle, const Envelope& envelope,
                                      const MessageBody& body, std::deque<Copy>& copies) {
  auto first = std::ranges::find_if(copies, [](const Copy& copy) { return !copy.outcome; });
  WallTime now = clock.wall();
  std::string name = names.next(now);
  TL_TRY_ASSIGN(Fd file, create_in_tmp(first->at->maildir, name));
  Unlinker guard(ops, first->at->maildir.tmp.get(), name);
  auto append = [&](std::string_view chunk) { return ops.write(file.get(), as_bytes(chunk)); };
  TL_TRY_ASSIGN(StoredSize size,
                write_message(shared_header(envelope, config.hostname, now), body, false, append));
  std::unique_ptr<DurableMessage> message = durability->begin(handle);
  TL_TRY(message->content(file.get()));
  for (auto copy = first; copy != copies.end(); ++copy)
    if (!copy->outcome) link_copy(handle, envelope, body, *first, name, size, *copy);
  sync_copies(handle, *message, size, copies);
  return {};
}

void MaildirAgent::Impl::link_copy(const SpoolHandle& handle, const Envelope& envelope,
                                   const MessageBody& body, const Copy& first, const std::string& name,
                                   const StoredSize& size, Copy& copy) {
  auto full = refuse_full(handle, copy.at->path, copy.recipient->user, size, *copy.hold);
  copy.outcome = full ? *std::move(full) : not_delivered(*copy.recipient, full.error());
  if (copy.outcome) return;
  std::string stored_name = mail::with_sizes(names.next(clock.wall()), size.bytes, size.crlf_bytes);
  auto appear = [&]() -> Status {
    copy.entry.emplace(ops, copy.at->maildir.incoming.get(), stored_name);
    Status linked = ops.link(first.at->maildir.tmp.get(), name, copy.at->maildir.incoming.get(), stored_name);
    if (!linked) copy.entry->keep(), copy.entry.reset();
    return linked;
  };
  Status placed = quota.place(copy.hold->kept, appear);
  if (placed) return;
  // Too many links, another file system or quota project, or a file system without links: store a separate
  // file.
  bool other_file = placed.error().sys == EMLINK || placed.error().sys == EXDEV ||
                    placed.error().sys == EPERM || placed.error().sys == EOPNOTSUPP;
  if (!other_file) {
    copy.outcome = not_delivered(*copy.recipient, placed.error());
    return;
  }
  copy.hold = std::make_unique<Hold>();
  auto stored = store(handle, envelope, *copy.recipient, body);
  copy.outcome = stored ? *std::move(stored) : not_delivered(*copy.recipient, stored.error());
}

Status MaildirAgent::Impl::undo(Copy& copy) {
  return quota.take_back(copy.hold->kept, [&] { return copy.entry->remove(); });
}

// Makes the entries in each new/ durable. The first commit of the file system's journal contains most of the
// other entries too.
void MaildirAgent::Impl::sync_copies(const SpoolHandle& handle, DurableMessage& message,
                                     const StoredSize& size, std::deque<Copy>& copies) {
  for (Copy& copy : copies) {
    if (!copy.entry) continue;
    Status synced = message.entry(entry_in(copy.at->maildir));
    if (synced) {
      copy.outcome = delivered(*copy.recipient, copy.at->path, copy.entry->name(), size,
                               std::move(copy.at->note));
      copy.entry->keep();
      if (!copy.at->maildir.not_known.empty()) tree.remember(handle, copy.at->path, copy.at->maildir);
      continue;
    }
    Error error = std::move(synced).error();
    if (Status removed = undo(copy); !removed)
      error.message += fmt::format("; the undelivered file could not be removed ({})",
                                   removed.error().message);
    copy.outcome = not_delivered(*copy.recipient, error);
  }
}

MaildirAgent::MaildirAgent(MaildirConfig config, Spool& spool, SyncGroup& syncs, FileOps& ops,
                           const Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(config), spool, syncs, ops, clock)) {}
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
