// A new volume without peers, on files in a directory of its own. Direct I/O is needed, and no privilege.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "twinloft/spool-repl/daemon/volume_runner.h"

namespace twinloft::repl::daemon {

constexpr std::uint64_t mib = 1u << 20;

struct VolumeOnFiles {
  VolumeOnFiles() {
    const char* tmp = std::getenv("TMPDIR");
    where = std::string(tmp ? tmp : "/tmp") + "/tl-opened-XXXXXX";
    EXPECT_NE(mkdtemp(where.data()), nullptr);
    s.name = "mail";
    s.uuid = "5c1a0e7e-0000-4000-8000-00000000c0de";
    s.replica = 1;
    s.size = 16 * mib;
    s.journal_size = 32 * mib;
    s.data = where + "/data";
    s.journal = where + "/journal";
    s.archive = where;
    EXPECT_TRUE(create_volume(s));
  }
  ~VolumeOnFiles() { std::filesystem::remove_all(where); }

  std::string where;
  VolumeSettings s;
};

}  // namespace twinloft::repl::daemon
