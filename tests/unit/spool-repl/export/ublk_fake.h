// A ublk driver in memory that behaves like the kernel's: control commands, one queue for each device, and
// requests from the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "manual_target.h"
#include "twinloft/spool-repl/export/ublk_export.h"
#include "twinloft/spool-repl/io/uring_loop.h"
#include "ublk/driver.h"

namespace twinloft::repl::ublk {

// The side thread and the owner thread use it, so `mutex` guards everything.
class FakeDriver final : public Driver {
 public:
  struct Slot {
    bool fetched = false;  // the driver has the tag
    bool busy = false;     // a request is in flight
    std::uint64_t addr = 0;
    std::optional<int> result;    // the result of the last commit
    std::vector<std::byte> read;  // the data of the last commit of a read
    uapi::IoDescriptor descriptor;
  };
  struct DeviceModel {
    uapi::DeviceInfo info;
    uapi::Params params;
    std::vector<Slot> slots;
    std::deque<Completion> completions;
    int event = -1;  // the queue's eventfd, while there is a queue
    bool queue_open = false;
    bool block_open = false;  // another program has the block device open, for example mounted
  };

  // --- settings of the test
  bool present = true;
  bool knows_plain = true, knows_encoded = false, knows_del_async = false;
  std::map<uapi::Control, int> refuse;     // command -> errno
  int refuse_io = 0;                       // errno of every fetch
  int submit_errors = 0;                   // this number of submissions fails with EAGAIN
  std::optional<uapi::DeviceInfo> grants;  // granted instead of the requested values
  bool claimed_elsewhere = false;
  std::string used_by;
  bool nodes = true;
  bool hold_stop = false;  // STOP_DEV waits until the test continues it

  // --- results for the test
  std::mutex mutex;
  std::condition_variable changed;
  std::map<unsigned, DeviceModel> models;
  std::set<std::uint32_t> opcodes;
  unsigned starts_waiting = 0;
  unsigned pauses = 0;

  Status open() override {
    if (present) return {};
    return fail(Errc::unavailable, "no ublk here");
  }
  std::vector<unsigned> devices() override {
    std::lock_guard lock(mutex);
    std::vector<unsigned> ids;
    for (const auto& [id, model] : models) ids.push_back(id);
    return ids;
  }
  Result<Fd> open_char(unsigned id) override {
    std::lock_guard lock(mutex);
    if (!models.contains(id)) return fail(Errc::not_found, "ublkc{}", id);
    if (models[id].queue_open) return fail(Errc::unavailable, "ublkc{}", id);
    return Fd(::eventfd(id, EFD_CLOEXEC | EFD_NONBLOCK));  // the number in it tells open_queue() the device
  }
  bool has_node(const std::string&) override { return nodes; }
  Result<Fd> claim(const std::string& device) override {
    std::lock_guard lock(mutex);
    if (claimed_elsewhere) return fail(Errc::unavailable, "{}: still in use (mounted?); it stays", device);
    return Fd(::eventfd(0, EFD_CLOEXEC));
  }
  std::string users(const std::string&) override {
    std::lock_guard lock(mutex);
    return used_by;
  }
  void pause() override {
    std::unique_lock lock(mutex);
    ++pauses;
    changed.wait_for(lock, std::chrono::milliseconds(1));
  }

  int control(std::uint32_t op, const uapi::ControlCommand& c, const std::atomic<bool>& give_up) override {
    using uapi::Control;
    std::unique_lock lock(mutex);
    opcodes.insert(op);
    auto kind = decode(op);
    if (!kind) return -EOPNOTSUPP;
    if (auto found = refuse.find(*kind); found != refuse.end()) return -found->second;
    if (*kind == Control::get_features) return 0;
    if (*kind == Control::add_dev) return add(c);
    auto found = models.find(c.dev_id);
    if (found == models.end()) return -ENODEV;
    DeviceModel& model = found->second;
    switch (*kind) {
      case Control::get_dev_info:
        std::memcpy(reinterpret_cast<void*>(c.addr), &model.info, sizeof model.info);
        return 0;
      case Control::set_params:
        if (model.block_open) return -EACCES;
        std::memcpy(&model.params, reinterpret_cast<const void*>(c.addr), sizeof model.params);
        return c.len == sizeof model.params ? 0 : -EINVAL;
      case Control::start_dev:
        return start(lock, model, c, give_up);
      case Control::stop_dev:
        return stop(lock, model);
      case Control::del_dev:
        // The kernel would wait without end, with the whole driver locked.
        EXPECT_FALSE(model.block_open || model.queue_open) << "DEL_DEV of a device in use";
        return remove(found);
      case Control::del_dev_async:
        return remove(found);
      default:
        return -EOPNOTSUPP;
    }
  }

