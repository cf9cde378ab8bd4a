// TLS 1.3 over another stream, by OpenSSL.
//
// Opening is that of the stream below, and the handshake. A client's handshake ends before the server has
// judged the client's certificate: the refusal comes as an error of the first read().
//
// Many small writes become few records, and one call of the stream below. The key of the output changes
// (KeyUpdate) long before it has protected as many records as AES-GCM allows (RFC 8446, 5.5).
//
// If the stream below makes the records of the output (Records::below), OpenSSL only receives after the
// handshake.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/spool-repl/ports/loop.h"
#include "twinloft/spool-repl/stream/stream.h"
#include "twinloft/spool-repl/stream/tls_context.h"

struct ssl_st;
struct bio_method_st;

namespace twinloft::repl::stream {

class SealedOutput;
struct TlsNotes;

class TlsStream final : public Stream {
 public:
  enum class Role { client, server };
  // clear_text: bytes pass as they are until secure() is called, as before the STARTTLS of a protocol.
  enum class Begin { tls, clear_text };
  struct Limits {
    std::uint64_t records_of_key = 1u << 22;  // RFC 8446 allows 2^24.5
    std::size_t unsent_bytes = 512 << 10;     // with more, write() accepts nothing
  };

  TlsStream(ports::Loop& loop, std::unique_ptr<Stream> below, std::shared_ptr<const TlsContext> context,
            Role role, Limits limits);
  TlsStream(ports::Loop& loop, std::unique_ptr<Stream> below, std::shared_ptr<const TlsContext> context,
            Role role)
      : TlsStream(loop, std::move(below), std::move(context), role, Limits()) {}
  // A server that begins in clear text.
  TlsStream(ports::Loop& loop, std::unique_ptr<Stream> below, std::shared_ptr<const TlsContext> context)
      : TlsStream(loop, std::move(below), std::move(context), Role::server, Limits()) {
    begin_ = Begin::clear_text;
  }
  ~TlsStream() override;

  // Begins TLS: the state is `opening` again, and `opened` is called at its end. Call it once all accepted
  // bytes are sent, which write() shows by accepting everything.
  void secure();

  void start(unsigned interest, Events events) override;
  State state() const override { return state_; }
  void want(unsigned interest) override;
  void set_events(Events events) override { events_ = std::move(events); }
  Result<Got> read(std::span<const iovec> into) override;
  Result<std::size_t> write(std::span<iovec> from) override;
  void end_output() override;
  void close() override;
  bool is_stuck() const override { return below_->is_stuck(); }
  std::optional<LineState> line() const override { return below_->line(); }
  bool has_unsent() const override { return !broken_ && unsent() > 0; }
  // Whether the stream below makes the records of the output.
  bool is_sealed_below() const { return sealed_ != nullptr; }

  // The names in the other side's certificate, which is valid. After the opening. `name` begins with a scheme
  // and ":", then it is a URI; else it is a host.
  bool peer_has_name(const std::string& name) const;
  std::string peer_names() const;                    // for people; empty: no certificate
  std::optional<std::int64_t> peer_expires() const;  // seconds since 1970
  // The first bytes of the other side, which were not TLS. Empty: they were.
  const std::string& clear_text() const { return clear_text_; }

 private:
  struct Bio;  // what OpenSSL calls
  using Ssl = std::unique_ptr<ssl_st, void (*)(ssl_st*)>;
  void on_ready(unsigned ready);
  void continue_handshake();
  void fail_opening(const std::string& why);
  bool looks_like_tls();
  Status fill();
  Status drain();
  void seal_below();
  void pass_on_notes();
  bool has_room() const;
  Status encrypt(const void* data, std::size_t bytes);
  Status seal_part();
  Result<std::size_t> accept(const iovec& from);
  Result<std::size_t> write_sealed(std::span<iovec> from);
  void say_the_end();
  Result<std::size_t> decrypt(const iovec& into);
  void watch_below();
  void call_again();
  std::size_t unsent() const;
  std::unexpected<Error> failed();

  ports::Loop& loop_;
  std::unique_ptr<Stream> below_;
  std::shared_ptr<const TlsContext> context_;
  Limits limits_;
  std::unique_ptr<TlsNotes> notes_;
  std::unique_ptr<SealedOutput> sealed_;  // null: OpenSSL makes the records
  Ssl ssl_;
  State state_ = State::opening;
  Begin begin_ = Begin::tls;  // clear_text: now
  Events events_;
  unsigned wanted_ = 0;
  std::vector<std::byte> in_, out_, part_;  // encrypted; encrypted; clear text of the next record
  std::size_t in_begin_ = 0, in_end_ = 0, out_begin_ = 0;
  std::uint64_t records_ = 0;                       // of the present key
  bool ended_below_ = false, input_ended_ = false;  // the stream below; that of TLS
  bool more_ = false;  // there may be clear text, or an end, that the owner has not read
  bool output_ended_ = false;
  bool ending_ = false, full_ = false, checked_ = false, again_ = false;
  std::optional<Error> broken_;  // the stream below has failed
  std::string clear_text_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace twinloft::repl::stream
