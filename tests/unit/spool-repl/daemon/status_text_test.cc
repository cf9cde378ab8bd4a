#include "status_text.h"
#include "memory_bound.h"

#include <gtest/gtest.h>

namespace twinloft::repl::daemon {
namespace {

struct StatusText : testing::Test {
  StatusText() {
    settings.name = "mail";
    settings.replica = 1;
    status.in_sync = set_of(1) | set_of(2);
    status.peers.resize(2);
    for (ReplicaId id : {2, 3}) peer(id).id = id;
    peer(2).in_sync = true;
    peer(3).protocol = core::Protocol::A;
  }
  core::PeerStatus& peer(ReplicaId id) { return status.peers[id - 2]; }
  void connect(ReplicaId id, bool primary = false) {
    peer(id).connection = core::ConnectionState::Connected;
    peer(id).known = true;
    peer(id).primary = primary;
  }
  std::string text() { return status_text({settings, {}, 1 << 20, {}, {}, false, {}, status, meter}); }
  std::string line() { return status_line({settings, {}, 1 << 20, {}, {}, false, {}, status, meter}); }
  std::string json() { return status_json({settings, {}, 1 << 20, {}, {}, false, {}, status, meter}); }
  bool says(std::string_view what) { return text().find(what) != std::string::npos; }

