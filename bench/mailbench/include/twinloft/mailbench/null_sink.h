// An LMTP or SMTP server that accepts everything and throws it away, in threads of this process. It shows
// what the generator can do when the server costs nearly nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::mailbench {

// The server's side of a connection, without I/O. It knows what mailbench sends, and nothing else.
class SinkSession {
 public:
  SinkSession() : output_("220 mailbench\r\n") {}
  void feed(std::string_view bytes);
  std::string& output() { return output_; }
  bool ended() const { return state_ == State::ended; }

 private:
  enum class State { command, data, chunk, ended };
  void on_command(std::string_view line);
  void take_data(std::string_view& bytes);
  void take_chunk(std::string_view& bytes);
  void end_message();

  State state_ = State::command;
  std::string line_, output_;
  std::string end_;  // of the data so far: its last four bytes
  bool lmtp_ = true, last_chunk_ = false;
  std::uint64_t recipients_ = 0, chunk_left_ = 0;
};

class NullSink {
 public:
  // directory: for the socket. Empty: it listens on a port of 127.0.0.1. Errors: of the operating system.
  static Result<std::unique_ptr<NullSink>> start(const std::string& directory, unsigned threads);
  ~NullSink();
  const std::string& address() const { return address_; }

 private:
  NullSink() = default;
  Status listen(const std::string& directory);
  void serve();

  Fd listener_, wakeup_;
  std::string address_, socket_path_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_{false};
};

}  // namespace twinloft::mailbench
