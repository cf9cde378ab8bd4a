// The state of a replica's content in the superblock. golden_test.cc has its golden bytes, and those of older
// versions.
#include "twinloft/spool-repl/format/disk_state.h"

#include <gtest/gtest.h>

#include "samples.h"

namespace twinloft::repl {
namespace {

using namespace samples;
using namespace disk_state;

Bytes encoded_state(const DiskState& state) {
  Bytes out;
  Writer w(out);
  put_disk_state(w, state);
  return out;
}

Result<DiskState> decoded_state(const Bytes& bytes) {
  Reader r(bytes);
  return get_disk_state(r);
}

TEST(DiskState, RoundTripInAFixedRoom) {
  for (const auto& [name, state] : disk_states()) {
    Bytes bytes = encoded_state(state);
    EXPECT_EQ(bytes.size(), disk_state_bytes) << name;
    auto out = decoded_state(bytes);
    ASSERT_TRUE(out) << name << ": " << out.error().message;
    EXPECT_EQ(*out, state) << name;
  }
}

TEST(DiskState, OfTwoTheDataAreaIsNoStateOfTheVolume) {
  EXPECT_FALSE(is_inconsistent(Consistent{}));
  EXPECT_FALSE(is_inconsistent(Refilling{Lsn{1}, epoch}));
  EXPECT_TRUE(is_inconsistent(Damaged{}));
  EXPECT_TRUE(is_inconsistent(Syncing{epoch, std::nullopt}));
}

TEST(DiskState, WhatNoStateHasIsRefused) {
  auto refused = [](const DiskState& state, std::size_t at, unsigned value) {
    Bytes bytes = encoded_state(state);
    bytes[at] = static_cast<std::byte>(value);
    auto out = decoded_state(bytes);
    return !out && out.error().code == Errc::corrupt;
  };
  EXPECT_TRUE(refused(Consistent{}, 0, 4)) << "a tag";
  EXPECT_TRUE(refused(Consistent{}, 0, 255)) << "a tag";
  EXPECT_TRUE(refused(Consistent{}, 1, 1)) << "an optional field";
  EXPECT_TRUE(refused(Refilling{Lsn{1}, epoch}, 1, 4)) << "an optional field";
  EXPECT_TRUE(refused(Refilling{Lsn{1}, epoch}, 8, 0)) << "no LSN";
  EXPECT_TRUE(refused(Damaged{}, 1, 4)) << "an optional field";
  EXPECT_TRUE(refused(Syncing{epoch, std::nullopt}, 1, 1)) << "an optional field";
}

TEST(DiskState, CutShortItIsRefused) {
  for (const auto& [name, state] : disk_states()) {
    Bytes bytes = encoded_state(state);
    bytes.pop_back();
    EXPECT_FALSE(decoded_state(bytes)) << name;
  }
}

// Flags and the predecessor each have a field. Only defined bits are allowed.
TEST(EntryForms, BothHoldTheSameAndAsMuch) {
  EpochEntry e{epoch, Lsn{18}, 2, 0b11, epoch_by_force | epoch_lossy, mark_of(older_epoch)};
  for (EntryForm form : {EntryForm::in_flags, EntryForm::own_field}) {
    Bytes bytes;
    Writer w(bytes);
    put_entry(w, e, form);
    EXPECT_EQ(bytes.size(), entry_bytes(form));
    Reader r(bytes);
    auto out = get_entry(r, form);
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_EQ(*out, e);
  }
}

TEST(EntryForms, AFlagOrAMarkThatDoesNotExistIsRefused) {
  Bytes bytes;
  Writer w(bytes);
  put_entry(w, {epoch, Lsn{18}, 2, 0b11}, EntryForm::own_field);
  auto refused = [&](std::size_t at, std::uint32_t value) {
    Bytes bad = bytes;
    store_le(bad.data() + at, value);
    Reader r(bad);
    auto out = get_entry(r, EntryForm::own_field);
    return !out && out.error().code == Errc::corrupt;
  };
  EXPECT_FALSE(refused(36, 7));
  EXPECT_TRUE(refused(36, 8));
  EXPECT_FALSE(refused(40, (1u << 29) - 1));
  EXPECT_TRUE(refused(40, 1u << 29));
}

}  // namespace
}  // namespace twinloft::repl
