// For tests/e2e/failed_disk. deliver_by_steps SPOOL DURABILITY UID GID KNOWN: one delivery by the built-in
// agent to ann+lists, with a folder, its subscription and a counted quota. It writes "step TEXT" before each
// file operation and waits for a line, so that the test can make the file system fail there.
// KNOWN = 1: a first message is delivered without steps. The last line is "reply CODE NOTE". With DURABILITY
// "intake-log" the first message is repeated until the log is open, and the writes of the log are steps too.
// deliver_by_steps --replay SPOOL UID GID: replays the log.
#include <fmt/format.h>
#include <grp.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "../support/recording_ops.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/random.h"
#include "twinloft/lmtpd/intake/intake.h"
#include "twinloft/lmtpd/intake/replay.h"
#include "twinloft/lmtpd/intake/upkeep.h"
#include "twinloft/lmtpd/maildir/maildir.h"

namespace twinloft::lmtpd {
namespace {

MessageBody message(const std::string& subject) {
  MessageBody body;
  body.memory = "Subject: " + subject + "\r\n\r\n";
  for (int i = 0; i < 100; ++i) body.memory += "This line is one of a hundred.\r\n";
  body.size = body.memory.size();
  return body;
}

Recipient ann(const std::string& spool, unsigned uid, unsigned gid) {
  Recipient out;
  out.text = "ann+lists@example.org";
  out.local_part = "ann";
  out.detail = "lists";
  out.domain = "example.org";
  out.user.name = "ann@example.org";
  out.user.uid = uid;
  out.user.gid = gid;
  out.user.home = spool + "/ann";
  out.user.maildir = spool + "/ann/Maildir";
  out.user.quota.bytes = 1u << 30;
  return out;
}

void wait_for_line(const std::string& text) {
  std::cout << "step " << text << std::endl;
  std::string line;
  if (!std::getline(std::cin, line)) std::exit(3);
}

// The writes of the log as steps, once `ops` has steps.
class LogBySteps final : public LogFiles {
 public:
  LogBySteps(LogDirectory& files, const test::RecordingOps& ops) : files_(files), ops_(ops) {}
  LogShape shape() const override { return files_.shape(); }
  Status append(std::uint32_t segment, std::uint64_t offset, ByteSpan group) override {
    step("append to the log");
    return files_.append(segment, offset, group);
  }
  Status set_mark(ByteSpan mark) override {
    step("mark");
    return files_.set_mark(mark);
  }
  Status sync() override { return files_.sync(); }
  Status set_failure(std::string_view why) override { return files_.set_failure(why); }

 private:
  void step(const char* name) {
    if (ops_.before) ops_.before(name);
  }
  LogDirectory& files_;
  const test::RecordingOps& ops_;
};

// Only deliveries write to the log: the checkpoint is far off.
std::unique_ptr<Durability> by_log(const std::string& root, test::RecordingOps& ops, SyncGroup& syncs,
                                   const Clock& clock) {
  OsRandom random;
  OsFileOps files;
  if (Status made = create_log(files.open_root(root)->get(), 4u << 20, random); !made) {
    fmt::print(stderr, "{}\n", made.error().message);
    std::exit(2);
  }
  IntakeEnvironment environment = intake_environment();
  environment.files = [&ops](LogDirectory& log) { return std::make_unique<LogBySteps>(log, ops); };
  environment.retry = Duration::zero();
  const IntakeSettings settings{.checkpoint = std::chrono::hours(1)};
  return std::make_unique<Intake>(settings, make_durability(DurabilityWay::fsync, ops, syncs), ops, clock,
                                  data_first_by_kernel(), environment);
}

bool become(const char* uid_text, const char* gid_text) {
  auto uid = static_cast<unsigned>(std::stoul(uid_text)), gid = static_cast<unsigned>(std::stoul(gid_text));
  return ::setgroups(0, nullptr) == 0 && ::setresgid(gid, gid, gid) == 0 && ::setresuid(uid, uid, uid) == 0;
}

Result<ReplayReport> replay(const std::string& root) {
  OsFileOps ops;
  TL_TRY_ASSIGN(Fd fd, ops.open_root(root));
  TL_TRY_ASSIGN(LogDirectory log, LogDirectory::open(fd.get()));
  TL_TRY_ASSIGN(bool mine, log.lock());
  if (!mine) return fail(Errc::conflict, "the log is in use");
  TL_TRY_ASSIGN(MountInstance here, find_mount_instance(log.place().device));
  return replay_log(log, {fd.get(), here, nullptr}, ops);
}

int run_replay(char** words) {
  if (!become(words[3], words[4])) return 2;
  auto report = replay(words[2]);
  if (!report) fmt::print(stderr, "replay: {}\n", report.error().message);
  return report && report->retired && report->notes.empty() ? 0 : 1;
}

int run(char** words) {
  const std::string root = words[1];
  auto durability = parse_durability(words[2]);
  if (!durability || !become(words[3], words[4])) return 2;
  auto uid = static_cast<unsigned>(std::stoul(words[3])), gid = static_cast<unsigned>(std::stoul(words[4]));
  test::RecordingOps ops;
  ops.prefix = root;
  OsClock clock;
  auto spool = Spool::create({root, std::nullopt}, ops).value();
  SyncGroup syncs(ops);
  MaildirConfig config{"mail.example.org"};
  const bool logged = *durability == DurabilityWay::intake_log;
  auto way = logged ? by_log(root, ops, syncs, clock) : make_durability(*durability, ops, syncs);
  config.folders.detail = FoldersByDetail::create;
  config.quota.driver = QuotaDriver::maildir;
  MaildirAgent agent(config, *spool, std::move(way), ops, clock);
  Envelope envelope;
  envelope.id = "0123456789abcdef";
  envelope.from = "sender@example.net";
  envelope.recipients = {ann(root, uid, gid)};
  auto deliver = [&](const std::string& subject) {
    auto handle = spool->open();
    if (handle) return agent.deliver(*handle, envelope, envelope.recipients.front(), message(subject));
    return DeliveryOutcome{{451, "4.3.0", ""}, handle.error().message};
  };
  for (bool ready = std::string(words[5]) != "1"; !ready;) {
    DeliveryOutcome first = deliver("first");
    if (first.reply.code != 250) {
      fmt::print(stderr, "the first message: {}\n", first.detail);
      return 2;
    }
    ready = !logged || first.durable == MadeDurable::intake_log;
  }
  ops.before = wait_for_line;
  DeliveryOutcome second = deliver("second");
  std::cout << "reply " << second.reply.code << " " << second.detail << std::endl;
  return 0;
}

}  // namespace
}  // namespace twinloft::lmtpd

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--replay") return twinloft::lmtpd::run_replay(argv);
  if (argc == 6) return twinloft::lmtpd::run(argv);
  fmt::print(stderr, "usage: deliver_by_steps SPOOL DURABILITY UID GID KNOWN\n");
  return 2;
}
