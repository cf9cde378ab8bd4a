#include "etcd.h"

#include <sys/stat.h>

#include "twinloft/base/fd.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/arbiter/value.h"

namespace twinloft::repl::arbiter {

namespace {

using core::ArbiterAnswer;
using core::ArbiterRequest;
using Outcome = ArbiterAnswer::Outcome;

constexpr std::size_t password_bytes_max = 4096;

std::string key_of(const Settings& settings, const Uuid& volume) {
  return fmt::format("{}/{}/epoch", normal_prefix(settings.prefix), volume.text());
}

std::string status_text(const HttpAnswer& answer, const std::string& target) {
  std::string said = error_text(answer.body);
  return fmt::format(
      "HTTP status {}{}{}{}", answer.status, said.empty() ? "" : ": ", said,
      answer.status == 404
          ? fmt::format(" (for {}: etcd 3.4 or newer is needed, with its gRPC gateway)", target)
          : "");
}

}  // namespace

Result<std::string> read_password(const std::string& path) {
  struct stat st{};
  if (::stat(path.c_str(), &st) == 0 && (st.st_mode & 077) != 0)
    return fail(Errc::denied, "{}: others may read the password: chmod 600 it", path);
  TL_TRY_ASSIGN(std::string text, read_file(path, password_bytes_max));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty()) return fail(Errc::invalid, "{}: holds no password", path);
  return text;
}

EtcdStore::EtcdStore(const Settings& settings, const Uuid& volume, const Clock& clock)
    : settings_(settings), volume_(volume), clock_(clock), key_(key_of(settings, volume)), http_(clock) {}

Result<std::unique_ptr<EtcdStore>> EtcdStore::create(const Settings& settings, const Uuid& volume,
                                                     const Clock& clock) {
  std::unique_ptr<EtcdStore> store(new EtcdStore(settings, volume, clock));
  bool tls = false, clear = false;
  for (const std::string& url : settings.endpoints) {
    TL_TRY_ASSIGN(Endpoint endpoint, parse_endpoint(url));
    (endpoint.tls ? tls : clear) = true;
    store->endpoints_.push_back(std::move(endpoint));
  }
  if (store->endpoints_.empty()) return fail(Errc::invalid, "etcd needs an endpoint");
  // Both are read again at each use, so that they may be renewed while the node runs. Here they are checked
  // for errors.
  if (tls) TL_TRY(tls_context({settings.ca_file, settings.cert_file, settings.key_file}));
  if (!settings.user.empty()) TL_TRY(read_password(settings.password_file));
  if (!settings.user.empty() && clear)
    log_warning("etcd: the password of {} is sent over http:// without encryption", settings.user);
  return store;
}

// Each endpoint gets a share of the remaining time, so that a silent endpoint leaves time for the others.
ArbiterAnswer EtcdStore::perform(const ArbiterRequest& request) {
  Instant deadline = clock_.now() + settings_.timeout;
  std::string reasons;
  bool spoke = false;
  std::size_t count = endpoints_.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t at = (first_ + i) % count;
    Instant now = clock_.now();
    Instant until = now + (deadline - now) / static_cast<std::int64_t>(count - i);
    auto answer = ask(endpoints_[at], request, until);
    http_.close();
    if (answer) {
      first_ = at;
      return *answer;
    }
    spoke = spoke || answer.error().spoke;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", endpoints_[at].url, answer.error().why);
    if (answer.error().everywhere) break;
  }
  return {request.token, Outcome::unknown, std::nullopt,
          fmt::format("etcd: no {}answer from {} endpoint{}: {}", spoke ? "usable " : "", count,
                      count == 1 ? "" : "s", reasons)};
}

