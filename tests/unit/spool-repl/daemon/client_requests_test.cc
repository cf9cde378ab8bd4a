#include "client_requests.h"

#include <gtest/gtest.h>

#include "../support/manual_loop.h"

namespace twinloft::repl::daemon {
namespace {

struct ClientRequestsTest : testing::Test {
  ManualLoop loop;
  std::vector<core::ClientRequest> seen;
  ClientRequests requests{loop, 1u << 20, [this](core::Event&& e) { seen.push_back(std::get<0>(e)); }};
};

TEST_F(ClientRequestsTest, GivesEachRequestItsOwnEnd) {
  int done = 0;
  std::byte data[512];
  ports::IoRequest one, two;
  for (ports::IoRequest* r : {&one, &two}) {
    r->op = ports::IoOp::write;
    r->fua = r == &two;
    r->offset = 4096;
    r->length = sizeof data;
    r->data = data;
    r->owner = &done;
    r->done = [](ports::IoRequest& request) { ++*static_cast<int*>(request.owner); };
    requests.submit(*r);
  }
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].op, core::ClientOp::write);
  EXPECT_TRUE(!seen[0].fua && seen[1].fua);
  EXPECT_EQ(seen[0].offset, 4096u);
  EXPECT_EQ(seen[0].length, sizeof data);
  EXPECT_EQ(seen[0].data, data);
  requests.complete({seen[1].id, EIO});
  EXPECT_EQ(done, 1);
  EXPECT_EQ(two.error, EIO);
  requests.complete({seen[0].id, 0});
  EXPECT_EQ(done, 2);
  EXPECT_EQ(one.error, 0);
}

TEST_F(ClientRequestsTest, KnowsHowLongTheOldestHasWaited) {
  ports::IoRequest r;
  r.done = [](ports::IoRequest&) {};
  EXPECT_EQ(requests.oldest_wait(), Duration(0));
  requests.submit(r);
  loop.pass(std::chrono::seconds(3));
  EXPECT_EQ(requests.oldest_wait(), std::chrono::seconds(3));
  requests.complete({seen[0].id, 0});
  EXPECT_EQ(requests.oldest_wait(), Duration(0));
}

TEST_F(ClientRequestsTest, ItsOwnFlushIsNobodysRequest) {
  int flushed = 0;
  requests.flush([&] { ++flushed; });
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].op, core::ClientOp::flush);
  loop.pass(std::chrono::seconds(3));
  EXPECT_EQ(requests.oldest_wait(), Duration(0)) << "the request is not counted";
  requests.complete({seen[0].id, EIO});
  EXPECT_EQ(flushed, 1);
}

}  // namespace
}  // namespace twinloft::repl::daemon
