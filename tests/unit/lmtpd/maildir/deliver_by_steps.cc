// For tests/e2e/failed_disk. deliver_by_steps SPOOL DURABILITY UID GID KNOWN: one delivery by the built-in
// agent to ann+lists, with a folder, its subscription and a counted quota. It writes "step TEXT" before each
// file operation and waits for a line, so that the test can make the file system fail there.
// KNOWN = 1: a first message is delivered without steps. The last line is "reply CODE NOTE".
#include <fmt/format.h>
#include <grp.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "../support/recording_ops.h"
#include "twinloft/base/clock.h"
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

int run(char** words) {
  const std::string root = words[1];
  auto durability = parse_durability(words[2]);
  auto uid = static_cast<unsigned>(std::stoul(words[3])), gid = static_cast<unsigned>(std::stoul(words[4]));
  if (!durability || ::setgroups(0, nullptr) != 0 || ::setresgid(gid, gid, gid) != 0 ||
      ::setresuid(uid, uid, uid) != 0)
    return 2;
  test::RecordingOps ops;
  ops.prefix = root;
  OsClock clock;
  auto spool = Spool::create({root, std::nullopt}, ops).value();
  SyncGroup syncs(ops);
  MaildirConfig config{"mail.example.org", *durability};
  config.folders.detail = FoldersByDetail::create;
  config.quota.driver = QuotaDriver::maildir;
  MaildirAgent agent(config, *spool, syncs, ops, clock);
  Envelope envelope;
  envelope.id = "0123456789abcdef";
  envelope.from = "sender@example.net";
  envelope.recipients = {ann(root, uid, gid)};
  auto deliver = [&](const std::string& subject) {
    auto handle = spool->open();
    if (handle) return agent.deliver(*handle, envelope, envelope.recipients.front(), message(subject));
    return DeliveryOutcome{{451, "4.3.0", ""}, handle.error().message};
  };
  if (std::string(words[5]) == "1")
    if (DeliveryOutcome first = deliver("first"); first.reply.code != 250) {
      fmt::print(stderr, "the first message: {}\n", first.detail);
      return 2;
    }
  ops.before = wait_for_line;
  DeliveryOutcome second = deliver("second");
  std::cout << "reply " << second.reply.code << " " << second.detail << std::endl;
  return 0;
}

}  // namespace
}  // namespace twinloft::lmtpd

int main(int argc, char** argv) {
  if (argc == 6) return twinloft::lmtpd::run(argv);
  fmt::print(stderr, "usage: deliver_by_steps SPOOL DURABILITY UID GID KNOWN\n");
  return 2;
}
