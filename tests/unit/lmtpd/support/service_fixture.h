#pragma once

#include "fixture.h"
#include "recording_ops.h"
#include "twinloft/lmtpd/delivery/service.h"

namespace twinloft::lmtpd::test {

inline const char* const volume_text = "0b6ff95a-3b2a-4b5c-9d5e-0e6b0a1c2d3e";

// A marked spool in `spool`, with a home for Ann, and the test agent under several names.
class ServiceFixture : public DirTest {
 protected:
  void SetUp() override {
    agent_ = path("agent");
    std::filesystem::copy_file(TEST_AGENT, agent_);
    ::chmod(agent_.c_str(), 0755);
    make_spool();
    recipient_ = make_recipient(spool_ + "/ann");
  }
  void make_spool() {
    spool_ = path("spool");
    std::filesystem::create_directories(spool_ + "/ann");
    volume_ = Uuid::parse(volume_text).value();
    ASSERT_TRUE(write_spool_marker(spool_, volume_).has_value());
    give_to_mail_user(spool_);
    give_to_mail_user(spool_ + "/ann");
  }
  AgentSpec spec(const std::string& arguments) {
    AgentSpec s;
    s.name = "agent";
    s.command = agent_ + " " + arguments;
    return s;
  }
  // Starts the spawner as root if the test is root. Then the process becomes the mail user, like lmtpd.
  void start(std::vector<AgentSpec> agents, const std::string& default_agent = "agent") {
    service_.reset();
    become_root();
    auto spawner = Spawner::start(std::move(agents));
    ASSERT_TRUE(spawner.has_value()) << spawner.error().message;
    spawner_ = std::move(*spawner);
    become_mail_user();
    DeliveryConfig config;
    config.hostname = "mail.example.org";
    config.default_agent = default_agent;
    config.per_user_max = 2;
    config.spool = {spool_, volume_};
    config.external.temporary = "/tmp";
    config.external.memory_bytes_max = 100'000;
    config.sieve = sieve_;
    auto service = DeliveryService::create(config, spawner_.get(), clock_, &ops_);
    ASSERT_TRUE(service.has_value()) << service.error().message;
    service_ = std::move(*service);
  }
  Reply deliver(const std::string& message = small_message) {
    outcome_ = service_->deliver(make_envelope(), recipient_, in_memory(message));
    return outcome_.reply;
  }

  OsClock clock_;
  RecordingOps ops_;
  std::string agent_;
  std::string spool_;
  Uuid volume_;
  Recipient recipient_;
  SieveConfig sieve_;  // off
  std::unique_ptr<Spawner> spawner_;
  std::unique_ptr<DeliveryService> service_;
  DeliveryOutcome outcome_;  // of the last delivery
};

}  // namespace twinloft::lmtpd::test
