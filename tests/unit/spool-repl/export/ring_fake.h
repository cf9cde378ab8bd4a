// A kernel with a FUSE ring of two queues. The test sends requests and refuses commands.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "fuse/ring_kernel.h"

namespace twinloft::repl::fuse {

// Outlives the export, which owns the FakeRingKernel.
struct FakeRing {
  struct Commit {
    std::uint64_t tag = 0;
    uapi::CommandArea area{};
    fuse_out_header out{};
    std::vector<std::byte> payload;
  };

  std::mutex mutex;  // abort() comes from another thread
  Fd connection{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)}, ring{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::deque<std::vector<std::byte>> messages;  // of /dev/fuse
  std::vector<std::vector<std::byte>> replies;  // to /dev/fuse
  std::deque<RingCompletion> completions;
  std::map<std::uint64_t, uapi::RequestHeader*> headers;
  std::map<std::uint64_t, std::byte*> payloads;
  std::set<std::uint64_t> at_kernel;
  std::vector<Commit> commits;
  int register_result = 1;  // of every REGISTER; 1: waits for a request
  int submit_result = 0;
  unsigned aborts = 0;
  bool returns_entries = true;  // at the end of the connection

  static void raise(const Fd& event) {
    std::uint64_t one = 1;
    (void)!::write(event.get(), &one, sizeof one);
  }
  static void clear(const Fd& event) {
    std::uint64_t count = 0;
    (void)!::read(event.get(), &count, sizeof count);
  }
  void send(std::vector<std::byte> message) {
    std::lock_guard lock(mutex);
    messages.push_back(std::move(message));
    raise(connection);
  }
  void complete(std::uint64_t tag, int result) {
    std::lock_guard lock(mutex);
    at_kernel.erase(tag);
    completions.push_back({tag, result});
    raise(ring);
  }
  template <class In>
  void request(std::uint64_t tag, std::uint32_t opcode, std::uint64_t unique, const In& in,
               std::span<const std::byte> payload = {}) {
    fuse_in_header header{};
    header.opcode = opcode;
    header.unique = unique;
    std::memcpy(headers.at(tag)->in_out, &header, sizeof header);
    std::memcpy(headers.at(tag)->op_in, &in, sizeof in);
    headers.at(tag)->entry.commit_id = unique;
    headers.at(tag)->entry.payload_sz = static_cast<std::uint32_t>(payload.size());
    if (!payload.empty()) std::memcpy(payloads.at(tag), payload.data(), payload.size());
    complete(tag, 0);
  }
};

class FakeRingKernel final : public RingKernel {
 public:
  explicit FakeRingKernel(FakeRing& fake) : f_(fake) {}

  Result<unsigned> queues() const override { return 2u; }
  Status mount(const std::string&, std::uint32_t, struct stat&) override {
    struct {
      fuse_in_header header{};
      fuse_init_in in{};
    } first;
    first.header.opcode = FUSE_INIT;
    first.in.major = FUSE_KERNEL_VERSION;
    first.in.minor = uapi::minor_with_ring;
    first.in.flags = FUSE_INIT_EXT;
    first.in.flags2 = uapi::over_io_uring >> 32;
    auto bytes = std::as_bytes(std::span(&first, 1));
    f_.send({bytes.begin(), bytes.end()});
    return {};
  }
  dev_t device() const override { return 77; }
  Status unmount(const std::string&) override {
    end();
    return {};
  }
  void abort(const std::string&, bool) override {
    ++f_.aborts;
    end();
  }
  int connection_fd() const override { return f_.connection.get(); }
  ssize_t read(std::span<std::byte> out) override {
    std::lock_guard lock(f_.mutex);
    if (f_.messages.empty()) {
      FakeRing::clear(f_.connection);
      return ended_ ? -ENODEV : -EAGAIN;
    }
    auto message = std::move(f_.messages.front());
    f_.messages.pop_front();
    std::memcpy(out.data(), message.data(), message.size());
    return static_cast<ssize_t>(message.size());
  }
  int write(std::span<const iovec> parts) override {
    auto& reply = f_.replies.emplace_back();
    for (const iovec& part : parts) {
      auto* data = static_cast<const std::byte*>(part.iov_base);
      reply.insert(reply.end(), data, data + part.iov_len);
    }
    return 0;
  }
  Status open_ring(unsigned) override { return {}; }
  int ring_fd() const override { return f_.ring.get(); }
  void push(uapi::RingCommand command, std::uint64_t tag, const uapi::CommandArea& area,
            std::span<const iovec, 2> buffers) override {
    EXPECT_TRUE(f_.at_kernel.insert(tag).second) << "two commands of one entry";
    if (command == uapi::command_register) {
      f_.headers[tag] = static_cast<uapi::RequestHeader*>(buffers[0].iov_base);
      f_.payloads[tag] = static_cast<std::byte*>(buffers[1].iov_base);
      if (f_.register_result <= 0) f_.complete(tag, f_.register_result);
      return;
    }
    FakeRing::Commit commit{tag, area, {}, {}};
    std::memcpy(&commit.out, f_.headers[tag]->in_out, sizeof commit.out);
    commit.payload.assign(f_.payloads[tag], f_.payloads[tag] + f_.headers[tag]->entry.payload_sz);
    f_.commits.push_back(std::move(commit));
  }
  int submit() override { return f_.submit_result; }
  std::size_t reap(std::span<RingCompletion> out) override {
    std::lock_guard lock(f_.mutex);
    std::size_t n = 0;
    for (; n < out.size() && !f_.completions.empty(); ++n) {
      out[n] = f_.completions.front();
      f_.completions.pop_front();
    }
    if (f_.completions.empty()) FakeRing::clear(f_.ring);
    return n;
  }
  void wait(Duration) override { ::poll(nullptr, 0, 1); }

 private:
  void end() {
    std::set<std::uint64_t> left;
    {
      std::lock_guard lock(f_.mutex);
      ended_ = true;
      FakeRing::raise(f_.connection);
      if (f_.returns_entries) left = f_.at_kernel;
    }
    for (std::uint64_t tag : left) f_.complete(tag, -ENOTCONN);
  }

  FakeRing& f_;
  bool ended_ = false;
};

}  // namespace twinloft::repl::fuse
