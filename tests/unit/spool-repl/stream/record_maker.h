// A stream that makes TLS records itself, as the kernel does for a TCP connection: for a kernel without TLS.
#pragma once

#include <openssl/evp.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/stream/stream.h"

namespace twinloft::repl::stream {

class RecordMaker final : public Stream {
 public:
  explicit RecordMaker(std::unique_ptr<Stream> below) : below_(std::move(below)) {}

  unsigned keys = 0;                 // taken so far
  unsigned keys_max = 1u << 30;      // further ones are refused
  std::vector<std::string> records;  // of other types than content: the type, then the content
  bool has_room = true;              // for records by write_record()

  void start(unsigned interest, Events events) override {
    events_ = std::move(events);
    wanted_ = interest;
    below_->start(interest, {[this](Status opened) { events_.opened(std::move(opened)); },
                             [this](unsigned ready) { on_ready(ready); }});
  }
  State state() const override { return below_->state(); }
  void want(unsigned interest) override {
    wanted_ = interest;
    watch();
  }
  void set_events(Events events) override { events_ = std::move(events); }
  Result<Got> read(std::span<const iovec> into) override { return below_->read(into); }
  Result<std::size_t> write(std::span<iovec> from) override {
    if (!key_) return below_->write(from);
    if (broken_) return std::unexpected(*broken_);
    std::size_t accepted = 0;
    for (iovec each : from) {
      while (each.iov_len > 0) {
        TL_TRY(flush());
        if (!unsent_.empty()) return watch(), accepted;
        const std::size_t n = std::min<std::size_t>(each.iov_len, 16 << 10);
        make(23, std::string_view(static_cast<const char*>(each.iov_base), n));
        each = {static_cast<char*>(each.iov_base) + n, each.iov_len - n};
        accepted += n;
      }
    }
    TL_TRY(flush());
    watch();
    return accepted;
  }
  void end_output() override {
    TL_CHECK_MSG(!key_, "it could overtake records");
    below_->end_output();
  }
  void close() override { below_->close(); }
  bool is_stuck() const override { return false; }
  bool seal_output(const RecordKey& key) override {
    if (keys == keys_max) return false;
    ++keys;
    key_ = key;
    number_ = 0;
    return true;
  }
  Result<bool> write_record(std::uint8_t type, std::span<const std::byte> content) override {
    TL_CHECK(key_);
    if (!has_room || !unsent_.empty()) return false;
    const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
    records.push_back(static_cast<char>(type) + std::string(text));
    make(type, text);
    TL_TRY(flush());
    watch();
    return true;
  }

 private:
  void on_ready(unsigned ready) {
    if (ready & writable) {
      if (Status sent = flush(); !sent) broken_ = sent.error(), unsent_.clear();
      watch();
    }
    if (unsigned told = ready & (wanted_ | readable))
      events_.ready(unsent_.empty() ? told : told & ~writable);
  }
  void watch() {
    if (below_->state() == State::open) below_->want(wanted_ | (unsent_.empty() ? 0 : unsigned{writable}));
  }
  Status flush() {
    while (!unsent_.empty()) {
      iovec all{unsent_.data(), unsent_.size()};
      TL_TRY_ASSIGN(std::size_t sent, below_->write({&all, 1}));
      if (sent == 0) break;
      unsent_.erase(0, sent);
    }
    return {};
  }
  // RFC 8446, 5.2 and 5.3.
  void make(std::uint8_t type, std::string_view content) {
    std::string plain = std::string(content) + static_cast<char>(type);
    const std::size_t bytes = plain.size() + 16;
    std::string record{23, 3, 3, static_cast<char>(bytes >> 8), static_cast<char>(bytes)};
    auto nonce = key_->iv;
    for (unsigned i = 0; i < 8; ++i) nonce[11 - i] ^= static_cast<unsigned char>(number_ >> (8 * i));
    ++number_;
    std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> work(EVP_CIPHER_CTX_new(),
                                                                    EVP_CIPHER_CTX_free);
    const bool aes = key_->cipher == RecordCipher::aes_128_gcm;
    std::string sealed(plain.size(), '\0'), tag(16, '\0');
    int n = 0;
    TL_CHECK(EVP_EncryptInit_ex(work.get(), aes ? EVP_aes_128_gcm() : EVP_chacha20_poly1305(), nullptr,
                                key_->key.data(), nonce.data()) == 1);
    TL_CHECK(EVP_EncryptUpdate(work.get(), nullptr, &n, bytes_of(record), 5) == 1);
    TL_CHECK(EVP_EncryptUpdate(work.get(), bytes_of(sealed), &n, bytes_of(plain),
                               static_cast<int>(plain.size())) == 1);
    TL_CHECK(EVP_EncryptFinal_ex(work.get(), bytes_of(sealed) + n, &n) == 1);
    TL_CHECK(EVP_CIPHER_CTX_ctrl(work.get(), EVP_CTRL_AEAD_GET_TAG, 16, tag.data()) == 1);
    unsent_ += record + sealed + tag;
  }
  static unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

  std::unique_ptr<Stream> below_;
  Events events_;
  unsigned wanted_ = 0;
  std::optional<RecordKey> key_;
  std::uint64_t number_ = 0;
  std::string unsent_;
  std::optional<Error> broken_;
};

}  // namespace twinloft::repl::stream
