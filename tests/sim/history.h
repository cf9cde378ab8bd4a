// What the clients know: every write-like request in the order of submission, as a tree, and which requests
// were promised.
//
// A node of the tree is the state after one request. Its parent is the state that the request was made in.
// One primary after another makes one path. Branches come from two primaries at once, or from a primary that
// begins without unpromised requests.
//
// The checkers see only this tree and the bytes on the disks. A state is right if it is a node. A promise is
// kept if the state is on a path through the promised node.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace twinloft::repl::sim {

// One word stands for a block's content: the number of the request that wrote it, or 0 for zeros. Contents
// from before the first request have numbers beyond `foreign`. A block with parts of several requests has a
// number beyond `composed`.
using Image = std::vector<std::uint64_t>;
inline constexpr std::uint64_t foreign = std::uint64_t{1} << 40;
inline constexpr std::uint64_t composed = std::uint64_t{1} << 41;
inline constexpr std::uint64_t sector_bytes = 512, sectors_in_block = 8;
using Sectors = std::array<std::uint64_t, sectors_in_block>;  // a word for each sector of a block

class History {
 public:
  using State = std::uint32_t;  // a node, numbered in the order of submission, so numbers grow along a path
  // The place of a client: a state, and the volume in it.
  struct Path {
    State tip = 0;
    Image image;
  };

  explicit History(Image beginning);
  State add_beginning(const Image& image);  // a state without a request
  // Another state without a request. Each of its blocks has the content of a promised state, or newer
  // content.
  void add_mixture(const Image& image);

  // The request writes the node's number into its sectors.
  State submit(Path& path, std::uint64_t sector, std::uint64_t sectors, bool zeros);
  // The newest request of this path was not carried out: the path returns to the state before. The node
  // stays, unused.
  void take_back(Path& path);
  std::uint64_t value_of(State state) const { return nodes_[state].zeros ? 0 : state; }
  bool covers(State state, std::uint64_t sector) const {
    return sector >= nodes_[state].sector && sector < nodes_[state].sector + nodes_[state].sectors;
  }

  // The content of a block as a value of an image.
  std::uint64_t compose(const Sectors& words) const;
  std::uint64_t compose(const std::byte* block) const;  // by the first word of each sector
  std::uint64_t word_of(std::uint64_t value, std::uint64_t sector_in_block) const {
    return value < composed ? value : compositions_[value - composed][sector_in_block];
  }

  // The states with this image. There are several if requests changed nothing.
  std::vector<State> matching(const Image& image) const;
  bool leads_to(State earlier, State later) const;

  bool promise(State state);  // returns false if it, or a later state, was promised before
  // The newest promised state of each branch.
  const std::vector<State>& promised() const { return promised_; }
  bool holds_all(State state) const;
  bool any_holds(const std::vector<State>& states, State promise) const;
  // The promise no longer has to be kept: it was lost with a disk, or by the operator's decision.
  void release(State promise);

  // For people: the differences between the image and the state of its newest request.
  std::string explain(const Image& image) const;

 private:
  struct Node {
    State parent;
    std::uint64_t hash;  // of the volume's content
    std::uint64_t sector, sectors;
    bool zeros;
  };
  template <class F>
  // Calls f(block, what it holds then).
  void for_each_block(const Node& node, const Image& image, std::uint64_t value, F f) const;
  static std::uint64_t hash_of(std::uint64_t block, std::uint64_t value);
  State add(Node node);
  State earliest_like(State state) const;
  Image image_of(State state) const;
  bool contains(const Image& image, State state) const;

  std::vector<Node> nodes_;
  std::unordered_multimap<std::uint64_t, State> by_hash_;
  std::unordered_map<State, Image> beginnings_;
  std::vector<State> promised_;
  mutable std::vector<Sectors> compositions_;
  mutable std::map<Sectors, std::uint64_t> known_;  // values of known combinations
};

}  // namespace twinloft::repl::sim
