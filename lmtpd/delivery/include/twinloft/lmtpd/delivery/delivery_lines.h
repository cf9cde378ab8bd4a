// A log line for each delivery, written by a separate thread, so that a slow log does not delay a reply. If
// the queue is full, lines are dropped and counted, and the count is logged.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// "mx.example.net[192.0.2.9] as 4XyZ", which identifies the message in the MTA's log.
std::string origin_text(const Origin& origin);

struct DeliveryLine {
  std::string id;
  std::string from;
  std::string to;
  std::string user;
  std::string agent;       // or "next hop NAME"
  std::string client;      // the client's address
  std::string origin;      // from XFORWARD; may be empty
  std::uint64_t size = 0;  // of the message as received
  DeliveryOutcome outcome;
  Duration took{};
};

// The line of a delivery that ended after `took`.
DeliveryLine line_of(const Envelope& envelope, const Recipient& recipient, std::string agent,
                     const MessageBody& body, DeliveryOutcome outcome, Duration took);

class DeliveryLines {
 public:
  DeliveryLines();
  ~DeliveryLines();  // writes the queued lines
  DeliveryLines(const DeliveryLines&) = delete;
  DeliveryLines& operator=(const DeliveryLines&) = delete;
  // The line is written some milliseconds later. A process that a failed check ends may lose it.
  void put(DeliveryLine line);
  // Waits until the log has the lines of all put() calls, for a second at most. Before an end without
  // destructors.
  void settle();

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable changed_, written_;
  std::deque<DeliveryLine> queue_;
  std::uint64_t dropped_ = 0;
  bool stopping_ = false;
  bool resting_ = false;  // the thread looks again by itself
  bool writing_ = false;  // the thread has lines that are not in the queue
  bool hurried_ = false;  // the thread rests no more
  std::thread thread_;
};

}  // namespace twinloft::lmtpd
