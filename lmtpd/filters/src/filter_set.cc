#include "filter_set.h"

#include <cerrno>
#include <new>
#include <utility>

#include "filter_chain.h"
#include "twinloft/lmtpd/milter/filter_link.h"

namespace twinloft::lmtpd {

FilterSet::FilterSet(FiltersConfig config, Connector& connector, const Clock& clock)
    : config_(std::move(config)), connector_(connector), clock_(clock), health_(config_.order.size()) {}

std::shared_ptr<FilterSession> FilterSet::open(MakeStoredBody make_body) {
  auto chain = std::make_shared<FilterChain>(*this, std::move(make_body));
  std::lock_guard lock(mutex_);
  chains_.insert(chain.get());
  if (given_up_) chain->give_up();
  return chain;
}

void FilterSet::closed(FilterChain* chain) {
  std::lock_guard lock(mutex_);
  chains_.erase(chain);
}

void FilterSet::give_up() {
  std::lock_guard lock(mutex_);
  given_up_ = true;
  for (FilterChain* chain : chains_) chain->give_up();
}

Result<std::unique_ptr<Stream>> FilterSet::connect(std::size_t filter) {
  {
    std::lock_guard lock(mutex_);
    if (!health_[filter].may_try(clock_.now()))
      return fail(Errc::unavailable, "it could not be reached a moment ago");
  }
  Result<Fd> socket = fail_errno(ENOMEM, "connecting");  // if an exception ends the try
  try {
    socket = connector_.connect(config_.order[filter].target);
  } catch (const std::bad_alloc&) {
  }
  std::lock_guard lock(mutex_);
  if (!socket) {
    health_[filter].failed(clock_.now());
    return std::unexpected(std::move(socket).error());
  }
  health_[filter].worked();
  return make_socket_stream(std::move(*socket), clock_);
}

Status try_filter(const milter::FilterSpec& spec, const ConnectTarget& target, const Clock& clock) {
  TL_TRY_ASSIGN(Fd socket, connect_to(target));
  milter::FilterLink link(make_socket_stream(std::move(socket), clock), spec, clock);
  if (Status opened = link.open(); !opened)
    return fail(opened.error().code, "{}: {}", target.text, opened.error().message);
  link.quit();
  return {};
}

std::unique_ptr<Filters> make_filters(FiltersConfig config, Connector& connector, const Clock& clock) {
  return std::make_unique<FilterSet>(std::move(config), connector, clock);
}

}  // namespace twinloft::lmtpd
