// A stream over several paths in memory, which the test slows down, stops and ends.
#include "twinloft/spool-repl/stream/paths_stream.h"

#include <gtest/gtest.h>

#include "../support/manual_loop.h"
#include "../support/memory_stream.h"
#include "twinloft/base/random.h"
#include "twinloft/spool-repl/chunks/chunk.h"

namespace twinloft::repl::stream {
namespace {

using Bytes = std::vector<std::byte>;

struct PathsStreamTest : testing::Test {
  static constexpr Duration patience = std::chrono::milliseconds(1000);
  struct End {
    std::unique_ptr<PathsStream> stream;
    std::map<unsigned, MemoryStream*> paths;
    Bytes got, unsent;
    bool ended = false, failed = false;
    bool reads = true;
    std::size_t read_max = 10'000;
    std::vector<unsigned> usable;
    std::map<unsigned, std::string> lost;
    std::map<unsigned, bool> was_usable, on_purpose;
    Duration patience = PathsStreamTest::patience;
  };

  void make(PathUse use = PathUse::spares) {
    auto [near, far] = pair();
    make_end(a, std::move(near), use);
    make_end(b, std::move(far), use);
  }
  std::pair<std::unique_ptr<MemoryStream>, std::unique_ptr<MemoryStream>> pair() {
    auto there = std::make_shared<MemoryPipe>(), back = std::make_shared<MemoryPipe>();
    return {std::make_unique<MemoryStream>(back, there, limits),
            std::make_unique<MemoryStream>(there, back, limits)};
  }
  void make_end(End& e, std::unique_ptr<MemoryStream> first, PathUse use) {
    e.paths[0] = first.get();
    e.stream = std::make_unique<PathsStream>(loop, std::move(first));
    e.stream->start(Stream::readable, {{}, [this, &e](unsigned ready) { on_ready(e, ready); }});
    e.stream->begin(0, use, e.patience,
                    {[&e](unsigned number) { e.usable.push_back(number); },
                     [&e](const PathsStream::LostPath& p) {
                       e.lost[p.number] = p.reason;
                       e.was_usable[p.number] = p.was_usable;
                       e.on_purpose[p.number] = p.on_purpose;
                       e.paths.erase(p.number);
                     }},
                    {}, {});
  }
  void add_path(unsigned number) {
    auto [near, far] = pair();
    near->start(0, {});
    far->start(0, {});
    a.paths[number] = near.get();
    b.paths[number] = far.get();
    a.stream->add(number, std::move(near), {}, {});
    b.stream->add(number, std::move(far), {}, {});
  }
  void on_ready(End& e, unsigned ready) {
    if ((ready & Stream::writable) && !e.ended && !e.failed) push(e);
    while (ready & Stream::readable && e.reads && !e.ended && !e.failed) {
      Bytes part(e.read_max);
      iovec into{part.data(), part.size()};
      auto got = e.stream->read({&into, 1});
      e.failed = !got;
      e.ended = got && got->ended;
      if (!got || got->bytes == 0) break;
      e.got.insert(e.got.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(got->bytes));
    }
    if (e.ended || e.failed) e.stream->want(0);
  }
  void push(End& e) {
    iovec from{e.unsent.data(), e.unsent.size()};
    auto accepted = e.stream->write({&from, 1});
    if (!accepted) return e.stream->want(0);
    e.unsent.erase(e.unsent.begin(), e.unsent.begin() + static_cast<std::ptrdiff_t>(*accepted));
    e.stream->want(Stream::readable | (e.unsent.empty() ? 0u : unsigned{Stream::writable}));
  }
  void send(End& e, const Bytes& bytes) {
    e.unsent.insert(e.unsent.end(), bytes.begin(), bytes.end());
    push(e);
  }
  Bytes some(std::size_t count) {
    Bytes out(count);
    random.fill(out);
    return out;
  }
  // Silent paths deliver nothing in either direction, and report nothing.
  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (End* e : {&a, &b})
        for (auto [number, path] : std::map(e->paths))
          if (!silent.contains(number) && !slow.contains(number) && e->stream->has_path(number))
            moved |= path->turn();
      moved |= loop.run_posted();
    }
  }
  void pass(Duration time) {
    for (Duration step = patience / 20; time > Duration(0); time -= step) {
      loop.pass(step);
      for (auto [number, bytes] : slow)
        for (End* e : {&a, &b}) {
          auto path = e->paths.find(number);
          if (path == e->paths.end() || !e->stream->has_path(number)) continue;
          path->second->limits.read_max = bytes;
          path->second->turn();
        }
      run();
    }
  }
  std::uint64_t sent_by(const End& e, unsigned number) {
    for (const auto& p : e.stream->path_states())
      if (p.number == number) return p.sent;
    return 0;
  }

