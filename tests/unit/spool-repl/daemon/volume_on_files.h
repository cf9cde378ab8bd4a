// A new volume without peers, on files in a temporary directory. Needs direct I/O, but no privilege.
#pragma once

#include <gtest/gtest.h>

#include "../../support/temporary_directory.h"
#include "twinloft/spool-repl/daemon/volume_runner.h"

namespace twinloft::repl::daemon {

constexpr std::uint64_t mib = 1u << 20;

// The settings of a volume whose files can be created in the directory.
inline VolumeSettings small_volume(const std::string& where) {
  VolumeSettings s;
  s.name = "mail";
  s.uuid = "5c1a0e7e-0000-4000-8000-00000000c0de";
  s.replica = 1;
  s.size = 16 * mib;
  s.journal_size = 32 * mib;
  s.data = where + "/data";
  s.journal = where + "/journal";
  s.archive = where;
  return s;
}

struct VolumeOnFiles {
  VolumeOnFiles() {
    auto made = create_volume(s);
    EXPECT_TRUE(made) << made.error().message;
  }

  TemporaryDirectory directory;
  const std::string& where = directory.path();
  VolumeSettings s = small_volume(where);
};

}  // namespace twinloft::repl::daemon
