// A primary and a secondary, their disks, the link between them and a client, in one thread, from one seed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>

#include "history.h"
#include "sim_file.h"
#include "twinloft/spool-repl/core/core.h"

namespace twinloft::repl::sim {

struct Coverage {
  std::map<std::string, std::uint64_t> marks;
  void hit(const std::string& mark) { marks[mark]++; }
};

struct Violation {
  std::string what;
};

class Cluster {
 public:
  Cluster(std::uint64_t seed, bool trace, Coverage& coverage);
  ~Cluster();
  // Throws Violation where a checker finds the promise broken.
  void run();

 private:
  struct Node;
  struct Pending;  // a disk operation under way
  struct Event {
    std::int64_t at;
    std::uint64_t order;
    std::function<void()> action;
    bool operator>(const Event& o) const { return std::tie(at, order) > std::tie(o.at, o.order); }
  };

  void schedule(std::int64_t delay_us, std::function<void()> action);
  void run_until(std::function<bool()> done, std::int64_t limit_us, const char* what);
  void note(const std::string& text);
  [[noreturn]] void violated(const std::string& text);

  void create(Node& node);
  void start(Node& node);
  void crash(Node& node, bool power);
  void feed(Node& node, core::Event event);
  void drain(Node& node);
  void perform(Node& node, core::Output& out);
  void complete_disk(Node& node, std::uint64_t pending);
  void arm_tick(Node& node);

  void connect();
  void disconnect();
  void send(Node& from, PeerMessage message);

  void client_step();
  void submit(core::ClientOp op, bool fua);
  void on_complete(std::uint64_t id, int error);

  Image image_after_power_cut(const Node& node);
  void check(const Node& node, bool need_promised, const char* when);
  void inject_fault();
  void note_ring();
  void settle_and_compare();

  SeededRandom random_;
  bool trace_;
  Coverage& coverage_;
  std::int64_t now_us_ = 0;
  std::uint64_t next_event_ = 1;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::unique_ptr<Node> primary_, secondary_;
  core::Protocol protocol_;
  std::uint64_t volume_blocks_;
  History history_;
  enum class DiskKind { journal, read, home, sync, superblock };
  bool heavy_ = false;
  std::int64_t slow_us_[5] = {};  // by DiskKind: at most so much longer

  bool link_up_ = false, link_cut_ = false;
  std::uint64_t connection_ = 0;
  std::int64_t deliver_at_[2] = {0, 0};
  bool secondary_follows_ = false;  // has been connected to the primary in its present life

  struct Request {
    core::ClientOp op;
    bool fua;
    std::size_t index;            // in the history, for writes
    std::size_t completed_before; // for flushes and reads
    std::uint64_t lba, blocks;
    std::vector<std::byte> data;
  };
  std::map<std::uint64_t, Request> requests_;
  std::uint64_t next_request_ = 1;
  bool client_runs_ = true;
};

}  // namespace twinloft::repl::sim
