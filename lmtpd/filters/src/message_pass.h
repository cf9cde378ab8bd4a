// A complete message on its way through the filters: its header and body as they are now, and what the
// filters have changed about its envelope.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "twinloft/lmtpd/filters/filters.h"
#include "twinloft/lmtpd/milter/message_edit.h"
#include "twinloft/lmtpd/session/filtering.h"

namespace twinloft::lmtpd {

class MessagePass {
 public:
  // The references outlive it.
  MessagePass(std::shared_ptr<const Envelope> envelope, std::shared_ptr<StoredBody> body,
              const FiltersConfig& config, const MakeStoredBody& make_body)
      : config_(config), make_body_(make_body), envelope_(std::move(envelope)), body_(std::move(body)) {}

  static constexpr std::size_t header_lines_max = 20'000;

  // Reads the header. Errors, here and below: Errc::io, Errc::corrupt (the stored message has changed),
  // Errc::exhausted (no room for the message). Errc::invalid: more than header_lines_max lines.
  Status load();
  // The last for_each_part() could not read the stored message, and its error is no error of `each`.
  const std::optional<Error>& read_error() const { return read_error_; }

  const milter::MessageHeader& header() const { return header_; }
  // Calls `each` with the parts of the body in order, of at most milter::data_bytes_max bytes. Ends early,
  // with the first result that is not a plain Continue.
  using Each = std::function<Result<milter::Verdict>(std::string_view)>;
  Result<milter::Verdict> for_each_part(const Each& each) const;

  // The changes of one filter, until it has accepted the message.
  milter::MessageEdit begin_edit(bool leading_space) const;
  // Errors: Errc::invalid, an address or its parameters (see the commands MAIL and RCPT).
  static Status check(const milter::Change& change);
  void take(milter::MessageEdit::Edited&& edited, const std::string& filter);
  // The message goes to the mailbox for quarantined messages alone.
  void quarantine(const std::string& filter, const std::string& reason);

  Result<FilteredMessage::Passed> finish();

 private:
  void take_sender(const milter::Addressed& sender);
  void remove(const Path& path);
  void add(milter::Addressed&& added, const std::string& filter);
  Status store();
  Status copy_body(StoredBody& to) const;
  Result<std::string_view> read(std::uint64_t at, std::string& buffer) const;

  const FiltersConfig& config_;
  const MakeStoredBody& make_body_;
  std::shared_ptr<const Envelope> envelope_;
  std::shared_ptr<StoredBody> body_;
  std::size_t body_begin_ = 0;  // the bytes of body_ before the body of the message
  milter::MessageHeader header_;
  bool changed_ = false;   // header or body
  bool new_body_ = false;  // body_ has no header
  bool quarantined_ = false;
  mutable std::optional<Error> read_error_;
  std::vector<bool> removed_;
  std::vector<FilteredMessage::AddedRecipient> added_;
};

}  // namespace twinloft::lmtpd