  Result<std::unique_ptr<Queue>> open_queue(Fd char_device, unsigned depth) override;

  // --- the kernel's side of I/O, for tests
  // A request on a tag that the driver has. data: that of a write.
  void request(unsigned id, unsigned tag, uapi::IoDescriptor d, ByteSpan data = {},
               int result = uapi::result_request) {
    std::lock_guard lock(mutex);
    Slot& slot = models.at(id).slots.at(tag);
    ASSERT_TRUE(slot.fetched) << "the driver does not have tag " << tag;
    if (!data.empty()) std::memcpy(reinterpret_cast<void*>(slot.addr), data.data(), data.size());
    slot.fetched = false;
    slot.busy = true;
    slot.result.reset();
    slot.descriptor = d;
    complete(models.at(id), {tag, result});
  }
  void complete_raw(unsigned id, Completion c) {
    std::lock_guard lock(mutex);
    complete(models.at(id), c);
  }
  // This includes a removed device.
  Slot slot(unsigned id, unsigned tag) {
    std::lock_guard lock(mutex);
    return (models.contains(id) ? models : removed_).at(id).slots.at(tag);
  }
  std::optional<int> result(unsigned id, unsigned tag) { return slot(id, tag).result; }
  bool exists(unsigned id) {
    std::lock_guard lock(mutex);
    return models.contains(id);
  }
  bool is_live(unsigned id) {
    std::lock_guard lock(mutex);
    return models.contains(id) &&
           models[id].info.state == static_cast<std::uint16_t>(uapi::DeviceState::live);
  }
  template <class Action>
  auto with(Action action) {
    std::lock_guard lock(mutex);
    auto out = action();
    changed.notify_all();
    return out;
  }
  // Another program stops the device, or a command is refused: the driver returns all tags.
  void abort_tags(unsigned id, int result = uapi::result_abort) {
    std::lock_guard lock(mutex);
    abort_tags(models.at(id), result);
  }

 private:
  friend class FakeQueue;
  std::map<unsigned, DeviceModel> removed_;

