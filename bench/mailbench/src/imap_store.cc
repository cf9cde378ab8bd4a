// The mailboxes of the accounts' recipients, through IMAP.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "store.h"
#include "twinloft/mailbench/imap_client.h"
#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {

namespace {

constexpr std::size_t kConnections = 4;

class ImapStore final : public Store {
 public:
  ImapStore(const VerifyOptions& options, const Expectations& expected, Endpoint endpoint,
            std::optional<TlsContext> tls)
      : options_(options), expected_(expected), endpoint_(std::move(endpoint)), tls_(std::move(tls)) {}

  Status read(const Take& take) override {
    places_.clear();
    next_ = 0;
    failed_ = {};
    std::vector<std::thread> more;
    for (std::size_t i = 1; i < threads(); ++i) more.emplace_back([&, i] { read_users(i, take); });
    read_users(0, take);
    for (std::thread& thread : more) thread.join();
    return failed_;
  }

  std::size_t threads() const override { return options_.threads != 0 ? options_.threads : kConnections; }
  std::string place(std::uint32_t id) const override { return places_[id]; }
  std::uint64_t count() const override { return places_.size(); }

 private:
  void read_users(std::size_t thread, const Take& take) {
    for (;;) {
      std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= expected_.recipients.size()) return;
      auto read = read_user(thread, static_cast<std::uint32_t>(index), take);
      if (read) continue;
      std::scoped_lock lock(mutex_);
      if (failed_)
        failed_ = fail(read.error().code, "{}, mailboxes of {}: {}", options_.imap,
                       expected_.recipients[index], read.error().message);
      next_ = expected_.recipients.size();
    }
  }

  Status read_user(std::size_t thread, std::uint32_t recipient, const Take& take) {
    const std::string& address = expected_.recipients[recipient];
    TL_TRY_ASSIGN(ImapClient client,
                  ImapClient::connect(endpoint_, options_.imap_security, tls_ ? &*tls_ : nullptr));
    Status login = client.login(address_by_format(options_.imap_user_format, address),
                                options_.imap_password);
    // The server refused all mail for this recipient, perhaps because there is no such user.
    if (!login && !expected_.may_have_mail[recipient]) return {};
    TL_TRY(login);
    TL_TRY_ASSIGN(std::vector<std::string> mailboxes, client.mailboxes());
    for (const std::string& mailbox : mailboxes) {
      auto message = [&](std::uint64_t number, std::string_view text) {
        StoredText out;
        out.id = add_place(fmt::format("{}: {}, message {}", address, mailbox, number));
        out.text = text;
        out.owner_known = true;
        out.owner = recipient;
        out.owner_name = address;
        take(thread, out);
      };
      TL_TRY(client.read_mailbox(mailbox, message));
    }
    client.logout();
    return {};
  }

  std::uint32_t add_place(std::string place) {
    std::scoped_lock lock(mutex_);
    places_.push_back(std::move(place));
    return static_cast<std::uint32_t>(places_.size() - 1);
  }

  const VerifyOptions& options_;
  const Expectations& expected_;
  Endpoint endpoint_;
  std::optional<TlsContext> tls_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;  // of the rest
  std::vector<std::string> places_;
  Status failed_;
};

}  // namespace

Result<std::unique_ptr<Store>> make_imap_store(const VerifyOptions& options, const Expectations& expected) {
  TL_TRY_ASSIGN(Endpoint endpoint, Endpoint::parse(options.imap));
  std::optional<TlsContext> tls;
  if (options.imap_security != ImapClient::Security::clear) {
    TlsSettings settings = options.imap_tls;
    if (settings.name.empty()) settings.name = Endpoint::host_of(options.imap);
    TL_TRY_ASSIGN(tls, TlsContext::make(settings));
  }
  return std::make_unique<ImapStore>(options, expected, std::move(endpoint), std::move(tls));
}

}  // namespace twinloft::mailbench
