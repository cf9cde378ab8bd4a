#include "history.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "twinloft/base/bytes.h"

namespace twinloft::repl::sim {

// The hash of one block. The hash of a volume is the exclusive or of all (Zobrist), so a request changes only
// its own blocks' parts.
std::uint64_t History::hash_of(std::uint64_t block, std::uint64_t value) {
  if (value == 0) return 0;
  std::uint64_t x = (block + 1) * 0x9e3779b97f4a7c15 ^ value * 0xd6e8feb86659fd93;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

History::History(Image beginning) {
  add_beginning(beginning);
}

History::State History::add(Node node) {
  nodes_.push_back(node);
  auto state = static_cast<State>(nodes_.size() - 1);
  by_hash_.emplace(node.hash, state);
  return state;
}

History::State History::add_beginning(const Image& image) {
  std::uint64_t hash = 0;
  for (std::uint64_t b = 0; b < image.size(); ++b) hash ^= hash_of(b, image[b]);
  auto self = static_cast<State>(nodes_.size());
  beginnings_[self] = image;
  return add({self, hash, 0, 0, false});
}

std::uint64_t History::compose(const Sectors& words) const {
  if (std::all_of(words.begin(), words.end(), [&](std::uint64_t w) { return w == words[0]; }))
    return words[0];
  auto [it, fresh] = known_.emplace(words, composed + compositions_.size());
  if (fresh) compositions_.push_back(words);
  return it->second;
}

std::uint64_t History::compose(const std::byte* block) const {
  Sectors words;
  for (std::uint64_t i = 0; i < sectors_in_block; ++i)
    words[i] = load_le<std::uint64_t>(block + i * sector_bytes);
  return compose(words);
}

// Each sector is as in that state, or newer.
bool History::contains(const Image& image, State state) const {
  Image had = image_of(state);
  std::vector<bool> zeroed(image.size() * sectors_in_block);
  for (State s = state + 1; s < nodes_.size(); ++s)
    if (nodes_[s].zeros)
      std::fill_n(zeroed.begin() + static_cast<std::ptrdiff_t>(nodes_[s].sector), nodes_[s].sectors, true);
  for (std::size_t b = 0; b < image.size(); ++b) {
    if (image[b] == had[b]) continue;
    for (std::size_t i = 0; i < sectors_in_block; ++i) {
      std::uint64_t word = word_of(image[b], i);
      bool newer = (word > state && word < foreign) || (word == 0 && zeroed[b * sectors_in_block + i]);
      if (word != word_of(had[b], i) && !newer) return false;
    }
  }
  return true;
}

template <class F>
void History::for_each_block(const Node& n, const Image& image, std::uint64_t value, F f) const {
  std::uint64_t end = n.sector + n.sectors;
  for (std::uint64_t at = n.sector; at < end;) {
    std::uint64_t block = at / sectors_in_block, next = std::min(end, (block + 1) * sectors_in_block);
    if (next - at == sectors_in_block) {
      f(block, value);
    } else {
      Sectors words;
      for (std::uint64_t i = 0; i < sectors_in_block; ++i) words[i] = word_of(image[block], i);
      for (std::uint64_t s = at; s < next; ++s) words[s % sectors_in_block] = value;
      f(block, compose(words));
    }
    at = next;
  }
}

void History::add_mixture(const Image& image) {
  State state = add_beginning(image);
  for (State p : promised_)
    if (contains(image, p)) nodes_[state].parent = p;
}

History::State History::submit(Path& path, std::uint64_t sector, std::uint64_t sectors, bool zeros) {
  auto self = static_cast<State>(nodes_.size());
  Node node{path.tip, nodes_[path.tip].hash, sector, sectors, zeros};
  for_each_block(node, path.image, zeros ? 0 : self, [&](std::uint64_t b, std::uint64_t value) {
    node.hash ^= hash_of(b, path.image[b]) ^ hash_of(b, value);
    path.image[b] = value;
  });
  path.tip = add(node);
  return path.tip;
}

void History::take_back(Path& path) {
  path.tip = nodes_[path.tip].parent;
  path.image = image_of(path.tip);
}

std::vector<History::State> History::matching(const Image& image) const {
  std::uint64_t hash = 0;
  for (std::uint64_t b = 0; b < image.size(); ++b) hash ^= hash_of(b, image[b]);
  auto [from, to] = by_hash_.equal_range(hash);
  std::vector<State> found;
  for (auto it = from; it != to; ++it) found.push_back(it->second);
  std::sort(found.begin(), found.end());
  return found;
}

bool History::leads_to(State earlier, State later) const {
  while (later > earlier && nodes_[later].parent != later) later = nodes_[later].parent;
  return later == earlier;
}

// The earliest state on this path with the same content: a replica there has all of it.
History::State History::earliest_like(State state) const {
  auto [from, to] = by_hash_.equal_range(nodes_[state].hash);
  State earliest = state;
  for (auto it = from; it != to; ++it)
    if (it->second < earliest && leads_to(it->second, state)) earliest = it->second;
  return earliest;
}

bool History::promise(State state) {
  state = earliest_like(state);
  if (std::any_of(promised_.begin(), promised_.end(), [&](State p) { return leads_to(state, p); }))
    return false;
  std::erase_if(promised_, [&](State p) { return leads_to(p, state); });
  promised_.push_back(state);
  return true;
}

bool History::holds_all(State state) const {
  return std::all_of(promised_.begin(), promised_.end(), [&](State p) { return leads_to(p, state); });
}

bool History::any_holds(const std::vector<State>& states, State promise) const {
  return std::any_of(states.begin(), states.end(), [&](State s) { return leads_to(promise, s); });
}

void History::release(State promise) {
  std::erase(promised_, promise);
}

Image History::image_of(State state) const {
  std::vector<State> path;
  for (; !beginnings_.contains(state); state = nodes_[state].parent) path.push_back(state);
  Image image = beginnings_.at(state);
  for (auto s = path.rbegin(); s != path.rend(); ++s) {
    for_each_block(nodes_[*s], image, value_of(*s),
                   [&](std::uint64_t b, std::uint64_t value) { image[b] = value; });
  }
  return image;
}

std::string History::explain(const Image& image) const {
  std::uint64_t newest = 0;
  for (std::uint64_t value : image)
    for (std::size_t i = 0; i < (value < composed ? 1 : sectors_in_block); ++i)
      if (word_of(value, i) < foreign) newest = std::max(newest, word_of(value, i));
  std::string text = fmt::format("{} requests, promised: {}; ", nodes_.size() - 1,
                                 fmt::join(promised_, ", "));
  if (newest >= nodes_.size())
    return text + fmt::format("a block holds {}, which nobody has written", newest);
  if (auto states = matching(image); !states.empty())
    return text + fmt::format("it is the state after request {}", fmt::join(states, ", "));
  Image state = image_of(static_cast<State>(newest));
  std::size_t wrong = 0;
  std::string blocks;
  for (std::size_t b = 0; b < image.size(); ++b) {
    if (state[b] == image[b]) continue;
    if (++wrong <= 8) blocks += fmt::format(" block {} holds {} not {};", b, image[b], state[b]);
  }
  return text +
         fmt::format(
             "the newest request that it shows is {}, and {} blocks differ from the state after that:{}",
             newest, wrong, blocks);
}

}  // namespace twinloft::repl::sim