  MemoryStream::Limits limits{};
  std::set<unsigned> silent;
  std::map<unsigned, std::size_t> slow;  // bytes in each direction, for each step of pass()
  ManualLoop loop;
  SeededRandom random{5};
  End a, b;
};

TEST_F(PathsStreamTest, OnePathIsAStream) {
  for (std::size_t portion : {std::size_t{1}, std::size_t{7}, std::size_t{5000}, SIZE_MAX}) {
    limits = {.read_max = portion, .write_max = portion, .room = portion};
    a = {}, b = {};
    make();
    std::size_t count = portion < 10 ? 3000 : 700'000;
    Bytes there = some(count), back = some(count / 2);
    send(a, there);
    send(b, back);
    run();
    EXPECT_TRUE(b.got == there) << portion;
    EXPECT_TRUE(a.got == back) << portion;
    a.stream->close();
    run();
    EXPECT_TRUE(b.ended);
    EXPECT_TRUE(b.lost.empty()) << "the end of the whole is no lost path";
  }
}

TEST_F(PathsStreamTest, BytesBeforeTheFirstChunkPassAsTheyAre) {
  auto [near, far] = pair();
  PathsStream one(loop, std::move(near)), other(loop, std::move(far));
  Bytes hello = some(30), got(100);
  iovec from{hello.data(), hello.size()}, into{got.data(), got.size()};
  EXPECT_EQ(one.write({&from, 1}).value(), 30u);
  EXPECT_EQ(other.read({&into, 1}).value().bytes, 30u);
  got.resize(30);
  EXPECT_TRUE(got == hello);
}

TEST_F(PathsStreamTest, TheFirstChunksMayBeReadWithTheHello) {
  auto there = std::make_shared<MemoryPipe>(), back = std::make_shared<MemoryPipe>();
  make_end(a, std::make_unique<MemoryStream>(back, there, limits), PathUse::spares);
  Bytes all = some(500);
  send(a, all);
  Bytes received = std::exchange(there->bytes, {});
  auto far = std::make_unique<MemoryStream>(there, back, limits);
  b.stream = std::make_unique<PathsStream>(loop, std::move(far));
  b.stream->start(Stream::readable, {{}, [this](unsigned ready) { on_ready(b, ready); }});
  Bytes hello = some(9);
  b.stream->begin(0, PathUse::spares, patience, {}, received, hello);
  run();
  EXPECT_TRUE(b.got == all);
  EXPECT_TRUE(Bytes(back->bytes.begin(), back->bytes.begin() + 9) == hello) << "what was left of the hello";
}

TEST_F(PathsStreamTest, ASpareCarriesNothingUntilThePathIsLost) {
  make();
  add_path(1);
  run();
  EXPECT_EQ(a.usable, std::vector<unsigned>{1});
  std::uint64_t before = sent_by(a, 1);
  Bytes all = some(900'000);
  send(a, all);
  run();
  EXPECT_TRUE(b.got == all);
  EXPECT_EQ(sent_by(a, 1), before);
  EXPECT_GT(sent_by(a, 0), all.size());
}

TEST_F(PathsStreamTest, ASilentPathIsLostAndItsBytesComeByTheOther) {
  for (PathUse use : {PathUse::spares, PathUse::together}) {
    for (unsigned stopped : {0u, 1u}) {
      a = {}, b = {}, silent = {};
      make(use);
      add_path(1);
      pass(patience);
      silent = {stopped};
      Bytes there = some(600'000), back = some(300'000);
      send(a, there);
      send(b, back);
      pass(patience * 3 / 2);
      EXPECT_TRUE(b.got == there) << stopped;
      EXPECT_TRUE(a.got == back) << stopped;
      EXPECT_EQ(a.lost.size() + b.lost.size(), 2u);
      EXPECT_FALSE(a.stream->has_path(stopped) || b.stream->has_path(stopped));
      EXPECT_FALSE(a.ended || b.ended || a.failed || b.failed);
    }
  }
}

// On a busy machine each timer is late. The loss is found before the peer counts as lost.
TEST_F(PathsStreamTest, LateTimersFindALossInTheTimeOfAFew) {
  make();
  add_path(1);
  pass(patience);
  silent = {0};
  Bytes all = some(1000);
  send(a, all);
  auto stall = [&](int times) {
    for (int i = 0; i < times; ++i) loop.stall(patience * 3 / 5), run();
  };
  stall(4);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty()) << "too early to tell";
  stall(3);
  EXPECT_EQ(a.lost.size() + b.lost.size(), 2u);
  EXPECT_TRUE(b.got == all);
}

