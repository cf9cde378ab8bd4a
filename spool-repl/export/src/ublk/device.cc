#include "device.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "twinloft/base/hash.h"
#include "twinloft/base/log.h"

namespace twinloft::repl::ublk {

namespace {

using uapi::Control;

constexpr unsigned block_shift = 12;                 // logical and physical, as of the loop device
constexpr std::uint32_t range_bytes_max = 1u << 30;  // of a trim or a write of zeros
constexpr int node_pauses = 10 * Driver::pauses_a_second;
constexpr int user_pauses = 5 * Driver::pauses_a_second;

std::uint64_t mark_of(const std::string& link) {
  Hash128 hash = hash128(as_bytes("twinloft ublk " + link));
  return load_le<std::uint64_t>(hash.bytes.data());
}

const char* name_of(Control c) {
  switch (c) {
    case Control::get_dev_info:
      return "GET_DEV_INFO";
    case Control::add_dev:
      return "ADD_DEV";
    case Control::del_dev:
      return "DEL_DEV";
    case Control::start_dev:
      return "START_DEV";
    case Control::stop_dev:
      return "STOP_DEV";
    case Control::set_params:
      return "SET_PARAMS";
    case Control::get_features:
      return "GET_FEATURES";
    case Control::del_dev_async:
      return "DEL_DEV_ASYNC";
  }
  return "?";
}

std::unexpected<Error> refused(Control c, int outcome) {
  const char* hint = outcome == -EPERM || outcome == -EACCES ? " (root, or CAP_SYS_ADMIN, is needed)" : "";
  if (c == Control::add_dev && outcome == -EACCES)  // ublk_ctrl_add_dev() has one answer for both
    hint =
        " (root, or CAP_SYS_ADMIN, is needed; or there are as many devices as the module's parameter "
        "ublks_max allows)";
  return fail_errno(-outcome, "ublk: the kernel's driver refuses {}{}", name_of(c), hint);
}

}  // namespace

Device::Device(std::shared_ptr<Driver> driver, const UblkOptions& options, std::uint64_t size_bytes)
    : driver_(std::move(driver)),
      link_(options.link),
      depth_wanted_(options.queue_depth),
      max_io_bytes_(options.max_io_bytes),
      size_bytes_(size_bytes),
      mark_(mark_of(options.link)) {}

int Device::command(Control c, std::uint32_t id, void* memory, std::size_t bytes, std::uint64_t data) {
  uapi::ControlCommand out;
  out.dev_id = id;
  out.addr = reinterpret_cast<std::uint64_t>(memory);
  out.len = static_cast<std::uint16_t>(bytes);
  out.data[0] = data;
  bool only_encoded = c == Control::get_features || c == Control::del_dev_async;
  // Only the start may wait without end. The other commands end by themselves, and must not be interrupted.
  return driver_->control(encoded_ || only_encoded ? uapi::encoded(c) : uapi::plain(c), out,
                          c == Control::start_dev ? give_up : never_);
}

// Before 6.5 the driver lacks this command. It then has the plain command numbers, of all the features used
// here.
void Device::probe() {
  std::uint64_t features = 0;
  encoded_ = command(Control::get_features, uapi::any_device, &features, sizeof features) >= 0;
}

Status Device::add() {
  TL_TRY(driver_->open());
  probe();
  sweep();
  uapi::DeviceInfo info;
  info.queues = 1;
  info.queue_depth = static_cast<std::uint16_t>(depth_wanted_);
  info.max_io_bytes = max_io_bytes_;
  info.dev_id = uapi::any_device;
  info.server_flags = mark_;
  if (int outcome = command(Control::add_dev, uapi::any_device, &info, sizeof info); outcome < 0)
    return refused(Control::add_dev, outcome);
  id_ = info.dev_id;
  if (info.queues != 1 || info.queue_depth == 0 || info.queue_depth > depth_wanted_ ||
      info.max_io_bytes > max_io_bytes_)
    return fail(
        Errc::io,
        "ublk: the kernel's driver grants {} queues of {} requests of {} bytes; requested: 1 of {} of {}",
        info.queues, info.queue_depth, info.max_io_bytes, depth_wanted_, max_io_bytes_);
  depth = info.queue_depth;
  TL_TRY(set_params());
  return await_char();
}

uapi::Params Device::params() const {
  uapi::Params p;
  p.len = sizeof p;
  p.types = uapi::params_basic | uapi::params_discard;
  p.basic.attributes = uapi::attribute_volatile_cache | uapi::attribute_fua;
  p.basic
      .logical_block_shift = p.basic
                                 .physical_block_shift = p.basic
                                                             .io_min_shift = p.basic
                                                                                 .io_opt_shift = block_shift;
  p.basic.max_sectors = max_io_bytes_ >> sector_shift;
  p.basic.dev_sectors = size_bytes_ >> sector_shift;
  p.discard.granularity = 1u << block_shift;
  p.discard.max_discard_sectors = p.discard.max_write_zeroes_sectors = range_bytes_max >> sector_shift;
  p.discard.max_segments = 1;
  return p;
}

Status Device::set_params() {
  uapi::Params p = params();
  if (int outcome = command(Control::set_params, id_, &p, sizeof p); outcome < 0)
    return refused(Control::set_params, outcome);
  return {};
}

// devtmpfs has the node at once. On another /dev, udev makes it later.
Status Device::await_char() {
  for (int i = 0;; ++i) {
    auto opened = driver_->open_char(id_);
    if (opened) {
      char_device = std::move(*opened);
      return {};
    }
    // udev may have the device open.
    bool may_come = opened.error().code == Errc::not_found || opened.error().code == Errc::unavailable;
    if (!may_come || i == node_pauses || give_up) return std::unexpected(opened.error());
    driver_->pause();
  }
}

Status Device::start() {
  if (int outcome = command(Control::start_dev, id_, nullptr, 0, static_cast<std::uint64_t>(::getpid()));
      outcome < 0)
    return refused(Control::start_dev, outcome);
  std::string node = fmt::format("/dev/ublkb{}", id_);
  for (int i = 0; !driver_->has_node(node); ++i) {
    if (i == node_pauses || give_up)
      return fail(Errc::unavailable, "ublk: {} does not appear (devtmpfs or udev should make it)", node);
    driver_->pause();
  }
  path = std::move(node);
  return {};
}

// The exclusive open detects a mount. Other programs with the device open are found by a search of all
// processes; the driver would cut them off. Programs that read the device for a moment are waited for.
Status Device::await_unused() {
  for (int i = 0;; ++i) {
    std::string users = driver_->users(path);
    if (users.empty()) return {};
    if (i == user_pauses || give_up)
      return fail(Errc::unavailable, "{}: still in use by {}; it stays", path, users);
    driver_->pause();
  }
}

Status Device::stop(bool by_force) {
  if (id_ == uapi::any_device) return {};
  Fd claimed;  // keeps programs from mounting the device until it is gone
  if (!path.empty() && !by_force) {
    auto claim = driver_->claim(path);
    if (claim)
      claimed = std::move(*claim);
    else if (claim.error().code != Errc::not_found)
      return std::unexpected(claim.error());
    if (claimed) TL_TRY(await_unused());
  }
  int outcome = command(Control::stop_dev, id_);
  if (outcome < 0 && outcome != -ENODEV) return refused(Control::stop_dev, outcome);
  path.clear();
  return {};
}

void Device::remove(int pauses) {
  if (id_ == uapi::any_device) return;
  for (int i = 0; !try_remove(id_); ++i) {
    if (i < pauses) {
      driver_->pause();
      continue;
    }
    log_warning("ublk: device {} is dead and still in use; once it is free, the next device of {} removes it",
                id_, link_);
    break;
  }
  id_ = uapi::any_device;
}

// Removes a dead device. False: a program has its block device or its queue open.
bool Device::try_remove(std::uint32_t id) {
  // If another program has removed the device, the number may belong to a new device.
  uapi::DeviceInfo info;
  int known = command(Control::get_dev_info, id, &info, sizeof info);
  if (known == -ENODEV || (known >= 0 && info.server_flags != mark_)) return true;
  if (encoded_) {
    int outcome = command(Control::del_dev_async, id);
    if (outcome >= 0 || outcome == -ENODEV) return true;
  }
  uapi::Params p = params();
  int outcome = command(Control::set_params, id, &p, sizeof p);  // refused while the last block device
                                                                 // exists
  if (outcome == -ENODEV) return true;
  if (outcome < 0 || !driver_->open_char(id)) return false;
  outcome = command(Control::del_dev, id);
  return outcome >= 0 || outcome == -ENODEV;
}

void Device::sweep() {
  left_over = 0;
  for (unsigned id : driver_->devices()) {
    uapi::DeviceInfo info;
    if (id == id_ || command(Control::get_dev_info, id, &info, sizeof info) < 0 || info.server_flags != mark_)
      continue;
    // The device of a killed process stays for a while: the driver checks every 5 s whether it is still
    // served.
    bool dead = info.state == static_cast<std::uint16_t>(uapi::DeviceState::dead);
    if (dead && try_remove(id))
      log_warning("ublk: device {} removed; an earlier process left it behind", id);
    else
      ++left_over;
  }
}

}  // namespace twinloft::repl::ublk
