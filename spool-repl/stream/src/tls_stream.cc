#include "twinloft/spool-repl/stream/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>

#include "sealed_output.h"
#include "tls_notes.h"
#include "tls_text.h"
#include "twinloft/base/check.h"
#include "twinloft/tls/names.h"

namespace twinloft::repl::stream {

namespace {

constexpr std::size_t record_bytes = 16 << 10;  // the largest content of a record (RFC 8446, 5.1)
constexpr std::size_t in_bytes_opening = 32 << 10, in_bytes = 256 << 10;
constexpr std::size_t room_min = 17 << 10;      // for one record
constexpr std::size_t out_kept_max = 1u << 20;  // memory of an empty buffer
constexpr std::size_t answers_max = 64 << 10;   // to changes of the key by the other side
constexpr std::size_t clear_text_shown = 4;
constexpr unsigned char handshake_record = 22, alert_record = 21;  // RFC 8446, 5.1

}  // namespace

// A BIO over the two buffers of a stream. OpenSSL makes no system calls.
struct TlsStream::Bio {
  static TlsStream& stream_of(BIO* bio) { return *static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int read(BIO* bio, char* to, std::size_t room, std::size_t* got) {
    TlsStream& s = stream_of(bio);
    BIO_clear_retry_flags(bio);
    *got = std::min(room, s.in_end_ - s.in_begin_);
    if (*got == 0) {
      if (!s.ended_below_) BIO_set_retry_read(bio);
      return 0;
    }
    std::memcpy(to, s.in_.data() + s.in_begin_, *got);
    s.in_begin_ += *got;
    return 1;
  }

  static int write(BIO* bio, const char* from, std::size_t bytes, std::size_t* done) {
    TlsStream& s = stream_of(bio);
    BIO_clear_retry_flags(bio);
    s.notes_->wrote = true;
    *done = bytes;
    if (s.sealed_) return 1;  // pass_on_notes() sends what it means
    const auto* begin = reinterpret_cast<const std::byte*>(from);
    s.out_.insert(s.out_.end(), begin, begin + bytes);
    return 1;
  }

  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return stream_of(bio).ended_below_;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static const BIO_METHOD* method() {
    static BIO_METHOD* made = [] {
      BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "twinloft stream");
      TL_CHECK(m && BIO_meth_set_read_ex(m, read) == 1 && BIO_meth_set_write_ex(m, write) == 1 &&
               BIO_meth_set_ctrl(m, control) == 1);
      return m;
    }();
    return made;
  }
};

TlsStream::TlsStream(ports::Loop& loop, std::unique_ptr<Stream> below,
                     std::shared_ptr<const TlsContext> context, Role role, Limits limits)
    : loop_(loop),
      below_(std::move(below)),
      context_(std::move(context)),
      limits_(limits),
      notes_(std::make_unique<TlsNotes>()),
      ssl_(SSL_new(context_->get()), SSL_free) {
  BIO* bio = BIO_new(Bio::method());
  TL_CHECK_MSG(ssl_ && bio, "no memory for a TLS connection");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  if (context_->records() == Records::below) give_notes(ssl_.get(), *notes_);
  role == Role::client ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
  in_.resize(in_bytes_opening);
}

TlsStream::~TlsStream() = default;

void TlsStream::start(unsigned interest, Events events) {
  events_ = std::move(events);
  wanted_ = interest;
  below_->start(readable, {[this](Status opened) {
                             if (!opened || begin_ == Begin::clear_text) {
                               state_ = below_->state();
                               return events_.opened(std::move(opened));
                             }
                             continue_handshake();
                           },
                           [this](unsigned ready) { on_ready(ready); }});
  if (begin_ == Begin::clear_text) {
    state_ = below_->state();
    return watch_below();
  }
  if (below_->state() != State::open) return;
  // A client speaks first. Not now, since the owner is not ready for an error.
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired() && state_ == State::opening && !broken_) continue_handshake();
  });
}

void TlsStream::secure() {
  TL_CHECK(begin_ == Begin::clear_text && state_ == State::open);
  begin_ = Begin::tls;
  state_ = State::opening;
  watch_below();
}

