// Recipients that a filter adds: who they are, and why a message with them is deferred.
#include "added_recipients.h"

#include "fake_filters.h"
#include "fakes.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

class SizedBody final : public StoredBody {
 public:
  explicit SizedBody(std::uint64_t bytes) {
    body_.memory.assign(bytes, 'x');
    body_.size = bytes;
  }
  Status append(std::string_view) override { return {}; }
  const MessageBody& body() const override { return body_; }

 private:
  MessageBody body_;
};

// As FakeUsers. The mail of "elsewhere" goes to a next hop.
class UsersWithHops final : public UserDb {
 public:
  LookupResult lookup(const LookupRequest& request) override {
    LookupResult found = users_.lookup(request);
    if (found && *found && request.local_part == "elsewhere") (*found)->user.next_hop = "store2";
    return found;
  }
  std::optional<LookupResult> lookup_now(const LookupRequest&) override { return std::nullopt; }

 private:
  FakeUsers users_;
};

class AddedRecipients : public testing::Test {
 protected:
  AddedRecipients() {
    config_.mailboxes = &mailboxes_;
    config_.session.recipients.detail_delimiter = "+";
  }
  std::expected<std::vector<Recipient>, Reply> find(std::initializer_list<const char*> added,
                                                    std::uint64_t bytes = 50) {
    Hub hub(config_, users_, deliverer_, clock_);
    FilteredMessage::Passed passed{std::make_shared<Envelope>(), {}, {}, std::make_shared<SizedBody>(bytes)};
    for (const char* to : added) passed.added.push_back(FakeFilters::added_recipient(to));
    return find_added(hub, passed);
  }
  std::string refusal(const char* added, std::uint64_t bytes = 50) {
    auto found = find({"ann@example.org", added}, bytes);
    return found ? "found" : fmt::format("{} {}", found.error().code, found.error().enhanced);
  }
  OsClock clock_;
  UsersWithHops users_;
  FakeDeliverer deliverer_;
  FakeMailboxes mailboxes_;
  ServerConfig config_;
};

TEST_F(AddedRecipients, AreFoundAsAtRcpt) {
  auto found = find({"ann+lists@example.org", "bob@example.org"});
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].text, "ann+lists@example.org");
  EXPECT_EQ((*found)[0].user.name, "ann@example.org");
  EXPECT_EQ((*found)[0].detail, "lists");
  EXPECT_EQ((*found)[1].user.name, "bob@example.org");
}

TEST_F(AddedRecipients, NeverRefuseAMessageForGood) {
  EXPECT_EQ(refusal("nobody@example.org"), "451 4.3.5");
  EXPECT_EQ(refusal("elsewhere@example.org"), "451 4.3.5") << "added recipients are users of this machine";
  EXPECT_EQ(refusal("broken@example.org"), "451 4.3.0");
  EXPECT_EQ(refusal("throw@example.org"), "451 4.3.0");
}

TEST_F(AddedRecipients, NeedRoomForTheChangedMessage) {
  EXPECT_EQ(refusal("quota-ann@example.org", 50), "found");
  EXPECT_EQ(refusal("quota-ann@example.org", 101), "451 4.3.5");
  EXPECT_EQ(refusal("quota-throws@example.org"), "451 4.3.0");
}

}  // namespace
}  // namespace twinloft::lmtpd
