// The changes of one filter to one message, until the filter's verdict. Pure; the caller drops the edit if
// the filter fails, so that no message is changed in part.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/milter/answers.h"
#include "twinloft/lmtpd/milter/message_header.h"
#include "twinloft/lmtpd/proto/path.h"

namespace twinloft::lmtpd::milter {

// Where a new body goes. It may be larger than memory allows.
class BodySink {
 public:
  virtual ~BodySink() = default;
  virtual Status append(std::string_view bytes) = 0;
};

// Of a single filter, for a message: each of them costs a look-up.
inline constexpr std::size_t added_recipients_max = 100;
inline constexpr std::size_t changes_max = 10'000;  // of one filter to one message, without parts of a body

struct EditLimits {
  std::uint64_t message_bytes_max = 0;  // header and body
  std::uint64_t body_bytes = 0;         // of the body, until the filter replaces it
  std::uint64_t header_bytes_max = 0;
  std::size_t recipients_max = 0;  // that a filter adds
};

// An address with its ESMTP parameters ("NOTIFY=NEVER").
struct Addressed {
  Path path;
  std::string parameters;
};

class MessageEdit {
 public:
  using MakeSink = std::function<std::unique_ptr<BodySink>()>;
  // header: of the message as this filter has seen it. leading_space: wish::leading_space of the filter.
  MessageEdit(MessageHeader header, bool leading_space, const EditLimits& limits, MakeSink make_sink)
      : edited_{.header = std::move(header)},
        leading_space_(leading_space),
        limits_(limits),
        make_sink_(std::move(make_sink)) {}

  // Errors: Errc::invalid (no address, or a recipient that is the null path), Errc::exhausted (a limit), and
  // those of the sink. After an error, the edit must be dropped.
  Status take(Change&& change);
  // The last error was that of message_bytes_max or header_bytes_max.
  bool is_too_large() const { return is_too_large_; }

  struct Edited {
    MessageHeader header;
    std::unique_ptr<BodySink> body = {};  // null: the body has not changed
    std::uint64_t body_bytes = 0;         // of the new body
    std::optional<Addressed> sender = {};
    std::vector<Addressed> added = {};  // recipients
    std::vector<Path> removed = {};
    std::optional<std::string> quarantine = {};  // the reason
    bool changes_content() const { return header.is_changed() || body != nullptr; }
  };
  Edited finish() && { return std::move(edited_); }

 private:
  Status apply(AddHeader&& c) { return change_header(c); }
  Status apply(InsertHeader&& c) { return change_header(c); }
  Status apply(ChangeHeader&& c) { return change_header(c); }
  Status apply(ReplaceBody&& c);
  Status apply(ChangeSender&& c);
  Status apply(AddRecipient&& c);
  Status apply(RemoveRecipient&& c);
  Status apply(Quarantine&& c);
  template <class HeaderChange>
  Status change_header(const HeaderChange& change);
  Status check_sizes();

  Edited edited_;
  std::size_t changes_ = 0;  // without parts of a body
  bool is_too_large_ = false;
  const bool leading_space_;
  const EditLimits limits_;
  MakeSink make_sink_;
};

// Whether two addresses have the same mailbox: equal local parts, and domains that differ in case at most.
bool same_mailbox(const Path& a, const Path& b);

}  // namespace twinloft::lmtpd::milter
