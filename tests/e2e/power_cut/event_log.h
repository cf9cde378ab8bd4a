// The requests to a disk with a volatile cache, in the order of requests and answers.
//
// power_disk writes the log, power_images reads it. Each event is a fixed header, and the bytes of a `write`
// follow it. There is one writer, on the same machine: the structure is stored as it is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::power {

enum class EventKind : std::uint8_t {
  name,        // name of `file`, which follows
  write,       // arrived: from now on any part of the write may be on the medium
  zeros,       // the same for a punched or zeroed range
  done,        // the write or zeros with this id was answered
  sync_begin,  // a sync arrived: it covers writes that were answered before
  sync_done,   // the sync was answered
  resize,      // the file has `length` bytes
};

enum EventFlags : std::uint8_t { durable_when_done = 1 };  // O_DSYNC

struct Event {
  EventKind kind = EventKind::name;
  std::uint8_t flags = 0;
  std::uint16_t file = 0;
  std::uint32_t reserved = 0;
  std::uint64_t id = 0;  // of write, zeros and sync; their answers repeat it
  std::uint64_t offset = 0, length = 0;
  std::int64_t at_ns = 0;  // CLOCK_BOOTTIME, for people who read the log; no test depends on it
};

class EventWriter {
 public:
  static Result<EventWriter> create(const std::string& path);
  // Appends through a buffer; `bytes` follow the header.
  Status append(const Event& event, ByteSpan bytes = {});
  Status flush();

 private:
  explicit EventWriter(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
  std::vector<std::byte> buffer_;
};

// The log in memory: events in order, with their bytes.
class EventReader {
 public:
  static Result<EventReader> open(const std::string& path);
  EventReader(EventReader&&) noexcept;
  EventReader(const EventReader&) = delete;
  ~EventReader();

  struct Item {
    Event event;
    ByteSpan bytes;  // in the log's memory
  };
  bool next(Item& item);  // false at the end, or if the last event is incomplete
  std::uint64_t position() const { return at_; }
  void rewind() { at_ = 0; }

 private:
  EventReader() = default;
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
  std::size_t at_ = 0;
};

}  // namespace twinloft::power
