#include "device_thread.h"

#include <sys/prctl.h>

#include <future>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace twinloft::repl::snapshot {

Result<std::unique_ptr<DeviceThread>> DeviceThread::start(ports::BlockTarget& target, const std::string& mount_point) {
  std::unique_ptr<DeviceThread> out(new DeviceThread(target));
  TL_TRY_ASSIGN(out->loop_, io::UringLoop::create(out->clock_));
  auto ready = std::make_shared<std::promise<Result<std::string>>>();
  auto device = ready->get_future();
  out->thread_ = std::thread([self = out.get(), mount_point, ready] {
    self->run(mount_point, [ready](Result<std::string> path) { ready->set_value(std::move(path)); });
  });
  TL_TRY_ASSIGN(out->device_, device.get());
  return out;
}

void DeviceThread::run(const std::string& mount_point, const std::function<void(Result<std::string>)>& ready) {
  // Best effort: getting memory for a request must not wait for the file system that waits for the request.
  (void)::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
  side_ = std::make_unique<exports::SideThread>(*loop_);
  exports::DeviceOptions options;
  options.fuse.mount_point = mount_point;
  options.loop.autoclear = true;
  auto started = exports::DeviceExport::start(*loop_, target_, *side_, std::move(options), ready);
  if (started) export_ = std::move(*started);
  else ready(std::unexpected(started.error()));
  (void)loop_->run();
  export_.reset();
  side_.reset();
}

Status DeviceThread::stop() {
  std::promise<Status> stopped;
  auto outcome = stopped.get_future();
  loop_->post([&] { export_->stop([&](Status s) { stopped.set_value(std::move(s)); }); });
  TL_TRY(outcome.get());
  device_.clear();
  return {};
}

DeviceThread::~DeviceThread() {
  if (!thread_.joinable()) return;
  loop_->post([this] {
    if (export_ && !device_.empty()) export_->abort();
    loop_->stop();
  });
  thread_.join();
}

}  // namespace twinloft::repl::snapshot
