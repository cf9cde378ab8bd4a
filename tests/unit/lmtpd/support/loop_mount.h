// A small file system on a loop device, for tests that need a real one. As root only.
#pragma once

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

extern char** environ;

namespace twinloft::lmtpd::test {

// Runs a program of the machine. False: it failed.
inline bool run_program(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  int status = 0;
  if (::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ) != 0) return false;
  return ::waitpid(pid, &status, 0) == pid && status == 0;
}

// The image is in `directory`, and the mount in its folder "mnt". The device ends with the mount.
class LoopMount {
 public:
  // type: "ext4" or "xfs"
  LoopMount(const std::string& directory, const std::string& type, unsigned mib)
      : image_(directory + "/image"), at_(directory + "/mnt"), type_(type) {
    std::filesystem::create_directories(at_);
    std::ofstream(image_).put('\0');
    std::filesystem::resize_file(image_, std::uintmax_t{mib} << 20);
    EXPECT_TRUE(run_program({"mkfs." + type, type == "xfs" ? "-qf" : "-qF", image_}));
    mount();
  }
  ~LoopMount() {
    if (mounted_ && ::umount2(at_.c_str(), 0) != 0) ::umount2(at_.c_str(), MNT_DETACH);
  }
  LoopMount(const LoopMount&) = delete;
  LoopMount& operator=(const LoopMount&) = delete;

  void mount() {
    mounted_ = run_program({"mount", "-t", type_, "-o", "loop", image_, at_});
    EXPECT_TRUE(mounted_);
  }
  // False: it is busy.
  bool unmount() {
    if (::umount2(at_.c_str(), 0) != 0) return false;
    mounted_ = false;
    return true;
  }
  const std::string& path() const { return at_; }

 private:
  const std::string image_, at_, type_;
  bool mounted_ = false;
};

}  // namespace twinloft::lmtpd::test
