// A log in memory, which fails where a test requests it, and what a replay of it would do.
#pragma once

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "twinloft/intake_log/group.h"
#include "twinloft/intake_log/mark.h"
#include "twinloft/lmtpd/intake/log_core.h"
#include "twinloft/lmtpd/intake/log_directory.h"

namespace twinloft::lmtpd::test {

using FileNames = std::set<std::string>;

inline const Uuid log_incarnation = Uuid::parse("5a64ab35-4699-4b8c-8bd4-683fee16b378").value();

// The newest groups of a log that are needed, in their order.
inline std::vector<intake_log::Group> chain_of(const std::vector<LogBuffer>& segments,
                                               const Uuid& incarnation) {
  std::map<std::uint64_t, intake_log::Group> all;
  for (std::uint32_t i = 0; i < segments.size(); ++i) {
    const ByteSpan bytes = segments[i].bytes();
    for (std::uint64_t at = 0; at < bytes.size(); at += log_block_bytes) {
      auto block = intake_log::look_at_block(bytes.subspan(at), incarnation, {i, at});
      if (block.kind != intake_log::BlockKind::group || block.header.bytes > bytes.size() - at) continue;
      auto group = intake_log::decode_group(bytes.subspan(at, block.header.bytes));
      if (group) all[block.header.number] = *std::move(group);
    }
  }
  std::vector<intake_log::Group> out;
  if (all.empty()) return out;
  for (std::uint64_t n = all.rbegin()->second.header.oldest_number; n <= all.rbegin()->first; ++n)
    out.push_back(all.at(n));
  return out;
}

// The names of files that a replay on a fresh mount would deliver if no Maildir had them.
inline std::set<std::string> replay_of(const std::vector<LogBuffer>& segments, ByteSpan mark_bytes,
                                       const Uuid& incarnation) {
  auto mark = intake_log::Mark::decode(mark_bytes, incarnation).value();
  std::map<std::uint64_t, std::string> found;
  std::uint64_t retired = 0;
  for (const intake_log::Group& group : chain_of(segments, incarnation)) {
    retired = group.header.retired;
    for (const intake_log::Record& record : group.records) {
      if (auto* cancel = std::get_if<intake_log::CancelRecord>(&record)) found.erase(cancel->entry);
      if (auto* message = std::get_if<intake_log::MessageRecord>(&record))
        for (std::uint64_t entry = message->first_entry; const intake_log::EntryName& name : message->names)
          found[entry++] = name.name;
    }
  }
  std::set<std::string> out;
  for (const auto& [entry, name] : found)
    if (entry >= retired && !mark.is_settled(entry)) out.insert(name);
  return out;
}

// Fails, and holds, the operations of other files.
class FaultyLogFiles : public LogFiles {
 public:
  enum class Op { append, mark, sync, failure };

  void fail(Op op, bool on = true) {
    std::lock_guard lock(mutex_);
    if (on)
      failing_.insert(op);
    else
      failing_.erase(op);
  }
  void fail_with(int sys) {
    std::lock_guard lock(mutex_);
    errno_ = sys;
  }
  // The next calls wait.
  void hold(Op op) {
    std::lock_guard lock(mutex_);
    held_ = op;
  }
  void release() {
    std::lock_guard lock(mutex_);
    held_.reset();
    changed_.notify_all();
  }
  void wait_for_held(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  std::vector<std::string> calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  std::size_t count(const std::string& call) const {
    const auto all = calls();
    return static_cast<std::size_t>(std::ranges::count(all, call));
  }
  void clear() {
    std::lock_guard lock(mutex_);
    calls_.clear();
  }

 protected:
  Status step(Op op, const char* name) {
    std::unique_lock lock(mutex_);
    calls_.emplace_back(name);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return held_ != op; });
    --waiting_;
    if (failing_.contains(op)) return fail_errno(errno_, "injected failure of {}", name);
    return {};
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<Op> failing_;
  int errno_ = EIO;
  std::optional<Op> held_;
  std::size_t waiting_ = 0;
  std::vector<std::string> calls_;
};

class FakeLogFiles final : public FaultyLogFiles {
 public:
  explicit FakeLogFiles(const LogShape& shape)
      : shape_(shape), mark_(intake_log::Mark(log_incarnation).encode()) {
    for (std::uint32_t i = 0; i < shape.segments; ++i) segments_.emplace_back(shape.segment_bytes);
  }
  LogShape shape() const override { return shape_; }
  // A failed append has written the first block.
  Status append(std::uint32_t segment, std::uint64_t offset, ByteSpan group) override {
    Status done = step(Op::append, "append");
    std::memcpy(segments_[segment].bytes().data() + offset, group.data(),
                done ? group.size() : log_block_bytes);
    return done;
  }
  Status set_mark(ByteSpan mark) override {
    TL_TRY(step(Op::mark, "mark"));
    mark_.assign(mark.begin(), mark.end());
    return {};
  }
  Status sync() override { return step(Op::sync, "sync"); }
  Status set_failure(std::string_view) override { return step(Op::failure, "failure"); }

  std::set<std::string> replayed() const { return replay_of(segments_, mark_, log_incarnation); }
  std::vector<intake_log::Group> chain() const { return chain_of(segments_, log_incarnation); }

 private:
  const LogShape shape_;
  std::vector<LogBuffer> segments_;
  std::vector<std::byte> mark_;
};

// The files of an open log, with failures.
class FaultyDirectory final : public FaultyLogFiles {
 public:
  explicit FaultyDirectory(LogDirectory& files) : files_(files) {}
  LogShape shape() const override { return files_.shape(); }
  Status append(std::uint32_t segment, std::uint64_t offset, ByteSpan group) override {
    TL_TRY(step(Op::append, "append"));
    return files_.append(segment, offset, group);
  }
  Status set_mark(ByteSpan mark) override {
    TL_TRY(step(Op::mark, "mark"));
    return files_.set_mark(mark);
  }
  Status sync() override {
    TL_TRY(step(Op::sync, "sync"));
    return files_.sync();
  }
  Status set_failure(std::string_view why) override {
    TL_TRY(step(Op::failure, "failure"));
    return files_.set_failure(why);
  }

 private:
  LogDirectory& files_;
};

}  // namespace twinloft::lmtpd::test