std::expected<ArbiterAnswer, EtcdStore::Failure> EtcdStore::ask(const Endpoint& endpoint,
                                                                const ArbiterRequest& request,
                                                                Instant deadline) {
  std::string target = request.read ? "/v3/kv/range" : "/v3/kv/txn", body;
  if (request.read) {
    body = range_request(key_);
  } else {
    std::optional<std::string> expected;
    if (request.expected) expected = encode_value(volume_, *request.expected);
    body = swap_request(key_, expected, encode_value(volume_, request.desired));
  }
  for (;;) {
    if (auto opened = open(endpoint, deadline); !opened) return std::unexpected(opened.error());
    bool kept = !token_.empty();
    if (!settings_.user.empty() && !kept)
      if (auto in = log_in(endpoint, deadline); !in) return std::unexpected(in.error());
    auto answer = post(endpoint, target, body, deadline);
    if (answer && answer->status == 200) return understood(request, answer->body);
    // An old token may be stale. Some gateways do not report it, but only close the connection.
    token_.clear();
    if (kept && clock_.now() < deadline) continue;
    return std::unexpected(answer ? Failure{status_text(*answer, target), true} : answer.error());
  }
}

std::expected<void, EtcdStore::Failure> EtcdStore::open(const Endpoint& endpoint, Instant deadline) {
  if (http_.is_open()) return {};
  Status connected = http_.connect(endpoint, {settings_.ca_file, settings_.cert_file, settings_.key_file},
                                   deadline);
  if (!connected) return std::unexpected(Failure{connected.error().message});
  return {};
}

std::expected<HttpAnswer, EtcdStore::Failure> EtcdStore::post(const Endpoint& endpoint,
                                                              const std::string& target,
                                                              const std::string& body, Instant deadline) {
  if (auto opened = open(endpoint, deadline); !opened) return std::unexpected(opened.error());
  auto answer = http_.post(target, body, token_, deadline);
  if (!answer) return std::unexpected(Failure{answer.error().message});
  return *answer;
}

std::expected<void, EtcdStore::Failure> EtcdStore::log_in(const Endpoint& endpoint, Instant deadline) {
  auto password = read_password(settings_.password_file);
  if (!password) return std::unexpected(Failure{password.error().message, true, true});
  auto answer = post(endpoint, "/v3/auth/authenticate", login_request(settings_.user, *password), deadline);
  if (!answer) return std::unexpected(answer.error());
  if (answer->status != 200)
    return std::unexpected(Failure{
        fmt::format("logging in as {}: {}", settings_.user, status_text(*answer, "/v3/auth/authenticate")),
        true});
  auto token = read_login(answer->body);
  if (!token) return std::unexpected(Failure{token.error().message, true});
  token_ = *token;
  return {};
}

// An unreadable value gives no answer, since another version may rely on it, and it must not be overwritten.
std::expected<ArbiterAnswer, EtcdStore::Failure> EtcdStore::understood(const ArbiterRequest& request,
                                                                       const std::string& body) {
  auto answer = request.read ? read_range(body, key_) : read_swap(body, key_);
  if (!answer) return std::unexpected(Failure{answer.error().message, true});
  if (cluster_.empty()) cluster_ = answer->cluster;
  if (cluster_ != answer->cluster)
    return std::unexpected(Failure{
        fmt::format(
            "it belongs to another etcd cluster ({}) than the earlier answers ({}): all endpoints must "
            "belong to one cluster. Correct the endpoints; if the cluster was replaced, restart spool-repl",
            answer->cluster, cluster_),
        true});
  if (!request.read && answer->succeeded)
    return ArbiterAnswer{request.token, Outcome::granted, request.desired, ""};
  std::optional<core::EpochValue> current;
  if (answer->value) {
    auto value = decode_value(volume_, *answer->value);
    if (!value)
      return std::unexpected(Failure{fmt::format("{}: {}", key_, value.error().message), true, true});
    current = *value;
  }
  return ArbiterAnswer{request.token, request.read ? Outcome::granted : Outcome::refused, current, ""};
}

}  // namespace twinloft::repl::arbiter