  std::optional<uapi::Control> decode(std::uint32_t op) const {
    using uapi::Control;
    for (Control c : {Control::get_dev_info, Control::add_dev, Control::del_dev, Control::start_dev,
                      Control::stop_dev, Control::set_params})
      if ((knows_plain && op == uapi::plain(c)) || (knows_encoded && op == uapi::encoded(c))) return c;
    if (knows_encoded && op == uapi::encoded(Control::get_features)) return Control::get_features;
    if (knows_del_async && op == uapi::encoded(Control::del_dev_async)) return Control::del_dev_async;
    return {};
  }
  int add(const uapi::ControlCommand& c) {
    uapi::DeviceInfo info;
    std::memcpy(&info, reinterpret_cast<const void*>(c.addr), sizeof info);
    if (c.queue_id != 0xffff || c.len < sizeof info || c.dev_id != info.dev_id ||
        info.dev_id != uapi::any_device)
      return -EINVAL;
    unsigned id = 0;
    while (models.contains(id)) ++id;
    if (grants) {
      grants->server_flags = info.server_flags;
      info = *grants;
    }
    info.dev_id = id;
    info.state = 0;
    info.pid = -1;
    DeviceModel& model = models[id];
    model.info = info;
    model.slots.resize(info.queue_depth);
    std::memcpy(reinterpret_cast<void*>(c.addr), &info, sizeof info);
    return 0;
  }
  int remove(std::map<unsigned, DeviceModel>::iterator found) {
    removed_[found->first] = std::move(found->second);
    models.erase(found);
    return 0;
  }
  int start(std::unique_lock<std::mutex>& lock, DeviceModel& model, const uapi::ControlCommand& c,
            const std::atomic<bool>& give_up) {
    if (c.data[0] == 0) return -EINVAL;
    ++starts_waiting;
    auto fetched = [&] {
      return std::all_of(model.slots.begin(), model.slots.end(), [](const Slot& s) { return s.fetched; });
    };
    while (!fetched() && !give_up) changed.wait_for(lock, std::chrono::milliseconds(1));
    --starts_waiting;
    if (!fetched()) return -EINTR;
    model.info.state = static_cast<std::uint16_t>(uapi::DeviceState::live);
    model.info.pid = static_cast<std::int32_t>(c.data[0]);
    return 0;
  }
  // Like del_gendisk(): waits for the requests in flight first.
  int stop(std::unique_lock<std::mutex>& lock, DeviceModel& model) {
    auto busy = [&] {
      return std::any_of(model.slots.begin(), model.slots.end(), [](const Slot& s) { return s.busy; });
    };
    while (hold_stop || (model.queue_open && busy())) changed.wait_for(lock, std::chrono::milliseconds(1));
    model.info.state = 0;
    model.info.pid = -1;
    abort_tags(model, uapi::result_abort);
    return 0;
  }
  void abort_tags(DeviceModel& model, int result) {
    for (std::size_t tag = 0; tag < model.slots.size(); ++tag)
      if (std::exchange(model.slots[tag].fetched, false)) complete(model, {tag, result});
  }
  void complete(DeviceModel& model, Completion c) {
    model.completions.push_back(c);
    std::uint64_t one = 1;
    if (model.event >= 0) {
      EXPECT_EQ(::write(model.event, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    }
  }
};

class FakeQueue final : public Queue {
 public:
  FakeQueue(FakeDriver& driver, unsigned id)
      : driver_(driver), id_(id), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    std::lock_guard lock(driver_.mutex);
    driver_.models.at(id).queue_open = true;
    driver_.models.at(id).event = event_.get();
  }
  ~FakeQueue() override {
    std::lock_guard lock(driver_.mutex);
    driver_.models.at(id_).queue_open = false;
    driver_.models.at(id_).event = -1;
    driver_.changed.notify_all();
  }
  int event_fd() const override { return event_.get(); }
  uapi::IoDescriptor descriptor(unsigned tag) const override {
    std::lock_guard lock(driver_.mutex);
    return driver_.models.at(id_).slots.at(tag).descriptor;
  }
  void push(std::uint32_t op, const uapi::IoCommand& c) override { pushed_.push_back({op, c}); }
  int submit() override {
    std::lock_guard lock(driver_.mutex);
    if (driver_.submit_errors > 0) {
      --driver_.submit_errors;
      return -EAGAIN;
    }
    for (const auto& [op, c] : std::exchange(pushed_, {})) issue(op, c);
    driver_.changed.notify_all();
    return 0;
  }
  std::size_t reap(std::span<Completion> out) override {
    std::lock_guard lock(driver_.mutex);
    auto& from = driver_.models.at(id_).completions;
    std::size_t n = std::min(out.size(), from.size());
    std::copy_n(from.begin(), n, out.begin());
    from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }

 private:
  void issue(std::uint32_t op, const uapi::IoCommand& c) {
    auto& model = driver_.models.at(id_);
    driver_.opcodes.insert(op);
    bool known_fetch = (driver_.knows_plain && op == uapi::plain(uapi::Io::fetch)) ||
                       (driver_.knows_encoded && op == uapi::encoded(uapi::Io::fetch));
    bool known_commit = (driver_.knows_plain && op == uapi::plain(uapi::Io::commit_and_fetch)) ||
                        (driver_.knows_encoded && op == uapi::encoded(uapi::Io::commit_and_fetch));
    ASSERT_LT(c.tag, model.slots.size());
    auto& slot = model.slots[c.tag];
    if (driver_.refuse_io != 0) return driver_.complete(model, {c.tag, -driver_.refuse_io});
    if (!known_fetch && !known_commit) return driver_.complete(model, {c.tag, -EINVAL});
    ASSERT_FALSE(slot.fetched) << "a tag is given twice";
    ASSERT_NE(c.addr, 0u);
    ASSERT_EQ(c.addr % 4096, 0u);
    ASSERT_EQ(known_commit, slot.busy) << "a commit without a request, or a fetch of a tag in use";
    if (known_commit) {
      slot.result = c.result;
      if (c.result > 0 && (slot.descriptor.op_flags & 0xff) == 0) {
        auto* at = reinterpret_cast<const std::byte*>(slot.addr);
        slot.read.assign(at, at + c.result);
      }
    }
    slot.busy = false;
    slot.fetched = true;
    slot.addr = c.addr;
  }

  FakeDriver& driver_;
  unsigned id_;
  Fd event_;
  std::vector<std::pair<std::uint32_t, uapi::IoCommand>> pushed_;
};

inline Result<std::unique_ptr<Queue>> FakeDriver::open_queue(Fd char_device, unsigned depth) {
  std::uint64_t id = 0;
  (void)!::read(char_device.get(), &id, sizeof id);  // fails for 0, since an eventfd of 0 cannot be read
  EXPECT_EQ(depth, models.at(static_cast<unsigned>(id)).info.queue_depth);
  return std::make_unique<FakeQueue>(*this, static_cast<unsigned>(id));
}

class UblkTest : public testing::Test {
 protected:
  static constexpr unsigned depth = 4;
  static constexpr std::uint32_t io_bytes = 64u << 10;

