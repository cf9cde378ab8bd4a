// The negotiation of NBD, as a state machine without I/O: bytes of the client to bytes of the server.
//
// Fixed newstyle with EXPORT_NAME, ABORT, LIST, INFO, GO and STRUCTURED_REPLY, and STARTTLS where the server
// demands it (the specification's FORCEDTLS). Metadata contexts are refused by replies of the protocol. Each
// option gets one last reply. An option that is too long is skipped, and answered ERR_TOO_BIG. nbd_protocol.h
// names the specification.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/spool-repl/export/nbd_protocol.h"

namespace twinloft::repl::nbd {

// The exports of a server. Each function is called once for each option that needs it.
struct Exports {
  // The size in bytes of the export with this name. Nothing: no such export.
  std::function<std::optional<std::uint64_t>(std::string_view name)> find;
  std::function<std::vector<std::string>()> list;  // empty: LIST is refused by policy
};

class Handshake {
 public:
  enum class State {
    negotiating,
    starting_tls,  // once `out` is sent, TLS begins. Then call secured()
    transmission,  // the client has chosen an export
    finished,      // the client has asked to end: close the connection once `out` is sent
    broken,        // the client has violated the protocol: close the connection at once. why() is the reason
  };
  static constexpr std::size_t max_name_bytes = 4096;        // the specification's limit on strings
  static constexpr std::size_t max_option_bytes = 8192;      // longer options are skipped
  static constexpr std::size_t max_skipped_bytes = 1 << 20;  // longer options end the connection
  static constexpr unsigned max_options = 128;               // of a negotiation

  enum class Tls { none, required };
  // `exports` must outlive the handshake.
  explicit Handshake(const Exports& exports, Tls tls = Tls::none) : exports_(exports), tls_(tls) {}

  // Appends the greeting of the server, which is sent first.
  void greet(std::vector<std::byte>& out) const;
  // Removes bytes from the front of `in`, and appends replies to `out`. Bytes after the end of the
  // negotiation stay in `in`.
  void consume(ByteSpan& in, std::vector<std::byte>& out);
  // The bytes from now on come through TLS. What the client has chosen before is forgotten.
  void secured();

  State state() const { return state_; }
  bool structured_replies() const { return structured_; }
  const std::string& export_name() const { return name_; }  // valid in transmission
  std::string_view why() const { return why_; }

 private:
  enum class Stage { client_flags, option_header, option_data, skipping };

  bool gather(ByteSpan& in);
  void on_gathered(std::vector<std::byte>& out);
  void on_client_flags();
  void on_option_header();
  void on_option(std::vector<std::byte>& out);
  void on_export_name(std::vector<std::byte>& out);
  void on_list(std::vector<std::byte>& out);
  void on_starttls(std::vector<std::byte>& out);
  void on_info_or_go(std::vector<std::byte>& out);
  void reply(std::vector<std::byte>& out, OptionReply type, ByteSpan data = {}) const;
  void reply_error(std::vector<std::byte>& out, OptionReply type, std::string_view message) const;
  void expect(Stage stage, std::size_t bytes);
  void broken(std::string_view why);
  std::uint16_t transmission_flags() const;

  const Exports& exports_;
  Tls tls_;
  bool secured_ = false;
  State state_ = State::negotiating;
  Stage stage_ = Stage::client_flags;
  std::vector<std::byte> have_;
  std::size_t want_ = 4;
  Option option_ = Option::abort;
  std::size_t option_bytes_ = 0;
  std::size_t skip_ = 0;
  unsigned options_seen_ = 0;
  bool no_zeroes_ = false;
  bool structured_ = false;
  std::string name_;
  std::string_view why_;
};

}  // namespace twinloft::repl::nbd