// Without a sign of life from any path, it is not known which one is lost.
TEST_F(PathsStreamTest, WhenAllAreSilentNoneIsLost) {
  make();
  add_path(1);
  pass(patience);
  silent = {0, 1};
  pass(patience * 20);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  silent = {};
  Bytes all = some(1000);
  send(a, all);
  run();
  EXPECT_TRUE(b.got == all);
}

// A suspended process finds that time has passed. What has arrived meanwhile is read before it judges.
TEST_F(PathsStreamTest, ASuspendedProcessLosesNoPath) {
  make();
  add_path(1);
  pass(patience);
  for (int i = 0; i < 10; ++i) {
    // Only b runs, with many of its turns.
    for (int turn = 0; turn < 3; ++turn) b.paths[0]->turn(), b.paths[1]->turn();
    loop.pass(patience / 50);
  }
  pass(patience * 2);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
}

// 64 KiB a second with a patience of one second: a chunk takes four of them, and a trial two.
TEST_F(PathsStreamTest, ASlowPathIsNotLost) {
  for (PathUse use : {PathUse::spares, PathUse::together}) {
    a = {}, b = {};
    limits.room = 50'000;
    make(use);
    slow = {{0, 3300}, {1, 3300}};
    add_path(1);
    Bytes there = some(1'500'000), back = use == PathUse::spares ? Bytes() : some(200'000);
    send(a, there);
    send(b, back);
    pass(patience * 60);
    EXPECT_TRUE(a.lost.empty() && b.lost.empty()) << a.lost[0] << a.lost[1] << b.lost[0] << b.lost[1];
    EXPECT_TRUE(b.got == there) << b.got.size();
    EXPECT_TRUE(a.got == back);
    EXPECT_EQ(a.usable.size() + b.usable.size(), 2u);
    slow = {};
  }
}

TEST_F(PathsStreamTest, TheSidesMayHaveOtherPatience) {
  a.patience = std::chrono::milliseconds(500);
  b.patience = std::chrono::minutes(1);
  make();
  add_path(1);
  for (int i = 0; i < 100; ++i) {
    send(a, some(1000));
    send(b, some(1000));
    pass(patience / 10);
  }
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
}

// The other side learns by the path that carries how much was read, whatever the first path does.
TEST_F(PathsStreamTest, AFirstPathThatIsNotThereHoldsUpNoOther) {
  make();
  add_path(1);
  run();
  a.paths[0]->fails_at = a.paths[0]->calls;
  send(a, some(10));
  run();
  slow = {{0, 0}};
  add_path(0);  // its trial does not get through
  Bytes all = some(60u << 20);
  send(a, all);
  run();
  EXPECT_EQ(b.got.size(), all.size() + 10) << "without a turn of the timers";
}

TEST_F(PathsStreamTest, APathIsClosedOnPurpose) {
  make();
  add_path(1);
  run();
  Bytes all = some(300'000);
  send(a, all);
  a.stream->close_path(0, "of no use");
  run();
  EXPECT_TRUE(a.on_purpose[0] && b.on_purpose[0]);
  EXPECT_EQ(b.lost[0], "the other side does not use it any more");
  EXPECT_TRUE(b.got == all);
  a.stream->close_path(1, "of no use");
  run();
  EXPECT_TRUE(a.stream->has_path(1)) << "the last one stays";
}

TEST_F(PathsStreamTest, TheEndOfTheWholeIsNoLostPath) {
  make();
  add_path(1);
  run();
  a.stream->close();
  for (unsigned number : {0u, 1u})
    for (int turn = 0; turn < 3; ++turn) {
      if (b.stream->has_path(number)) b.paths[number]->turn();
      loop.run_posted();
    }
  EXPECT_TRUE(b.ended);
  EXPECT_TRUE(b.lost.empty());
}

TEST_F(PathsStreamTest, AStreamWithoutPathsIsAsStuckAsItsLastOne) {
  for (bool stuck : {false, true}) {
    a = {}, b = {};
    make();
    run();
    a.paths[0]->stuck = stuck;
    b.stream->close();
    run();
    EXPECT_TRUE(a.ended);
    EXPECT_EQ(a.stream->is_stuck(), stuck);
  }
}

// Pings come back, and what this side sends does not get through. The other side gives the path up.
TEST_F(PathsStreamTest, APathThatDropsInOneDirectionIsLost) {
  make();
  add_path(1);
  pass(patience);
  b.paths[0]->limits.read_max = 0;
  Bytes all = some(1000);
  send(a, all);
  pass(patience * 2);
  EXPECT_TRUE(b.got == all);
  EXPECT_TRUE(a.lost.contains(0) && b.lost.contains(0));
}

TEST_F(PathsStreamTest, APathWithoutDataOfFullSizeIsNotUsed) {
  make(PathUse::together);
  limits.room = 60'000;
  auto [near, far] = pair();
  far->limits.read_max = 0;
  near->start(0, {});
  far->start(0, {});
  a.paths[1] = near.get();
  b.paths[1] = far.get();
  a.stream->add(1, std::move(near), {}, {});
  b.stream->add(1, std::move(far), {}, {});
  Bytes all = some(600'000);
  send(a, all);
  run();
  EXPECT_TRUE(b.got == all);
  EXPECT_TRUE(a.usable.empty() && b.usable.empty());
  pass(patience * 2);
  EXPECT_TRUE(a.lost.contains(1) && !a.was_usable[1]);
}

TEST_F(PathsStreamTest, BothPathsCarryTogether) {
  make(PathUse::together);
  add_path(1);
  run();
  limits.room = 100'000;
  for (auto& [number, path] : a.paths) path->limits.room = 100'000;
  Bytes all = some(4'000'000);
  send(a, all);
  run();
  EXPECT_TRUE(b.got == all);
  EXPECT_GT(sent_by(a, 0), 1'000'000u);
  EXPECT_GT(sent_by(a, 1), 1'000'000u);
}

TEST_F(PathsStreamTest, AFailedPathIsReplaced) {
  make();
  add_path(1);
  run();
  a.paths[0]->fails_at = a.paths[0]->calls;
  Bytes all = some(200'000);
  send(a, all);
  run();
  EXPECT_TRUE(b.got == all);
  EXPECT_EQ(a.lost[0], "broken by the test");
  EXPECT_EQ(b.lost[0], "the other side has closed it");
  add_path(0);
  run();
  EXPECT_EQ(a.usable, (std::vector<unsigned>{1, 0}));
  std::uint64_t before = sent_by(a, 1);
  send(a, all);
  run();
  EXPECT_EQ(b.got.size(), 2 * all.size());
  EXPECT_EQ(sent_by(a, 1), before) << "the first path carries again";
}

TEST_F(PathsStreamTest, ANewConnectionOfAPathReplacesTheOld) {
  make();
  silent = {0};
  Bytes all = some(1000);
  send(a, all);
  silent = {};
  MemoryStream* dead = a.paths[0];
  add_path(0);
  EXPECT_EQ(dead->state(), Stream::State::closed);
  run();
  EXPECT_TRUE(b.got == all);
  EXPECT_EQ(a.stream->path_states().size(), 1u);
  EXPECT_TRUE(a.lost.empty()) << "there is such a path";
}

TEST_F(PathsStreamTest, TheLossOfTheLastPathEndsTheStream) {
  make();
  add_path(1);
  run();
  for (unsigned number : {0u, 1u}) a.paths[number]->fails_at = a.paths[number]->calls;
  send(a, some(1000));
  pass(patience);
  EXPECT_TRUE(a.failed);
  iovec none{};
  EXPECT_FALSE(a.stream->write({&none, 1}));
  EXPECT_TRUE(b.ended);
}

// The receiver's memory and the sender's are bounded by what the owner reads.
TEST_F(PathsStreamTest, AnOwnerThatDoesNotReadHoldsUpTheOther) {
  make(PathUse::together);
  add_path(1);
  run();
  b.reads = false;
  b.stream->want(0);
  send(a, Bytes(40u << 20));
  pass(patience * 5);
  EXPECT_NEAR(static_cast<double>(a.unsent.size()), 24 << 20, 1 << 20);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty()) << "the paths are alive";
  b.reads = true;
  b.stream->want(Stream::readable);
  pass(patience);
  EXPECT_EQ(b.got.size(), 40u << 20);
}

TEST_F(PathsStreamTest, WrongBytesCostThePathAlone) {
  make();
  add_path(1);
  run();
  Bytes wrong(100, std::byte{0x55});
  iovec from{wrong.data(), wrong.size()};
  b.paths[1]->write({&from, 1}).value();
  run();
  EXPECT_EQ(a.lost[1], "bytes that are no chunk");
  Bytes all = some(1000);
  send(a, all);
  run();
  EXPECT_TRUE(b.got == all);
}

TEST_F(PathsStreamTest, APartOfAChunkIsPassedOn) {
  make();
  Bytes all = some(100'000);
  send(a, all);
  b.paths[0]->limits.read_max = 5000;
  b.paths[0]->turn();
  EXPECT_EQ(b.got.size(), 5000 - chunks::chunk_header_bytes);
  run();
  EXPECT_TRUE(b.got == all);
}

TEST_F(PathsStreamTest, ConfirmationsOfWhatWasNotSentCostThePath) {
  make();
  add_path(1);
  run();
  auto wrong = chunks::encode_chunk_header({.taken = 1});
  iovec from{wrong.data(), wrong.size()};
  b.paths[1]->write({&from, 1}).value();
  run();
  EXPECT_NE(a.lost[1].find("of which"), std::string::npos) << a.lost[1];
}

// Streams that come and go at random, with bytes in both directions.
TEST_F(PathsStreamTest, NothingIsLostWhilePathsComeAndGo) {
  std::size_t losses = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SeededRandom chance(seed);
    limits = {.read_max = 1 + chance.below(100'000),
              .write_max = 1 + chance.below(100'000),
              .room = 1 + chance.below(200'000)};
    a = {}, b = {}, silent = {};
    make(chance.below(2) ? PathUse::together : PathUse::spares);
    for (unsigned number : {1u, 2u}) add_path(number);
    run();
    Bytes there, back;
    for (int step = 0; step < 60; ++step) {
      auto number = static_cast<unsigned>(chance.below(3));
      switch (chance.below(5)) {
        case 0:
        case 1: {
          Bytes more = some(chance.below(30'000));
          bool is_there = chance.below(2) == 0;
          auto& all = is_there ? there : back;
          all.insert(all.end(), more.begin(), more.end());
          send(is_there ? a : b, more);
          break;
        }
        case 2:
          silent.clear();
          if (chance.below(2)) silent.insert(number);
          break;
        case 3:
          pass(patience / 4);
          break;
        case 4:
          if (!a.stream->has_path(number) && !b.stream->has_path(number)) add_path(number);
          break;
      }
    }
    silent.clear();
    pass(patience * 2);
    losses += a.lost.size() + b.lost.size();
    ASSERT_FALSE(a.ended || b.ended || a.failed || b.failed) << seed;
    EXPECT_TRUE(b.got == there) << seed << " " << b.got.size() << " of " << there.size();
    EXPECT_TRUE(a.got == back) << seed << " " << a.got.size() << " of " << back.size();
  }
  EXPECT_GT(losses, 30u);
}

}  // namespace
}  // namespace twinloft::repl::stream
