#include "twinloft/base/durable.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "twinloft/base/fd.h"

namespace twinloft {
namespace {

// For failed file systems, see tests/e2e/failed_disk.
TEST(Durable, AHealthyFileAndDirectory) {
  std::string dir = "/tmp/twinloft-durable-XXXXXX";
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  std::string path = dir + "/file";
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  Fd read_only(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Fd directory(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_TRUE(start_write_back(file.get()));
  EXPECT_TRUE(write_back(file.get()));
  for (const Fd* fd : {&file, &read_only, &directory}) {
    EXPECT_TRUE(sync_durably(fd->get()));
    EXPECT_TRUE(sync_file_system_durably(fd->get()));
    EXPECT_TRUE(check_not_failed(fd->get()));
  }
  ::unlink(path.c_str());
  ::rmdir(dir.c_str());
}

TEST(Durable, WhatTakesNoSyncIsAnError) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd in(ends[0]), out(ends[1]);
  Status synced = sync_durably(out.get());
  ASSERT_FALSE(synced);
  EXPECT_EQ(synced.error().sys, EINVAL);
  EXPECT_FALSE(sees_failure(out.get()));
  EXPECT_EQ(start_write_back(out.get()).error().sys, ESPIPE);
  EXPECT_EQ(write_back(out.get()).error().sys, ESPIPE);
  EXPECT_EQ(sync_durably(-1).error().sys, EBADF);
  EXPECT_EQ(check_not_failed(-1).error().sys, EBADF);
}

}  // namespace
}  // namespace twinloft
