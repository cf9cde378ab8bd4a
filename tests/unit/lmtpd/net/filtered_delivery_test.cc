// The stages of a message's deliveries: added recipients first, then those that are not removed.
#include "filtered_delivery.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

std::vector<Recipient> to(std::initializer_list<const char*> names) {
  std::vector<Recipient> out;
  for (const char* name : names) {
    out.emplace_back();
    out.back().text = name;
  }
  return out;
}
std::vector<std::string> names_of(const std::optional<FilteredDelivery::Stage>& stage) {
  std::vector<std::string> out;
  if (!stage) return {"no stage"};
  for (const Recipient& one : stage->envelope->recipients) out.push_back(one.text);
  return out;
}
std::vector<Reply> codes(std::initializer_list<int> all) {
  std::vector<Reply> out;
  for (int code : all) out.push_back({code, code < 300 ? "2.0.0" : "4.0.0", "x"});
  return out;
}
std::vector<int> codes_of(FilteredDelivery&& delivery) {
  std::vector<int> out;
  for (const Reply& reply : std::move(delivery).replies()) out.push_back(reply.code);
  return out;
}

struct Stages : testing::Test {
  Stages() {
    auto made = std::make_shared<Envelope>();
    made->id = "id.1";
    made->from = "a@d";
    made->recipients = to({"ann", "bob", "carl"});
    envelope = made;
  }
  FilteredDelivery delivery(std::vector<bool> removed, std::vector<Recipient> added) {
    return {FilteredMessage::Passed{envelope, std::move(removed), {}, nullptr}, std::move(added)};
  }
  using Names = std::vector<std::string>;
  std::shared_ptr<const Envelope> envelope;
};

TEST_F(Stages, AnUnchangedEnvelopeIsOneStage) {
  FilteredDelivery all = delivery({}, {});
  auto stage = all.begin();
  ASSERT_TRUE(stage);
  EXPECT_EQ(stage->envelope, envelope);
  EXPECT_FALSE(all.take(codes({250, 452, 250})));
  EXPECT_EQ(codes_of(std::move(all)), (std::vector{250, 452, 250}));
}

TEST_F(Stages, AddedRecipientsAreTheFirstStage) {
  FilteredDelivery all = delivery({false, false, false}, to({"copy", "audit"}));
  auto stage = all.begin();
  EXPECT_EQ(names_of(stage), (Names{"copy", "audit"}));
  EXPECT_EQ(stage->envelope->from, "a@d");
  EXPECT_EQ(stage->envelope->id, "id.1");
  EXPECT_EQ(names_of(all.take(codes({250, 250}))), (Names{"ann", "bob", "carl"}));
  EXPECT_FALSE(all.take(codes({250, 550, 451})));
  EXPECT_EQ(codes_of(std::move(all)), (std::vector{250, 550, 451}));
}

TEST_F(Stages, OneFailedCopyDefersAll) {
  FilteredDelivery all = delivery({false, true, false}, to({"copy", "audit"}));
  ASSERT_TRUE(all.begin());
  EXPECT_FALSE(all.take(codes({250, 550}))) << "no original recipient is begun";
  EXPECT_EQ(codes_of(std::move(all)), (std::vector{451, 451, 451}));
}

TEST_F(Stages, RemovedRecipientsKeepTheirPlaces) {
  FilteredDelivery all = delivery({true, false, false}, {});
  EXPECT_EQ(names_of(all.begin()), (Names{"bob", "carl"}));
  EXPECT_FALSE(all.take(codes({451, 452})));
  EXPECT_EQ(codes_of(std::move(all)), (std::vector{250, 451, 452}));
}

TEST_F(Stages, AllRemoved) {
  FilteredDelivery none = delivery({true, true, true}, {});
  EXPECT_FALSE(none.begin());
  EXPECT_EQ(codes_of(std::move(none)), (std::vector{250, 250, 250}));
  FilteredDelivery copy = delivery({true, true, true}, to({"copy"}));
  EXPECT_EQ(names_of(copy.begin()), Names{"copy"});
  EXPECT_FALSE(copy.take(codes({250})));
  EXPECT_EQ(codes_of(std::move(copy)), (std::vector{250, 250, 250}));
}

}  // namespace
}  // namespace twinloft::lmtpd