  VolumeSettings settings;
  core::VolumeStatus status;
  ResyncMeter meter;
};

// The set in this log may be out of date: other replicas may have continued without this one.
TEST_F(StatusText, WhoIsCutOffDoesNotCallItselfUpToDate) {
  EXPECT_TRUE(says("mail  Secondary  Consistent  replica 1")) << text();
  connect(3);
  EXPECT_TRUE(says("Secondary  Consistent")) << "no member says so: " << text();
  connect(2);
  EXPECT_TRUE(says("Secondary  UpToDate")) << text();
  peer(2) = {};
  peer(2).id = 2, peer(2).in_sync = true;
  connect(3, true);
  EXPECT_TRUE(says("Secondary  UpToDate")) << "for the primary it is in sync: " << text();
  status.in_sync = set_of(2);
  EXPECT_TRUE(says("Secondary  Outdated")) << text();
}

// The log says that the absent peer was in sync. Its present state is unknown.
TEST_F(StatusText, APeerThatIsAwayIsNotCalledInSync) {
  status.epoch.counter = 5;
  status.now = Instant{} + std::chrono::seconds(100);
  peer(2).since = Instant{} + std::chrono::seconds(60);
  EXPECT_TRUE(says("protocol C  not seen since the start 40 s ago, counted as in sync in epoch 5")) << text();
  EXPECT_FALSE(says("  in sync")) << text();
  peer(2).seen = true;
  EXPECT_TRUE(says("protocol C  away for 40 s, counted as in sync in epoch 5")) << text();
  EXPECT_NE(json().find(R"("in_sync":false,"counted_in_sync":true,"seen":true,"since_seconds":40)"),
            std::string::npos)
      << json();
  connect(2);
  EXPECT_TRUE(says("Secondary/UpToDate  protocol C  in sync")) << text();
  EXPECT_NE(json().find(R"("in_sync":true,"counted_in_sync":true)"), std::string::npos) << json();
  status.role = core::Role::primary;
  peer(2).connection = core::ConnectionState::Connecting;
  peer(2).known = false;
  EXPECT_TRUE(says("away for 40 s, counted as in sync")) << "writes wait for it: " << text();
  peer(2).in_sync = false;
  EXPECT_TRUE(says("Unknown/Outdated  protocol C  away for 40 s  sent")) << text();
}

// The primary continued without these two secondaries. Each knows only its own log.
TEST_F(StatusText, TwoThatWereLeftOutDoNotCallEachOtherInSync) {
  status.epoch.counter = 5;
  peer(3).protocol = core::Protocol::C;
  peer(3).in_sync = true;
  status.in_sync |= set_of(3);
  connect(3);  // replica 2 was primary, and is disconnected
  EXPECT_TRUE(says("peer 3   Connected  Secondary/Consistent  protocol C  counted as in sync in epoch 5"))
      << text();
  connect(2, true);
  EXPECT_TRUE(says("peer 3   Connected  Secondary/UpToDate  protocol C  in sync")) << text();
}

TEST_F(StatusText, WhoWasCreatedAnewIsInconsistentUntilItHasEverythingAgain) {
  connect(2, true);
  status.refilling = true;
  EXPECT_TRUE(says("Secondary  Inconsistent")) << text();
}

// The sum is that of the listed parts, and each part comes from the setting in its name.
TEST_F(StatusText, TheMemoryBoundFollowsTheConfiguration) {
  status.journal_size = 64 << 20;
  MemoryBound none = memory_bound(settings, 1 << 30, status.journal_size);
  EXPECT_GT(none.arena, settings.arena);
  EXPECT_EQ(none.clients, 0u);
  EXPECT_EQ(none.replicas, 0u);
  EXPECT_EQ(none.bitmaps, 0u);
  EXPECT_FALSE(says("more when")) << "the volume has neither clients nor replicas: " << text();
  EXPECT_NEAR(static_cast<double>(none.digests), 1 << 20, 1 << 13) << "one MiB for each GiB";
  EXPECT_EQ(memory_bound(settings, 1 << 30, 2 * status.journal_size).log, 2 * none.log);
  settings.nbd_listen = "unix:/x";
  settings.arena *= 2;
  settings.peers = {PeerSettings{2, {"10.0.0.2:1"}}};
  std::uint64_t of_one = memory_bound(settings, 1 << 30, status.journal_size).replicas;
  settings.peers[0].addresses.emplace_back("10.0.1.2:1");
  std::uint64_t of_two = memory_bound(settings, 1 << 30, status.journal_size).replicas;
  EXPECT_EQ(of_two - of_one, stream::paths_stream_bytes_max(2));
  EXPECT_LT(of_two - of_one, 70u << 20) << "as docs/links.md says";
  settings.peers.assign(2, {});
  MemoryBound more = memory_bound(settings, 1ull << 40, status.journal_size);
  EXPECT_GT(more.clients, 64u * 40u << 20);
  EXPECT_EQ(more.arena, 2 * none.arena);
  EXPECT_EQ(more.bitmaps, 2u * 2u * 32u << 20);
  EXPECT_EQ(more.total() - none.total(), more.arena - none.arena + more.digests - none.digests +
                                             more.bitmaps + more.clients + more.replicas);
  EXPECT_TRUE(says(" now, all volumes of the process. This volume: ") && says(". At most ")) << text();
  EXPECT_TRUE(says("more when all clients keep their queues full") && says("more when replicas are slow"))
      << text();
}

TEST_F(StatusText, APrimaryTellsWhoSlowsIt) {
  status.role = core::Role::primary;
  connect(2);
  EXPECT_TRUE(says("Primary  UpToDate") && says("state    serving\n")) << text();
  status.slowed_by = 2;
  status.slowed_by_bytes = 300u << 20;
  std::string slow = "SLOW: writes wait for room in memory or journal, because replica 2 is 300 MiB behind";
  EXPECT_TRUE(says("serving. " + slow)) << text();
  EXPECT_NE(line().find(slow), std::string::npos);
  peer(2).in_sync = false;
  EXPECT_TRUE(says("DEGRADED: serving without replica 2. " + slow)) << text();
  status.suspended = true;
  EXPECT_FALSE(says("SLOW")) << text();
}

TEST_F(StatusText, APrimaryTellsWhatSlowsAResync) {
  status.role = core::Role::primary;
  connect(2);
  peer(2).sync_target = true;
  status.resync_held_to = 400u << 20;
  EXPECT_TRUE(says("slowed to 400 MiB/s: flushes or reads take longer than resync_latency_target")) << text();
  peer(2).sync_target = false;
  EXPECT_FALSE(says("slowed")) << text();
}

TEST_F(StatusText, ABufferedLinkTellsItsLag) {
  status.role = core::Role::primary;
  connect(2);
  auto& b = peer(2).buffer.emplace();
  b.bound = 64ull << 30;
  EXPECT_TRUE(says("buffer empty, of 64 GiB")) << text();
  b.lag_bytes = 300u << 20, b.lag_lsns = 812, b.lag = std::chrono::seconds(75);
  EXPECT_TRUE(says("buffer 300 MiB of 64 GiB used: 812 LSNs and 1 min 15 s behind\n")) << text();
  b.slows = true;
  EXPECT_TRUE(says("behind. FULL: writers wait for it\n")) << text();
  b.given_up = true;
  EXPECT_TRUE(says("buffer given up: it needs a resync")) << text();
  b.waits = true;
  EXPECT_TRUE(says("its resync waits until the line can carry the load")) << text();
}

TEST_F(StatusText, APeerTellsWhereItsRecordsComeFrom) {
  connect(3);
  EXPECT_FALSE(says("records"));
  EXPECT_NE(json().find(R"("relay":0,"relays_to":false,"takes_from":false)"), std::string::npos);
  peer(3).relay = 2;
  EXPECT_TRUE(says("\n           gets its records from replica 2\n")) << text();
  EXPECT_NE(json().find(R"("relay":2)"), std::string::npos);
  peer(3).relay = 0, peer(3).relays_to = true;
  EXPECT_TRUE(says("\n           gets its records from here\n"));
  peer(3).relays_to = false, peer(3).takes_from = true;
  EXPECT_TRUE(says("\n           this replica gets its records from it\n"));
}

TEST_F(StatusText, ALinkTellsItsPaths) {
  connect(3);
  NodeView view{settings, {}, 1 << 20, {}, {}, false, {}, status, meter};
  view.links[3].paths = {};
  auto has = [&](std::string_view part) {
    return (status_text(view) + status_json(view)).find(part) != std::string::npos;
  };
  EXPECT_FALSE(has("path 1"));
  EXPECT_TRUE(has(R"("paths":[])"));
  using State = net::PathStatus::State;
  view.links[3].paths = {
      {0, "10.0.0.3:7710", State::down, false, "no route"},
      {1, "10.0.1.3:7710", State::usable, true, "", 500, 600, std::chrono::microseconds(1500)},
      {2, "10.0.2.3:7710", State::usable},
      {3, "10.0.3.3:7710", State::trial}};
  EXPECT_TRUE(has("\n           path 1 10.0.0.3:7710  DOWN: no route\n")) << status_text(view);
  EXPECT_TRUE(has("\n           path 2 10.0.1.3:7710  in use, round trip 1.5 ms\n")) << status_text(view);
  EXPECT_TRUE(has("\n           path 3 10.0.2.3:7710  spare\n")) << status_text(view);
  EXPECT_TRUE(has("\n           path 4 10.0.3.3:7710  trial\n")) << status_text(view);
  EXPECT_TRUE(has(R"({"number":1,"address":"10.0.0.3:7710","state":"down","why":"no route")"))
      << status_json(view);
  EXPECT_TRUE(has(R"("state":"in use","why":"","sent_bytes":500,"received_bytes":600,"round_trip_seconds":)"))
      << status_json(view);
}

TEST_F(StatusText, ALinkTellsWhoEncrypts) {
  connect(3);
  auto shown = [&](const net::LinkProtection& protection) {
    NodeView view{settings, {}, 1 << 20, {}, {}, false, {}, status, meter};
    view.links[3].protection = protection;
    return status_text(view) + status_json(view);
  };
  using Kind = net::LinkProtection::Kind;
  auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  const std::string secret = shown({Kind::secret, std::nullopt, false});
  EXPECT_TRUE(has(secret, "  TLS\n") && has(secret, R"("kernel_tls":false)")) << secret;
  const std::string kernel = shown({Kind::secret, std::nullopt, true});
  EXPECT_TRUE(has(kernel, "  TLS by the kernel\n") && has(kernel, R"("kernel_tls":true)")) << kernel;
  const std::string both = shown({Kind::certificate, 1'800'000'000, true});
  EXPECT_TRUE(has(both, "  TLS by the kernel until 2027-01-15\n")) << both;
}

TEST_F(StatusText, ALinkTellsItsCompression) {
  connect(3);
  auto shown = [&](const LinkState& link) {
    NodeView view{settings, {}, 1 << 20, {}, {}, false, {}, status, meter};
    view.links[3] = link;
    std::string all = status_text(view) + status_json(view);
    return all;
  };
  auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  LinkState link;
  link.packing.emplace();
  EXPECT_FALSE(has(shown(link), "compression none"));
  EXPECT_TRUE(has(shown(link), R"("compression":{"setting":"none","codec":"none")")) << shown(link);
  link.compression = compress::Method{compress::Codec::zstd, 9};
  link.packing->codec = compress::Codec::zstd;
  link.packing->out_raw = 300u << 20;
  link.packing->out_line = 100u << 20;
  EXPECT_TRUE(has(shown(link), "compression zstd:9: 300 MiB sent as 100 MiB\n")) << shown(link);
  EXPECT_TRUE(has(shown(link), R"("out_raw_bytes":314572800,"out_line_bytes":104857600)")) << shown(link);
  link.compression = compress::Adaptive{};
  link.packing->line_rate = 12.0 * (1 << 20);
  EXPECT_TRUE(
      has(shown(link), "compression adaptive (zstd now): 300 MiB sent as 100 MiB, line 12 MiB/s when full\n"))
      << shown(link);
  link.packing->peer_lacks_codec = true;
  EXPECT_TRUE(has(shown(link), "NOT USED, the peer's release does not know this codec\n")) << shown(link);
  EXPECT_FALSE(has(shown(link), "bandwidth "));
  EXPECT_TRUE(has(shown(link), R"("limit_bytes_per_second":null,"limit_of_all_bytes_per_second":null)"));
  link.rate = 4u << 20;
  EXPECT_TRUE(has(shown(link), "\n           bandwidth at most 4096 KiB/s\n")) << shown(link);
  link.rate_of_all = 20u << 20;
  EXPECT_TRUE(has(shown(link), "bandwidth at most 4096 KiB/s, all links of the process 20 MiB/s\n"))
      << shown(link);
  link.memory = LinkMemoryState{64u << 20, false};
  EXPECT_FALSE(has(shown(link), "memory 4"));
  EXPECT_TRUE(has(shown(link), R"("memory":{"bound_of_all_bytes":67108864,"waits":false})")) << shown(link);
  link.memory->waits = true;
  EXPECT_TRUE(
      has(shown(link),
          "\n           memory 0 KiB on the way: link_memory, 64 MiB for all links, leaves no more\n"))
      << shown(link);
  link.rate.reset();
  EXPECT_TRUE(has(shown(link), "bandwidth not limited, all links of the process 20 MiB/s\n")) << shown(link);
  EXPECT_TRUE(has(shown(link), R"("limit_bytes_per_second":null,"limit_of_all_bytes_per_second":20971520)"));
  link.packing.reset();
  EXPECT_TRUE(has(shown(link), "MiB/s: NOT KEPT, the peer's release does not know it\n")) << shown(link);
  EXPECT_TRUE(has(shown(link), "compression adaptive: NOT USED, the peer's release does not know it\n"));
  EXPECT_TRUE(has(shown(link), R"("compression":null)")) << shown(link);
}

TEST_F(StatusText, AFarReplicaTellsWhatItLacks) {
  connect(2);
  status.now = Instant{} + std::chrono::seconds(100);
  status.behind = core::BehindReport{Lsn{90}, Lsn{70}, 3u << 20, std::chrono::seconds(4),
                                     Instant{} + std::chrono::seconds(88)};
  EXPECT_TRUE(says("behind   LSN 70 of 90, 3072 KiB, 4 s; reported 12 s ago")) << text();
  status.behind->durable = Lsn{90};
  EXPECT_TRUE(says("behind   nothing, reported 12 s ago at LSN 90")) << text();
}

}  // namespace
}  // namespace twinloft::repl::daemon
