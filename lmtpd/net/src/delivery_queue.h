// Decides which delivery begins next: a queue without threads and without I/O.
//
// A delivery begins when every limit has room: the threads, its message (deliveries of one message at once),
// the shared limit (an agent, a next hop; all agents), and its users. Until then it waits here, and uses only
// memory. Turns go round the users, so that a burst for one user does not delay other users.
//
//   delivery ──push()──▶ its user's line ──next()──▶ runs ──ended()──▶ gone
//                                └──drop()──▶ gone
//
// A delivery to several users is split if only some of them have room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// A waiting delivery: one message for one user, or for several users in one call.
struct QueuedDelivery {
  // Gets the indexes in `users` of the users whose turn it is. Must not throw.
  using Run = std::function<void(const std::vector<std::size_t>& members)>;

  const void* owner = nullptr;  // the message
  SharedLimit shared{};
  std::uint32_t per_user_max = unlimited_deliveries;
  std::vector<std::string> users;  // at least one, each once
  std::shared_ptr<const Run> run;
};

class DeliveryQueue {
 public:
  DeliveryQueue(std::uint32_t deliveries_max, std::uint32_t per_owner_max)
      : deliveries_max_(deliveries_max), per_owner_max_(std::max(1u, per_owner_max)) {}

  // A delivery whose turn it is. It counts for its limits until ended().
  struct Turn {
    std::shared_ptr<const QueuedDelivery::Run> run;
    std::vector<std::size_t> members;
    const void* owner = nullptr;
    std::string shared;
    std::vector<std::string> users;
  };

  void push(QueuedDelivery delivery);
  // nullopt: no waiting delivery may begin now.
  std::optional<Turn> next();
  void ended(const Turn& turn);
  // The limit that delays the owner's next delivery, for the log. Empty: no delivery waits, or no limit
  // delays it.
  std::string hindrance(const void* owner) const;
  // Removes the owner's deliveries that have not begun, and returns them.
  std::vector<QueuedDelivery> drop(const void* owner);

  std::size_t waiting() const { return waiting_; }

 private:
  struct Group;
  struct Item {
    QueuedDelivery delivery;
    std::vector<std::size_t> left;  // the members that still wait
  };
  // The deliveries of a group that wait for one user. A delivery to several users waits for the first of
  // those left.
  struct Line {
    Group* group = nullptr;
    std::string user;
    std::deque<Item> items;
    std::uint64_t turn = 0;              // the lowest begins first
    std::vector<std::string> parked_on;  // users without room; the line is out of the ring until one has room
    std::list<Line*>::iterator place{};
  };
  struct Pool {
    std::uint32_t most = unlimited_deliveries;
    std::uint32_t taken = 0;
  };
  // Deliveries with one shared limit.
  struct Group {
    std::uint32_t most = unlimited_deliveries;
    std::uint32_t taken = 0;
    Pool* pool = nullptr;               // null: the group is in no pool
    std::map<std::string, Line> lines;  // by user
    std::list<Line*> ring;              // ordered by turn
  };
  struct User {
    std::uint32_t taken = 0;
    std::unordered_set<Line*> parked;
  };
  struct Owner {
    std::uint32_t taken = 0;
    std::size_t waiting = 0;  // items
    std::unordered_set<Line*> lines;
  };

  struct Candidate {
    Line* line = nullptr;
    std::size_t item = 0;
  };
  Line& line_of(Group& group, const std::string& user);
  void put(Line& line, Item item, bool first);
  Candidate candidate_in(Group& group);
  bool has_room(const QueuedDelivery& delivery, std::size_t member) const;
  bool anyone_has_room(const Item& item) const;
  std::string hindrance(const Group& group, const Item& item) const;
  Turn begin(Candidate candidate);
  void enter_ring(Line& line);
  void leave_ring(Line& line);
  void park(Line& line, const Item& blocked);
  void unpark(Line& line);
  void erase_if_empty(Line& line);
  void forget(const void* owner);
  void give_back(const std::string& user);

  const std::uint32_t deliveries_max_;
  const std::uint32_t per_owner_max_;
  std::uint32_t running_ = 0;
  std::size_t waiting_ = 0;
  std::uint64_t turns_ = 0;
  std::map<std::string, Pool> pools_;            // by name; never erased: the configuration bounds them
  std::map<std::string, Group> groups_;          // by the shared limit's name
  std::unordered_map<std::string, User> users_;  // with running deliveries or parked lines
  std::unordered_map<const void*, Owner> owners_;
};

}  // namespace twinloft::lmtpd