void TlsStream::watch_below() {
  if (below_->state() != State::open) return;
  if (begin_ == Begin::clear_text) return below_->want(wanted_);
  if (broken_) return below_->want(0);
  unsigned interest = state_ == State::opening ? unsigned{readable} : wanted_ & readable;
  if (unsent() > 0 || (sealed_ && full_ && (wanted_ & writable))) interest |= writable;
  below_->want(interest);
}

void TlsStream::want(unsigned interest) {
  bool reads_again = (interest & readable) && !(wanted_ & readable);
  wanted_ = interest;
  if (state_ != State::open) return;
  watch_below();
  if (begin_ == Begin::clear_text) return;
  const bool may_write = (wanted_ & writable) && has_room() && !(sealed_ && full_);
  if (may_write || (reads_again && more_)) call_again();
}

void TlsStream::on_ready(unsigned ready) {
  if (begin_ == Begin::clear_text) return events_.ready(ready);
  if (broken_ && state_ == State::opening) return;
  if (state_ == State::opening) return continue_handshake();
  unsigned all_sent = 0;
  if (ready & writable) {
    bool ends = ending_;
    if (Status sent = drain(); !sent) broken_ = sent.error();
    if (ends && !ending_) all_sent = wanted_ & writable;
    watch_below();
  }
  unsigned told = (ready & readable & wanted_) | all_sent;
  // The owner may want only one of them, and learns of the end by either.
  if (broken_) told |= readable | writable;
  if (full_ && has_room() && (!sealed_ || (ready & writable))) {
    full_ = false;
    told |= wanted_ & writable;
  }
  if (told && state_ == State::open) events_.ready(told);
}

// The owner is called in a later turn, for bytes or room that no event of the stream below announces. An
// owner that wants nothing then is called when it does.
void TlsStream::call_again() {
  if (std::exchange(again_, true)) return;
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    again_ = false;
    if (state_ == State::open && wanted_) events_.ready(wanted_);
  });
}

// ---- opening

void TlsStream::continue_handshake() {
  if (Status filled = fill(); !filled) return fail_opening(filled.error().message);
  if (!looks_like_tls())
    return fail_opening(fmt::format("the other side does not speak TLS: it begins with \"{}\"", clear_text_));
  ERR_clear_error();
  int done = SSL_do_handshake(ssl_.get());
  std::string why;
  if (done != 1 && SSL_get_error(ssl_.get(), done) != SSL_ERROR_WANT_READ)
    why = tls_failure(ssl_.get(), context_->has_certificate());
  else if (done != 1 && ended_below_)
    why = "the other side has closed the connection during the handshake of TLS";
  // Also after an error, so that the other side learns the reason.
  if (Status sent = drain(); !sent && why.empty()) why = sent.error().message;
  if (!why.empty()) return fail_opening(why);
  watch_below();
  if (done != 1) return;
  // With a key of both sides, this is the only proof that the other side has it.
  if (!context_->has_certificate() && SSL_session_reused(ssl_.get()) != 1)
    return fail_opening("the other side does not use the shared secret");
  state_ = State::open;
  in_.resize(in_bytes);
  seal_below();
  watch_below();
  more_ = true;  // there may be bytes behind the handshake
  call_again();
  events_.opened({});
}

void TlsStream::fail_opening(const std::string& why) {
  broken_ = Error{Errc::denied, why, 0};
  if (below_->state() == State::open) below_->want(0);
  events_.opened(fail(Errc::denied, "{}", why));
}

// By the first byte. Otherwise OpenSSL's error would be about a wrong version.
bool TlsStream::looks_like_tls() {
  std::size_t have = in_end_ - in_begin_;
  if (checked_ || have == 0) return true;
  auto at = [&](std::size_t i) { return std::to_integer<unsigned char>(in_[in_begin_ + i]); };
  checked_ = at(0) == handshake_record || at(0) == alert_record;
  if (checked_) return true;
  for (std::size_t i = 0; i < std::min(have, clear_text_shown); ++i)
    clear_text_ += at(i) >= 0x20 && at(i) < 0x7f ? static_cast<char>(at(i)) : '?';
  return false;
}

// ---- bytes

// One read of the stream below, if there is room.
Status TlsStream::fill() {
  if (in_begin_ > 0 && in_.size() - in_end_ < room_min) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  if (in_begin_ == in_end_) in_begin_ = in_end_ = 0;
  if (ended_below_ || in_.size() - in_end_ < room_min) return {};
  iovec room{in_.data() + in_end_, in_.size() - in_end_};
  TL_TRY_ASSIGN(Got got, below_->read({&room, 1}));
  in_end_ += got.bytes;
  ended_below_ = got.ended;
  return {};
}

