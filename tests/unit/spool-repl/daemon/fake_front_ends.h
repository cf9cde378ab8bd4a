// Front ends without a device. The test says when they have started and stopped.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "front_ends.h"

namespace twinloft::repl::daemon {

// The test's view of a front end. `gone`: it was destroyed.
struct Made {
  std::function<void(Status)> started;
  std::vector<std::pair<bool, std::function<void(Status)>>> stops;  // (force, the callback at its end)
  bool gone = false;
};

class FakeFrontEnds final : public FrontEnds {
 public:
  explicit FakeFrontEnds(std::shared_ptr<Made> made) : made_(std::move(made)) {}
  ~FakeFrontEnds() override { made_->gone = true; }
  void set_nbd_tls(std::shared_ptr<const stream::TlsContext>) override {}
  void start(std::function<void(Status)> done) override { made_->started = std::move(done); }
  void stop(bool force, std::function<void(Status)> done) override {
    made_->stops.emplace_back(force, std::move(done));
  }
  void flush() override {}
  std::string device() const override { return ""; }
  std::string device_trouble() const override { return ""; }
  bool device_lost() const override { return false; }
  std::string nbd_uri() const override { return ""; }

 private:
  std::shared_ptr<Made> made_;
};

}  // namespace twinloft::repl::daemon
