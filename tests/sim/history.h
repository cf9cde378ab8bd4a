// What the clients know: every write-like request in the order of submission, and which of them were promised.
//
// The checker sees only this and the bytes on the disks. A state is right if it is the state after some prefix of
// the requests that holds at least everything that was promised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace twinloft::repl::sim {

// One word stands for a block's content: the number of the request that wrote it, 0 for zeros.
using Image = std::vector<std::uint64_t>;

class History {
 public:
  explicit History(std::uint64_t blocks) : writers_(blocks) { snapshots_.emplace_back(blocks); }

  struct Op {
    std::uint64_t id = 0, lba = 0, blocks = 0;
    bool zeros = false;
    bool completed = false;
  };

  std::size_t submit(std::uint64_t lba, std::uint64_t blocks, bool zeros);  // index of the request
  std::uint64_t id_of(std::size_t index) const { return ops_[index].id; }
  void complete(std::size_t index) { ops_[index].completed = true; }
  std::size_t completed_end() const;                     // one past the last completed request
  void promise(std::size_t end) { promised_ = std::max(promised_, end); }
  std::size_t promised() const { return promised_; }
  std::size_t size() const { return ops_.size(); }

  // Longest prefix with this state that holds what is promised (or any prefix, with need_promised false).
  std::optional<std::size_t> matching_prefix(const Image& image, bool need_promised) const;
  std::string explain(const Image& image) const;         // for a person: how the nearest prefix differs
  // A primary begins with this state. It may be one that another primary, meanwhile, knew nothing of: what nobody was
  // promised may come and go with its replica, as long as every promise is in it. The rest of this history becomes a
  // branch to which a later primary may return, until something is promised that the branch lacks.
  // How many of the requests so far, from the first one on, are in the history that goes on; nullopt: no history that
  // holds every promise leads to this state.
  std::optional<std::size_t> restart_with(const Image& image);

  // Contents that a read of this block may return, if it was submitted when `submitted` requests were known complete.
  bool read_is_right(std::uint64_t lba, std::uint64_t value, std::size_t completed_at_submission) const;

 private:
  static constexpr std::size_t snapshot_every = 256;  // requests
  static std::uint64_t value_of(const Op& op) { return op.zeros ? 0 : op.id; }
  static void apply(const Op& op, Image& image);
  std::optional<std::size_t> matching(const std::vector<Op>& ops, std::size_t least, const Image& image) const;
  void note(std::size_t index);
  void go_back_to(std::size_t prefix);

  std::vector<Op> ops_;
  std::size_t promised_ = 0;  // prefix length
  std::vector<std::vector<Op>> branches_;
  std::uint64_t next_id_ = 1;
  // Of ops_: the state after every snapshot_every requests, and who wrote each block, in order.
  std::vector<Image> snapshots_;
  std::vector<std::vector<std::uint32_t>> writers_;
};

}  // namespace twinloft::repl::sim
