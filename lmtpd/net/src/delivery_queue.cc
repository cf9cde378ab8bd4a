#include "delivery_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::lmtpd {

// ---- lines and their places

DeliveryQueue::Line& DeliveryQueue::line_of(Group& group, const std::string& user) {
  auto [at, is_new] = group.lines.try_emplace(user);
  Line& line = at->second;
  if (is_new) {
    line.group = &group;
    line.user = user;
    enter_ring(line);
  }
  return line;
}

void DeliveryQueue::enter_ring(Line& line) {
  line.turn = ++turns_;
  line.place = line.group->ring.insert(line.group->ring.end(), &line);
}

void DeliveryQueue::leave_ring(Line& line) {
  line.group->ring.erase(line.place);
}

// The line returns to the ring when a delivery of one of these users ends.
void DeliveryQueue::park(Line& line, const Item& blocked) {
  leave_ring(line);
  for (std::size_t member : blocked.left) line.parked_on.push_back(blocked.delivery.users[member]);
  for (const std::string& user : line.parked_on) users_.at(user).parked.insert(&line);
}

void DeliveryQueue::unpark(Line& line) {
  if (line.parked_on.empty()) return;
  for (const std::string& user : std::exchange(line.parked_on, {})) users_.at(user).parked.erase(&line);
  enter_ring(line);
}

void DeliveryQueue::erase_if_empty(Line& line) {
  if (!line.items.empty()) return;
  Group& group = *line.group;
  leave_ring(line);
  group.lines.erase(line.user);
}

void DeliveryQueue::put(Line& line, Item item, bool first) {
  unpark(line);
  Owner& owner = owners_[item.delivery.owner];
  ++owner.waiting;
  owner.lines.insert(&line);
  ++waiting_;
  if (first)
    line.items.push_front(std::move(item));
  else
    line.items.push_back(std::move(item));
}

void DeliveryQueue::push(QueuedDelivery delivery) {
  TL_CHECK(!delivery.users.empty() && delivery.run);
  auto [at, is_new] = groups_.try_emplace(delivery.shared.name);
  if (is_new) at->second.most = std::max(1u, delivery.shared.most);
  if (is_new && !delivery.shared.pool.empty()) {
    at->second.pool = &pools_[delivery.shared.pool];
    at->second.pool->most = std::max(1u, delivery.shared.pool_most);
  }
  std::vector<std::size_t> all(delivery.users.size());
  std::iota(all.begin(), all.end(), 0);
  Line& line = line_of(at->second, delivery.users.front());
  put(line, {std::move(delivery), std::move(all)}, false);
}

// ---- whose turn it is

bool DeliveryQueue::has_room(const QueuedDelivery& delivery, std::size_t member) const {
  auto user = users_.find(delivery.users[member]);
  return user == users_.end() || user->second.taken < std::max(1u, delivery.per_user_max);
}

bool DeliveryQueue::anyone_has_room(const Item& item) const {
  return std::ranges::any_of(item.left, [&](std::size_t member) { return has_room(item.delivery, member); });
}

// The first line of the group that may begin. Lines whose users have no room are parked. Items of messages at
// their limit are skipped: there are few such messages, because each has running deliveries.
DeliveryQueue::Candidate DeliveryQueue::candidate_in(Group& group) {
  if (group.taken >= group.most || (group.pool && group.pool->taken >= group.pool->most)) return {};
  for (auto at = group.ring.begin(); at != group.ring.end();) {
    Line& line = **at++;
    auto item = std::ranges::find_if(
        line.items, [&](const Item& i) { return owners_.at(i.delivery.owner).taken < per_owner_max_; });
    if (item == line.items.end()) continue;
    if (anyone_has_room(*item)) return {&line, static_cast<std::size_t>(item - line.items.begin())};
    park(line, *item);
  }
  return {};
}

std::optional<DeliveryQueue::Turn> DeliveryQueue::next() {
  if (running_ >= deliveries_max_) return std::nullopt;
  Candidate best;
  for (auto& [name, group] : groups_) {
    Candidate found = candidate_in(group);
    if (found.line && (!best.line || found.line->turn < best.line->turn)) best = found;
  }
  if (!best.line) return std::nullopt;
  return begin(best);
}

