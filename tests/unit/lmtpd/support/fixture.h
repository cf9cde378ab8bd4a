// Temporary directories, mounts and message parts that the tests of this folder share.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd::test {

inline constexpr unsigned mail_uid = 61234;

inline bool is_root() {
  return ::getuid() == 0;
}

// Each test has its own directory, readable by every user. It is removed with its mounts, also after a failed
// test.
class DirTest : public ::testing::Test {
 protected:
  DirTest() {
    const char* base = std::getenv("TMPDIR");
    std::string name = std::string(base && *base ? base : "/tmp") + "/twinloft-delivery-XXXXXX";
    if (!::mkdtemp(name.data())) std::abort();
    ::chmod(name.c_str(), 0755);
    dir_ = name;
  }
  ~DirTest() override {
    become_root();
    for (auto at = mounts_.rbegin(); at != mounts_.rend(); ++at) ::umount2(at->c_str(), MNT_DETACH);
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }

  // Changes the process to the mail user, like lmtpd. A test without root keeps its user.
  void become_mail_user() {
    if (!is_root()) return;
    ASSERT_EQ(::setegid(mail_uid), 0);
    ASSERT_EQ(::seteuid(mail_uid), 0);
  }
  void become_root() {
    if (!is_root()) return;
    if (::seteuid(0) != 0 || ::setegid(0) != 0) std::abort();
  }
  static void give_to_mail_user(const std::string& path) {
    if (!is_root()) return;
    ASSERT_EQ(::chown(path.c_str(), mail_uid, mail_uid), 0);
  }
  void mount_tmpfs(const std::string& at, const char* options = "size=1m,mode=755") {
    std::filesystem::create_directories(at);
    ASSERT_EQ(::mount("tmpfs", at.c_str(), "tmpfs", 0, options), 0) << strerror(errno);
    mounts_.push_back(at);
  }
  void unmount(const std::string& at) {
    ASSERT_EQ(::umount2(at.c_str(), 0), 0) << strerror(errno);
    std::erase(mounts_, at);
  }
  std::string path(const std::string& name) const { return dir_ + "/" + name; }

  std::string dir_;
  std::vector<std::string> mounts_;
};

inline std::vector<std::string> list(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    names.push_back(entry.path().filename().string());
  return names;
}

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline MessageBody in_memory(std::string text) {
  MessageBody body;
  body.size = text.size();
  body.memory = std::move(text);
  return body;
}

inline MessageBody in_file(const std::string& text) {
  MessageBody body;
  body.file.reset(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  body.size = text.size();
  EXPECT_TRUE(write_all(body.file.get(), as_bytes(text)).has_value());
  return body;
}

inline Envelope make_envelope() {
  Envelope envelope;
  envelope.id = "4fTx1";
  envelope.from = "sender@example.com";
  envelope.lhlo = "mx.example.com";
  envelope.client = "192.0.2.7";
  return envelope;
}

inline Recipient make_recipient(const std::string& home) {
  Recipient r;
  r.text = "ann@example.org";
  r.local_part = "ann";
  r.domain = "example.org";
  r.user.name = "ann@example.org";
  r.user.uid = is_root() ? mail_uid : ::getuid();
  r.user.gid = is_root() ? mail_uid : ::getgid();
  r.user.home = home;
  r.user.maildir = home + "/Maildir";
  return r;
}

inline const char* const
    small_message = "From: a@example.com\r\nSubject: hello\r\n\r\nFirst line\r\nSecond\r\n";

}  // namespace twinloft::lmtpd::test
