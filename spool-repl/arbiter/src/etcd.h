// The arbiter in etcd: a key for each volume, changed by a transaction that compares the whole value.
//
// Endpoints are tried in turn within one deadline, beginning with the endpoint of the last answer. After an
// unknown outcome, the next endpoint is safe: each desired value is new (it contains an attempt id), so a
// transaction that arrives late finds another value than the expected value.
#pragma once

#include <memory>
#include <vector>

#include "etcd_messages.h"
#include "http_client.h"
#include "twinloft/spool-repl/arbiter/arbiter.h"

namespace twinloft::repl::arbiter {

class EtcdStore final : public Store {
 public:
  static Result<std::unique_ptr<EtcdStore>> create(const Settings& settings, const Uuid& volume,
                                                   const Clock& clock);
  core::ArbiterAnswer perform(const core::ArbiterRequest& request) override;
  void cancel() override { http_.cancel(); }
  const std::string& key() const { return key_; }

 private:
  EtcdStore(const Settings& settings, const Uuid& volume, const Clock& clock);
  // The answer of an endpoint. spoke: it has answered, possibly with an error.
  struct Failure {
    std::string why;
    bool spoke = false;
    bool everywhere = false;  // all endpoints would give this answer
  };
  std::expected<core::ArbiterAnswer, Failure> ask(const Endpoint& endpoint,
                                                  const core::ArbiterRequest& request, Instant deadline);
  std::expected<HttpAnswer, Failure> post(const Endpoint& endpoint, const std::string& target,
                                          const std::string& body, Instant deadline);
  std::expected<void, Failure> log_in(const Endpoint& endpoint, Instant deadline);
  std::expected<void, Failure> open(const Endpoint& endpoint, Instant deadline);
  std::expected<core::ArbiterAnswer, Failure> understood(const core::ArbiterRequest& request,
                                                         const std::string& body);

  const Settings settings_;
  const Uuid volume_;
  const Clock& clock_;
  const std::string key_;
  HttpClient http_;
  std::vector<Endpoint> endpoints_;
  std::size_t first_ = 0;  // the endpoint of the last answer
  std::string token_;      // empty: not logged in
  std::string cluster_;    // the id in the first answer
};

// Reads the password from a file that only its owner may read.
Result<std::string> read_password(const std::string& path);

}  // namespace twinloft::repl::arbiter
