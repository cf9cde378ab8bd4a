// A blocking IMAP4rev1 client that reads every message of a user, and changes nothing (EXAMINE, BODY.PEEK).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/mailbench/endpoint.h"
#include "twinloft/mailbench/imap_response.h"
#include "twinloft/mailbench/tls_client.h"

namespace twinloft::mailbench {

class ImapClient {
 public:
  enum class Security { clear, starttls, tls };
  static constexpr std::chrono::seconds kTimeout{60};        // of each read and write
  static constexpr std::chrono::seconds kCommandTime{3600};  // of a command
  static constexpr std::size_t kMailboxesMax = 100'000;

  // tls: outlives the client; unused for Security::clear. Errors: of the connection, or the server's refusal.
  static Result<ImapClient> connect(const Endpoint& endpoint, Security security, const TlsContext* tls);
  ImapClient(ImapClient&&) = default;
  ImapClient& operator=(ImapClient&&) = default;

  Status login(std::string_view user, std::string_view password);
  Result<std::vector<std::string>> mailboxes();
  // Calls take(number, message) for each message of the mailbox.
  Status read_mailbox(const std::string& name,
                      const std::function<void(std::uint64_t, std::string_view)>& take);
  void logout();

 private:
  ImapClient(Fd fd) : fd_(std::move(fd)) {}
  // Sends a command, passes each untagged response to `on_untagged`, and returns at the tagged OK.
  Status run(const std::string& command, const std::function<Status(ImapResponse&&)>& on_untagged);
  Status handshake(const TlsContext& tls);
  Result<ImapResponse> next();
  Status send(std::string_view text);
  Status send_raw(std::string_view bytes);
  Status receive();  // more bytes into plain_

  Fd fd_;
  std::unique_ptr<TlsClient> tls_;
  ImapResponseParser parser_;
  std::string plain_;  // received, and not parsed
  std::size_t plain_at_ = 0;
  unsigned tag_ = 0;
};

}  // namespace twinloft::mailbench
