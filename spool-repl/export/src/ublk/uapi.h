// The interface of the kernel's ublk driver: commands, structures, flags.
//
// Source: include/uapi/linux/ublk_cmd.h and Documentation/block/ublk.rst of Linux. The definitions are
// repeated here, since the headers of a distribution may be older than the running kernel (those of Debian 12
// are of 6.1). The layouts are those of 6.0, the first driver. Later kernels use fields that were reserved.
//
// Commands are io_uring's URING_CMD entries of 128 bytes. The first drivers use plain numbers. Since 6.4,
// commands are encoded as ioctl numbers, and a kernel may lack the plain numbers.
#pragma once

#include <asm/ioctl.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace twinloft::repl::ublk::uapi {

// Commands to /dev/ublk-control.
enum class Control : std::uint8_t {
  get_dev_info = 0x02,
  add_dev = 0x04,
  del_dev = 0x05,
  start_dev = 0x06,
  stop_dev = 0x07,
  set_params = 0x08,
  get_features = 0x13,   // encoded only; 6.5
  del_dev_async = 0x14,  // encoded only; 6.9
};

// Commands to /dev/ublkcN.
enum class Io : std::uint8_t {
  fetch = 0x20,             // gives a tag to the driver: its completion brings a request
  commit_and_fetch = 0x21,  // ends the request of a tag, and gives the tag back
};

struct ControlCommand {
  std::uint32_t dev_id = 0;
  std::uint16_t queue_id = 0xffff;  // none
  std::uint16_t len = 0;            // bytes at `addr`
  std::uint64_t addr = 0;
  std::uint64_t data[2] = {};
};
static_assert(sizeof(ControlCommand) == 32);

struct IoCommand {
  std::uint16_t queue_id = 0;
  std::uint16_t tag = 0;
  std::int32_t result = 0;  // of commit: bytes of a read or write, 0 for the rest, -errno
  std::uint64_t addr = 0;   // memory for the data of the next request of this tag
};
static_assert(sizeof(IoCommand) == 16);

// Both commands fit into their place in io_uring's entry of 128 bytes.
inline constexpr std::size_t command_bytes_max = 80;
static_assert(sizeof(ControlCommand) <= command_bytes_max && sizeof(IoCommand) <= command_bytes_max);

constexpr std::uint32_t plain(Control c) {
  return static_cast<std::uint32_t>(c);
}
constexpr std::uint32_t plain(Io c) {
  return static_cast<std::uint32_t>(c);
}
constexpr std::uint32_t encoded(Control c) {
  bool reads_only = c == Control::get_dev_info || c == Control::get_features || c == Control::del_dev_async;
  return _IOC(reads_only ? _IOC_READ : _IOC_READ | _IOC_WRITE, 'u', plain(c), sizeof(ControlCommand));
}
constexpr std::uint32_t encoded(Io c) {
  return _IOC(_IOC_READ | _IOC_WRITE, 'u', plain(c), sizeof(IoCommand));
}

// Completions of Io commands: a request has arrived, or the tag is no longer at the driver.
inline constexpr int result_request = 0;
inline constexpr int result_abort = -ENODEV;

inline constexpr std::uint32_t any_device = 0xffffffff;  // of add_dev: the driver chooses the number
inline constexpr unsigned queue_depth_max = 4096;

enum class DeviceState : std::uint16_t { dead = 0, live = 1, quiesced = 2 };

struct DeviceInfo {
  std::uint16_t queues = 0;
  std::uint16_t queue_depth = 0;
  std::uint16_t state = 0;  // DeviceState; later kernels have more
  std::uint16_t pad0 = 0;
  std::uint32_t max_io_bytes = 0;
  std::uint32_t dev_id = 0;
  std::int32_t pid = 0;  // the server process; -1: none
  std::uint32_t pad1 = 0;
  std::uint64_t flags = 0;         // features: requested, then granted
  std::uint64_t server_flags = 0;  // stored by the driver, and not used
  std::uint32_t owner_uid = 0;
  std::uint32_t owner_gid = 0;
  std::uint64_t reserved1 = 0;
  std::uint64_t reserved2 = 0;
};
static_assert(sizeof(DeviceInfo) == 64);

inline constexpr std::uint32_t attribute_volatile_cache = 1u << 2;
inline constexpr std::uint32_t attribute_fua = 1u << 3;

struct BasicParams {
  std::uint32_t attributes = 0;
  std::uint8_t logical_block_shift = 0;
  std::uint8_t physical_block_shift = 0;
  std::uint8_t io_opt_shift = 0;
  std::uint8_t io_min_shift = 0;
  std::uint32_t max_sectors = 0;
  std::uint32_t chunk_sectors = 0;
  std::uint64_t dev_sectors = 0;
  std::uint64_t virt_boundary_mask = 0;
};
static_assert(sizeof(BasicParams) == 32);

struct DiscardParams {
  std::uint32_t alignment = 0;
  std::uint32_t granularity = 0;
  std::uint32_t max_discard_sectors = 0;
  std::uint32_t max_write_zeroes_sectors = 0;
  std::uint16_t max_segments = 0;
  std::uint16_t reserved = 0;
};
static_assert(sizeof(DiscardParams) == 20);

inline constexpr std::uint32_t params_basic = 1u << 0;
inline constexpr std::uint32_t params_discard = 1u << 1;

// Shorter than in later kernels, which use `len`.
struct Params {
  std::uint32_t len = 0;
  std::uint32_t types = 0;
  BasicParams basic;
  DiscardParams discard;
  std::uint32_t pad = 0;
};
static_assert(offsetof(Params, basic) == 8 && offsetof(Params, discard) == 40 && sizeof(Params) == 64);

enum class Op : std::uint8_t {
  read = 0,
  write = 1,
  flush = 2,
  discard = 3,
  write_same = 4,
  write_zeroes = 5
};
inline constexpr std::uint32_t flag_fua = 1u << 13;

// The driver's description of a request, one for each tag, in memory that the server maps from /dev/ublkcN.
struct IoDescriptor {
  std::uint32_t op_flags = 0;  // Op in the lowest 8 bits
  std::uint32_t sectors = 0;   // of 512 bytes
  std::uint64_t start_sector = 0;
  std::uint64_t addr = 0;
};
static_assert(sizeof(IoDescriptor) == 24);

}  // namespace twinloft::repl::ublk::uapi
