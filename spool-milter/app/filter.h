// The edge to libmilter: its socket, and its callbacks for MAIL and RCPT.
//
// libmilter opens its own socket, and cannot take one over. But the supervisor holds the socket, so that a
// reload refuses no MTA. So open() lets libmilter open a socket that nobody can reach, and serve() puts the
// real socket in its place (dup2(2)). release() puts libmilter's socket back. smfi_stop(3) is not used: it
// also ends the service of existing connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/proto/reply.h"
#include "twinloft/spool-milter/core/answer.h"

namespace twinloft::spool_milter {

struct FilterConfig {
  std::uint32_t connections_max = 1000;
  // The reply to a recipient; nullopt: continue. Called on libmilter's threads, and may block for a while.
  std::function<std::optional<lmtpd::Reply>(const Sender&, const AskedRecipient&)> answer;
};

// libmilter serves once in a process, so there is one filter, and it lives as long as the process.
class Filter {
 public:
  // family: of the socket that serve() gets. Call it once, while this process may open sockets. The clock
  // lives as long as the process. Errors: libmilter cannot open its socket.
  static Result<Filter*> open(int family, const Clock& clock);

  // Serves connections to this listening socket, on threads of libmilter. ended: libmilter has stopped, which
  // it does only after errors; called on its thread.
  Status serve(int listening, FilterConfig config, std::function<void()> ended);

  // The next functions are thread-safe, and return at once.
  // Accepts no further connections. Existing ones are served.
  void release();
  // Open ones, also those whose MTAs have not spoken yet. One call reads all descriptors of the process. Call
  // it in one thread.
  std::size_t connections() const;
  std::size_t questions() const;  // being answered
  // False: a question is being answered for too long, or connections are not accepted. Call it about once a
  // second, in one thread.
  bool takes_turns();

 private:
  Filter() = default;
};

}  // namespace twinloft::spool_milter