// Members without room wait in the line of the first of them.
DeliveryQueue::Turn DeliveryQueue::begin(Candidate candidate) {
  Line& line = *candidate.line;
  Group& group = *line.group;
  auto at = line.items.begin() + static_cast<std::ptrdiff_t>(candidate.item);
  Item item = std::move(*at);
  line.items.erase(at);
  --waiting_;
  Turn turn{item.delivery.run, {}, item.delivery.owner, item.delivery.shared.name, {}};
  auto rest = std::ranges::stable_partition(item.left,
                                            [&](std::size_t m) { return has_room(item.delivery, m); });
  turn.members.assign(item.left.begin(), rest.begin());
  item.left.erase(item.left.begin(), rest.begin());
  for (std::size_t member : turn.members) {
    turn.users.push_back(item.delivery.users[member]);
    ++users_[turn.users.back()].taken;
  }
  ++running_;
  ++group.taken;
  if (group.pool) ++group.pool->taken;
  Owner& owner = owners_.at(turn.owner);
  ++owner.taken;
  --owner.waiting;
  bool others = std::ranges::any_of(line.items,
                                    [&](const Item& i) { return i.delivery.owner == turn.owner; });
  if (!others) owner.lines.erase(&line);
  leave_ring(line);
  enter_ring(line);
  erase_if_empty(line);
  if (item.left.empty()) return turn;
  Line& next = line_of(group, item.delivery.users[item.left.front()]);
  put(next, std::move(item), true);
  return turn;
}

// ---- ends

// A user with parked lines has running deliveries, because only these use up its room.
void DeliveryQueue::give_back(const std::string& name) {
  auto user = users_.find(name);
  TL_CHECK(user != users_.end() && user->second.taken > 0);
  --user->second.taken;
  for (std::unordered_set<Line*> parked = user->second.parked; Line * line : parked) unpark(*line);
  if (user->second.taken == 0) users_.erase(user);
}

void DeliveryQueue::forget(const void* owner) {
  auto found = owners_.find(owner);
  if (found != owners_.end() && found->second.taken == 0 && found->second.waiting == 0) owners_.erase(found);
}

void DeliveryQueue::ended(const Turn& turn) {
  --running_;
  for (const std::string& user : turn.users) give_back(user);
  auto group = groups_.find(turn.shared);
  TL_CHECK(group != groups_.end() && group->second.taken > 0);
  --group->second.taken;
  if (group->second.pool) --group->second.pool->taken;
  if (group->second.taken == 0 && group->second.lines.empty()) groups_.erase(group);
  --owners_.at(turn.owner).taken;
  forget(turn.owner);
}

// Checks the narrowest limit first: it delays the delivery even if the wider limits have room.
std::string DeliveryQueue::hindrance(const Group& group, const Item& item) const {
  if (!anyone_has_room(item)) {
    const std::string& user = item.delivery.users[item.left.front()];
    return fmt::format("{} has {} in flight (limits.deliveries_per_user)", user, users_.at(user).taken);
  }
  if (group.taken >= group.most)
    return fmt::format("{} has {} in flight, which is its limit", item.delivery.shared.name, group.taken);
  if (group.pool && group.pool->taken >= group.pool->most)
    return fmt::format("all {} together have {} in flight (delivery.runs)", item.delivery.shared.pool,
                       group.pool->taken);
  if (std::uint32_t taken = owners_.at(item.delivery.owner).taken; taken >= per_owner_max_)
    return fmt::format("{} of the same message are in flight (limits.deliveries_per_transaction)", taken);
  if (running_ >= deliveries_max_)
    return fmt::format("all {} threads are busy (limits.deliveries)", running_);
  return {};
}

std::string DeliveryQueue::hindrance(const void* owner) const {
  auto found = owners_.find(owner);
  if (found == owners_.end()) return {};
  for (const Line* line : found->second.lines)
    for (const Item& item : line->items)
      if (item.delivery.owner == owner) return hindrance(*line->group, item);
  return {};
}

std::vector<QueuedDelivery> DeliveryQueue::drop(const void* owner) {
  std::vector<QueuedDelivery> dropped;
  auto found = owners_.find(owner);
  if (found == owners_.end()) return dropped;
  for (std::unordered_set<Line*> lines = std::exchange(found->second.lines, {}); Line * line : lines) {
    unpark(*line);
    auto theirs = std::ranges::stable_partition(line->items,
                                                [&](const Item& i) { return i.delivery.owner != owner; });
    for (Item& item : theirs) dropped.push_back(std::move(item.delivery));
    waiting_ -= theirs.size();
    line->items.erase(theirs.begin(), theirs.end());
    Group& group = *line->group;
    erase_if_empty(*line);
    if (group.taken == 0 && group.lines.empty())
      std::erase_if(groups_, [&](const auto& each) { return &each.second == &group; });
  }
  found->second.waiting = 0;
  forget(owner);
  return dropped;
}

}  // namespace twinloft::lmtpd
