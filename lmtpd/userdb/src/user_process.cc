#include "twinloft/lmtpd/userdb/user_process.h"

#include <exception>

#include "user_wire.h"

namespace twinloft::lmtpd {

namespace {

FindResult find_safely(UserSource& source, ByteSpan packet) {
  auto key = decode_key(packet);
  if (!key) return std::unexpected(key.error());
  try {
    return source.find(*key);
  } catch (const std::exception& e) {
    return fail(Errc::internal, "unexpectedly: {}", e.what());
  }
}

}  // namespace

Result<std::unique_ptr<UserProcess>> UserProcess::start(std::size_t lanes, std::chrono::milliseconds timeout,
                                                        const std::function<Status()>& become,
                                                        const Open& open) {
  auto serve = [&open]() -> Result<LaneProcess::Serve> {
    TL_TRY_ASSIGN(std::shared_ptr<UserSource> source, open());
    return LaneProcess::Serve(
        [source](ByteSpan request) { return LaneAnswer{encode_found(find_safely(*source, request)), Fd()}; });
  };
  TL_TRY_ASSIGN(
      auto process,
      LaneProcess::start({"lmtpd-users", "the process that asks the user database", lanes}, become, serve));
  return std::unique_ptr<UserProcess>(new UserProcess(std::move(process), timeout));
}

FindResult UserProcess::find(const UserKey& key) {
  TL_TRY_ASSIGN(std::vector<std::byte> request, encode_key(key));
  TL_TRY_ASSIGN(LaneAnswer answer, process_->ask(request, timeout_));
  Result<FindResult> found = decode_found(answer.packet);
  // A malformed answer does not come from the database. (The lane was returned, so packets do not mix.)
  if (!found) return fail(Errc::unavailable, "{}", found.error().message);
  return std::move(*found);
}

}  // namespace twinloft::lmtpd