  void SetUp() override {
    const char* tmp = std::getenv("TMPDIR");
    where = std::string(tmp ? tmp : "/tmp") + "/tl-ublk-XXXXXX";
    ASSERT_NE(::mkdtemp(where.data()), nullptr);
    loop = io::UringLoop::create(clock, {.entries = 64}).value();
    side = std::make_unique<exports::SideThread>(*loop);
  }
  void TearDown() override {
    while (!target.waiting.empty()) target.complete_first(EIO);
    device.reset();
    side.reset();
    loop.reset();
    if (!where.empty()) std::filesystem::remove_all(where);
  }
  std::string link() const { return where + "/device"; }
  bool linked() const { return std::filesystem::is_symlink(std::filesystem::symlink_status(link())); }
  void start() {
    UblkOptions options;
    options.link = link();
    options.queue_depth = depth;
    options.max_io_bytes = io_bytes;
    ready.reset();
    device = UblkExport::start(*loop, target, *side, options, driver,
                               [this](Result<std::string> path) { ready = std::move(path); });
  }
  void start_and_wait() {
    start();
    run_until([&] { return ready.has_value(); });
  }
  void stop(std::optional<Status>& told) {
    device->stop([&told](Status s) { told = std::move(s); });
  }
  Status stop_and_wait() {
    std::optional<Status> told;
    stop(told);
    run_until([&] { return told.has_value(); });
    return told.value_or(Status());
  }
  template <class Predicate>
  void run_until(Predicate done) {
    for (int i = 0; !done(); ++i) {
      ASSERT_LT(i, 3000) << "the event does not happen";
      ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
    }
  }
  void settle() {
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(2)));
  }
  static uapi::IoDescriptor describe(uapi::Op op, std::uint64_t offset, std::uint64_t bytes,
                                     std::uint32_t flags = 0) {
    return {static_cast<std::uint32_t>(op) | flags, static_cast<std::uint32_t>(bytes / 512), offset / 512, 0};
  }
  // Makes one request, and returns its result.
  int io(uapi::IoDescriptor d, ByteSpan data = {}, unsigned tag = 0) {
    driver->request(id, tag, d, data);
    run_until([&] { return driver->result(id, tag).has_value(); });
    return driver->result(id, tag).value_or(-1);
  }

  std::string where;
  OsClock clock;
  exports::ManualTarget target{8u << 20, true};
  std::shared_ptr<FakeDriver> driver = std::make_shared<FakeDriver>();
  std::unique_ptr<io::UringLoop> loop;
  std::unique_ptr<exports::SideThread> side;
  std::unique_ptr<UblkExport> device;
  std::optional<Result<std::string>> ready;
  unsigned id = 0;
};

inline std::vector<std::byte> filled(std::size_t size, unsigned char value) {
  return std::vector<std::byte>(size, std::byte{value});
}

}  // namespace twinloft::repl::ublk
