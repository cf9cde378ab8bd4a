#include "twinloft/spool-repl/daemon/volume_runner.h"

#include <future>
#include <thread>

#include "served_volume.h"

namespace twinloft::repl::daemon {

class VolumeRunner::Impl {
 public:
  Impl(VolumeSettings settings, ProcessParts process, StartHooks hooks)
      : hooks_(std::move(hooks)), volume_(std::move(settings), std::move(process)) {}

  Status start() {
    auto promise = std::make_shared<std::promise<Status>>();
    std::future<Status> started = promise->get_future();
    thread_ = std::thread([this, promise] {
      volume_.run(hooks_.before_control, [promise](Status s) { promise->set_value(std::move(s)); });
    });
    if (hooks_.late && started.wait_for(hooks_.late_after) == std::future_status::timeout) hooks_.late();
    Status result = started.get();
    if (!result) wait();
    return result;
  }
  void wait() {
    if (thread_.joinable()) thread_.join();
  }
  ServedVolume& volume() { return volume_; }

 private:
  const StartHooks hooks_;
  ServedVolume volume_;
  std::thread thread_;
};

VolumeRunner::VolumeRunner(VolumeSettings settings, ProcessParts process, StartHooks hooks)
    : impl_(std::make_unique<Impl>(std::move(settings), std::move(process), std::move(hooks))) {}
VolumeRunner::~VolumeRunner() {
  impl_->wait();
}
Status VolumeRunner::start() {
  return impl_->start();
}
void VolumeRunner::request_stop(bool force) {
  impl_->volume().request_stop(force);
}
void VolumeRunner::wait() {
  impl_->wait();
}
bool VolumeRunner::failed() const {
  return impl_->volume().has_failed();
}
bool VolumeRunner::stands_down() const {
  return impl_->volume().stands_down();
}
std::string VolumeRunner::failure() const {
  return impl_->volume().failure();
}
void VolumeRunner::reload(const VolumeSettings& now, Security security) {
  impl_->volume().reload(now, std::move(security));
}

}  // namespace twinloft::repl::daemon
