// What the clients know: every write-like request, in the order of submission, as a tree, and which of them
// were promised.
//
// A node of the tree is the state after one request; its parent the state that the request was made in. One
// primary after another makes one path; two at once, or one that begins without what nobody was promised,
// make branches. The checkers see only this and the bytes on the disks. A state is right if it is a node; a
// promise is kept where the state lies on a path through the node that was promised.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace twinloft::repl::sim {

// One word stands for a block's content: the number of the request that wrote it, 0 for zeros. Contents from
// before the first request have numbers beyond `foreign`; a block that several requests wrote parts of has
// one beyond `composed`.
using Image = std::vector<std::uint64_t>;
inline constexpr std::uint64_t foreign = std::uint64_t{1} << 40;
inline constexpr std::uint64_t composed = std::uint64_t{1} << 41;
inline constexpr std::uint64_t sector_bytes = 512, sectors_in_block = 8;
using Sectors = std::array<std::uint64_t, sectors_in_block>;  // a word for each sector of a block

class History {
 public:
  using State = std::uint32_t;  // a node, numbered in the order of submission: along a path they grow
  // Where a client is: a state, and the volume in it.
  struct Path {
    State tip = 0;
    Image image;
  };

  explicit History(Image beginning);
  State add_beginning(const Image& image);  // one that no request has led to
  // A state that no request has led to either, from a promised one whose content, or something newer, is in
  // all of its blocks.
  void add_mixture(const Image& image);

  // The node is also the number that the request writes into its sectors.
  State submit(Path& path, std::uint64_t sector, std::uint64_t sectors, bool zeros);
  // The newest request of this path was not carried out: the path is back where it was before. The node
  // stays, and nobody is in it.
  void take_back(Path& path);
  std::uint64_t value_of(State state) const { return nodes_[state].zeros ? 0 : state; }
  bool covers(State state, std::uint64_t sector) const {
    return sector >= nodes_[state].sector && sector < nodes_[state].sector + nodes_[state].sectors;
  }

  // What a block holds, as a value of an image, and back.
  std::uint64_t compose(const Sectors& words) const;
  std::uint64_t compose(const std::byte* block) const;  // by the first word of each sector
  std::uint64_t word_of(std::uint64_t value, std::uint64_t sector_in_block) const {
    return value < composed ? value : compositions_[value - composed][sector_in_block];
  }

  // States in which the volume is this image; several where requests change nothing.
  std::vector<State> matching(const Image& image) const;
  bool leads_to(State earlier, State later) const;

  bool promise(State state);  // false: it was already, or what came after it
  // The newest promised state of each branch.
  const std::vector<State>& promised() const { return promised_; }
  bool holds_all(State state) const;
  bool any_holds(const std::vector<State>& states, State promise) const;
  void release(State promise);  // nobody is to be held to it any more: it went with a disk, or at an
                                // administrator's word

  std::string explain(const Image& image) const;  // for a person: how the image differs from the state of its
                                                  // newest request

 private:
  struct Node {
    State parent;
    std::uint64_t hash;  // of the volume's content
    std::uint64_t sector, sectors;
    bool zeros;
  };
  template <class F>
  void for_each_block(const Node& node, const Image& image, std::uint64_t value, F f) const;  // f(block, what
                                                                                              // it holds
                                                                                              // then)
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
  mutable std::map<Sectors, std::uint64_t> known_;  // their values
};

}  // namespace twinloft::repl::sim
