#include "core_settings.h"

#include <gtest/gtest.h>

namespace twinloft::repl::daemon {
namespace {

VolumeSettings with_etcd(std::vector<std::string> endpoints, std::string prefix = "/twinloft") {
  VolumeSettings s;
  s.replica = 1;
  s.peers.resize(1);
  s.peers[0].id = 2;
  s.arbiter.kind = arbiter::Kind::etcd;
  s.arbiter.endpoints = std::move(endpoints);
  s.arbiter.prefix = std::move(prefix);
  return s;
}

std::string text(const VolumeSettings& s) {
  return agreement_with(s, 2).text();
}

TEST(AgreementWithPeer, OneEtcdWrittenInOtherWaysIsOneEtcd) {
  VolumeSettings plain = with_etcd({"http://etcd1.example.org:2379", "http://[::1]:2379"});
  for (const VolumeSettings& other :
       {with_etcd({"http://[::1]:2379", "http://etcd1.example.org:2379"}),
        with_etcd({"HTTP://ETCD1.example.org.", "http://[0:0::1]/"}),
        with_etcd({"http://etcd1.example.org/", "http://ETCD1.example.org", "http://[::1]"}),
        with_etcd(plain.arbiter.endpoints, "/twinloft/")}) {
    EXPECT_EQ(disagreement(text(plain), text(other)), "");
    EXPECT_EQ(core_config(plain).arbiter_place, core_config(other).arbiter_place);
  }
}

TEST(AgreementWithPeer, AnotherEtcdIsToldApart) {
  VolumeSettings plain = with_etcd({"http://etcd1.example.org:2379"});
  for (const VolumeSettings& other :
       {with_etcd({"http://etcd1.example.org:2380"}), with_etcd({"https://etcd1.example.org:2379"}),
        with_etcd({"http://etcd2.example.org:2379"}),
        with_etcd({"http://etcd1.example.org", "http://etcd2.example.org"})})
    EXPECT_NE(disagreement(text(plain), text(other)).find("arbiter.endpoints"), std::string::npos);
  VolumeSettings elsewhere = with_etcd(plain.arbiter.endpoints, "/twinloft//");
  EXPECT_NE(disagreement(text(plain), text(elsewhere)).find("arbiter.prefix"), std::string::npos);
  EXPECT_NE(core_config(plain).arbiter_place, core_config(elsewhere).arbiter_place);
}

}  // namespace
}  // namespace twinloft::repl::daemon