std::size_t TlsStream::unsent() const {
  return out_.size() - out_begin_ + (sealed_ && sealed_->is_waiting() ? 1 : 0);
}

// For further bytes of the owner.
bool TlsStream::has_room() const {
  if (output_ended_) return false;
  return sealed_ ? !sealed_->is_waiting() : unsent() < limits_.unsent_bytes;
}

// No record of content has been sent yet, so the stream below begins with number 0.
void TlsStream::seal_below() {
  auto secret = unsent() == 0 ? secret_of_output(ssl_.get(), *notes_) : std::nullopt;
  notes_->wipe();
  if (secret) sealed_ = SealedOutput::begin(*below_, *secret, limits_.records_of_key);
}

// OpenSSL has made a record, which the other side cannot use: the stream below makes one like it. What is no
// alert is the answer to a change of the key that the other side has asked for. OpenSSL would make it at the
// next write.
void TlsStream::pass_on_notes() {
  if (!sealed_) return;
  if (SSL_get_key_update_type(ssl_.get()) != SSL_KEY_UPDATE_NONE &&
      SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
    (void)SSL_do_handshake(ssl_.get());
  if (!std::exchange(notes_->wrote, false)) return;
  if (notes_->alert_count == 0 && !output_ended_) sealed_->change_key();
  for (const TlsNotes::Alert& alert : std::span(notes_->alerts).first(notes_->alert_count))
    sealed_->alert(alert.level, alert.description);
  notes_->alert_count = 0;
}

Status TlsStream::drain() {
  if (sealed_) {
    TL_TRY(sealed_->push());
    // The other side learns of the end by the alert. shutdown(2) could overtake records in the kernel.
    if (!sealed_->is_waiting()) ending_ = false;
    return {};
  }
  if (unsent() > 0) {
    iovec all{out_.data() + out_begin_, unsent()};
    TL_TRY_ASSIGN(std::size_t sent, below_->write({&all, 1}));
    out_begin_ += sent;
  }
  if (unsent() > 0) return {};
  out_begin_ = 0;
  out_.clear();
  if (out_.capacity() > out_kept_max) out_ = {};
  if (std::exchange(ending_, false)) below_->end_output();
  return {};
}

std::unexpected<Error> TlsStream::failed() {
  return fail(Errc::io, "{}", tls_failure(ssl_.get(), context_->has_certificate()));
}

// Decrypts into one span. The count is smaller than the span if there is no more at present.
Result<std::size_t> TlsStream::decrypt(const iovec& into) {
  std::size_t all = 0;
  while (all < into.iov_len && !input_ended_) {
    std::size_t n = 0;
    ERR_clear_error();
    int done = SSL_read_ex(ssl_.get(), static_cast<char*>(into.iov_base) + all, into.iov_len - all, &n);
    all += n;
    if (done == 1) continue;
    int error = SSL_get_error(ssl_.get(), done);
    if (error == SSL_ERROR_WANT_READ) return all;
    // Also without the end of TLS (SSL_OP_IGNORE_UNEXPECTED_EOF): the protocol above ends its messages
    // itself.
    if (error != SSL_ERROR_ZERO_RETURN) return failed();
    input_ended_ = true;
  }
  return all;
}

Result<Stream::Got> TlsStream::read(std::span<const iovec> into) {
  if (begin_ == Begin::clear_text) return below_->read(into);
  if (broken_) return std::unexpected(*broken_);
  TL_TRY(fill());
  Got got;
  bool whole = true;
  for (const iovec& each : into) {
    auto n = decrypt(each);
    pass_on_notes();
    if (!n) return std::unexpected(std::move(n).error());
    got.bytes += *n;
    whole = *n == each.iov_len;
    if (!whole) break;
  }
  if (unsent() > 0) {  // an answer to a change of the key, or an alert
    if (Status sent = drain(); !sent && !input_ended_) return std::unexpected(sent.error());
    if (unsent() > limits_.unsent_bytes + answers_max)
      return fail(Errc::exhausted, "changes of the key are asked for, and the answers are not read");
    watch_below();
    if (full_ && has_room()) {
      full_ = false;
      if (wanted_ & writable) call_again();
    }
  }
  got.ended = input_ended_ && got.bytes == 0;
  more_ = whole || (input_ended_ && !got.ended);
  if (more_) call_again();
  return got;
}

Status TlsStream::encrypt(const void* data, std::size_t bytes) {
  if (records_ >= limits_.records_of_key) {
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return failed();
    records_ = 0;
  }
  std::size_t done = 0;
  ERR_clear_error();
  if (SSL_write_ex(ssl_.get(), data, bytes, &done) != 1 || done != bytes) return failed();
  ++records_;
  return {};
}

Status TlsStream::seal_part() {
  if (part_.empty()) return {};
  TL_TRY(encrypt(part_.data(), part_.size()));
  part_.clear();
  return {};
}

// As much of the bytes as there is room for. Small parts are collected into records of full size.
Result<std::size_t> TlsStream::accept(const iovec& from) {
  const auto* at = static_cast<const std::byte*>(from.iov_base);
  std::size_t done = 0;
  while (done < from.iov_len) {
    if (unsent() >= limits_.unsent_bytes) TL_TRY(drain());
    if (unsent() >= limits_.unsent_bytes) break;
    std::size_t n = std::min(from.iov_len - done, record_bytes - part_.size());
    if (n == record_bytes) {
      TL_TRY(encrypt(at + done, n));
    } else {
      part_.insert(part_.end(), at + done, at + done + n);
      if (part_.size() == record_bytes) TL_TRY(seal_part());
    }
    done += n;
  }
  return done;
}

Result<std::size_t> TlsStream::write(std::span<iovec> from) {
  if (begin_ == Begin::clear_text) return below_->write(from);
  if (broken_) return std::unexpected(*broken_);
  if (sealed_) return write_sealed(from);
  std::size_t accepted = 0;
  full_ = false;
  for (const iovec& each : from) {
    TL_TRY_ASSIGN(std::size_t n, accept(each));
    accepted += n;
    full_ = n < each.iov_len;
    if (full_) break;
  }
  TL_TRY(seal_part());
  TL_TRY(drain());
  watch_below();
  return accepted;
}

Result<std::size_t> TlsStream::write_sealed(std::span<iovec> from) {
  if (output_ended_) return fail(Errc::io, "the output has ended");
  std::size_t all = 0;
  for (const iovec& each : from) all += each.iov_len;
  TL_TRY_ASSIGN(std::size_t accepted, sealed_->write(from));
  full_ = accepted < all;
  watch_below();
  return accepted;
}

void TlsStream::say_the_end() {
  (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
  pass_on_notes();
}

void TlsStream::end_output() {
  if (begin_ == Begin::clear_text) return below_->end_output();
  if (state_ != State::open || std::exchange(output_ended_, true)) return;
  say_the_end();
  ending_ = true;
  if (Status sent = drain(); !sent) broken_ = sent.error();
  watch_below();
}

void TlsStream::close() {
  if (state_ == State::closed) return;
  if (state_ == State::open && begin_ == Begin::tls && !broken_) {
    say_the_end();
    (void)drain();
  }
  state_ = State::closed;
  below_->close();
}

// ---- who the other side is

bool TlsStream::peer_has_name(const std::string& name) const {
  X509* certificate = SSL_get0_peer_certificate(ssl_.get());
  if (!certificate) return false;
  if (name.find(':') == std::string::npos) return twinloft::tls::is_for_host(certificate, name);
  auto uris = twinloft::tls::uris_of(certificate);
  return std::find(uris.begin(), uris.end(), name) != uris.end() ||
         twinloft::tls::is_for_address(certificate, name);  // of IPv6
}

std::string TlsStream::peer_names() const {
  X509* certificate = SSL_get0_peer_certificate(ssl_.get());
  if (!certificate) return "";
  auto names = twinloft::tls::uris_of(certificate);
  for (std::string& host : twinloft::tls::hosts_of(certificate)) names.push_back(std::move(host));
  if (names.empty()) names.push_back(twinloft::tls::common_name_of(X509_get_subject_name(certificate)));
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

std::optional<std::int64_t> TlsStream::peer_expires() const {
  X509* certificate = SSL_get0_peer_certificate(ssl_.get());
  if (!certificate) return std::nullopt;
  return twinloft::tls::seconds_of(X509_get0_notAfter(certificate));
}

}  // namespace twinloft::repl::stream
