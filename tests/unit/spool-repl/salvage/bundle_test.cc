// A bundle is complete, or it is refused with a reason.
#include "twinloft/spool-repl/salvage/bundle.h"

#include <unistd.h>

#include <filesystem>

#include "fault_ops.h"
#include "spool.h"

namespace twinloft::repl::salvage {
namespace {

namespace fs = std::filesystem;
using Fault = FaultOps::Fault;

Manifest sample() {
  Manifest out;
  out.volume = Uuid::parse(volume_text).value();
  out.parting = {2, 48211, 3, Uuid::parse("11111111-2222-4333-8444-555555555555").value()};
  out.window_s = 300;
  out.layouts = {"%d/%n/Maildir", "odd layout/%n"};
  Sha256 a, b;
  a.bytes.fill(std::byte{0xa1});
  b.bytes.fill(std::byte{0x0b});
  out.messages = {
      {1, Kind::after, "ann@example.org", ann, "", true, "1.a", 10, a, b, {1, 2}, {3, 999'999'999}, {-4, 0}},
      {7, Kind::uncertain, "-", "-", ".Odd %\n\xff", false, "x y:2,FS", 0, b, a, {}, {}, {}}};
  out.problems = {{"ann/new/\x01", "a fifo: 100%"}, {"", "and 3 more"}};
  return out;
}

TEST(Manifest, ComesBackAsItWas) {
  std::string text = encode_manifest(sample());
  auto back = decode_manifest(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, sample());
  EXPECT_EQ(encode_manifest(*back), text);
}

TEST(Manifest, AsTheFormatDocumentHasIt) {
  std::string text = encode_manifest(sample());
  EXPECT_TRUE(text.starts_with(
      "#twinloft-salvage-bundle 1\nvolume 0b7e0f3a-52a1-4c8e-9d5f-64a4d9f0b1c2\n"
      "parting 2 48211 3 11111111-2222-4333-8444-555555555555\nwindow 300\nlayout %25d/%25n/Maildir\n"
      "layout odd%20layout/%25n\nmessage 1 after ann@example.org example.org/ann/Maildir - new 1.a 10 a1a1"))
      << text;
  EXPECT_NE(text.find("message 7 uncertain %2D %2D .Odd%20%25%0A%FF cur x%20y:2,FS 0 "), text.npos);
  EXPECT_NE(text.find(" 1.000000002 3.999999999 -4.000000000\n"), text.npos);
  EXPECT_NE(text.find("problem - and%203%20more\n#end messages=2 sha256="), text.npos);
}

TEST(Manifest, EveryChangedByteAndEveryShorterTextIsRefused) {
  const std::string text = encode_manifest(sample());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(decode_manifest(changed)) << i;
    EXPECT_FALSE(decode_manifest(text.substr(0, i))) << i;
  }
}

TEST(Manifest, WhatLeadsOutOfTheSpoolIsRefused) {
  for (auto change : std::vector<std::function<void(Message&)>>{
           [](Message& m) { m.maildir = "../x"; }, [](Message& m) { m.maildir = "/etc"; },
           [](Message& m) { m.maildir = "a//b"; }, [](Message& m) { m.maildir = ""; },
           [](Message& m) { m.folder = "Sent"; }, [](Message& m) { m.folder = ".."; },
           [](Message& m) { m.folder = ".a/b"; }, [](Message& m) { m.name = "../1"; },
           [](Message& m) { m.name = ""; }, [](Message& m) { m.user = ""; }, [](Message& m) { m.number = 7; },
           [](Message& m) { m.maildir = std::string("a\0b", 3); }}) {
    Manifest bad = sample();
    change(bad.messages[0]);
    EXPECT_FALSE(decode_manifest(encode_manifest(bad)));
  }
}

TEST(Manifest, AnotherVersionIsNamed) {
  auto back = decode_manifest("#twinloft-salvage-bundle 2\n");
  ASSERT_FALSE(back);
  EXPECT_NE(back.error().message.find("another version"), std::string::npos);
}

class BundleTest : public testing::Test {
 protected:
  BundleTest() {
    loser_.put(ann + "/new/1.a", late("one"));
    loser_.put(bob + "/new/2.b", late("two", "bob@example.org"));
  }
  // The error of Bundle::open(), or "".
  std::string refusal() {
    auto opened = Bundle::open(path_);
    return opened ? "" : opened.error().message;
  }
  // The error of the first damaged message.
  std::string damage() {
    Bundle bundle = open_bundle(path_);
    for (const Message& m : bundle.manifest().messages)
      if (auto good = bundle.verify(m); !good) return good.error().message;
    return "";
  }

  Spool loser_;
  TemporaryDirectory beside_;
  std::string path_ = beside_ / "bundle";
};

TEST_F(BundleTest, DamageIsFound) {
  extract_from(loser_, path_);
  EXPECT_EQ(damage(), "");
  std::string content = read(path_ + "/messages/2");
  write(path_ + "/messages/2", content.substr(0, content.size() - 1));
  EXPECT_NE(damage().find("messages/2: " + std::to_string(content.size() - 1) + " bytes, but"),
            std::string::npos)
      << damage();
  std::string changed = content;
  changed[20] = 'X';  // in the trace, which the content's digest does not cover
  write(path_ + "/messages/2", changed);
  EXPECT_NE(damage().find("messages/2: its content differs"), std::string::npos) << damage();
  fs::remove(path_ + "/messages/2");
  EXPECT_NE(damage().find("No such file"), std::string::npos) << damage();
  std::string manifest = read(path_ + "/manifest");
  write(path_ + "/manifest", manifest.substr(0, manifest.size() / 2));
  EXPECT_NE(refusal().find("extract the bundle again"), std::string::npos) << refusal();
}

TEST_F(BundleTest, WhatIsNoBundleIsRefused) {
  EXPECT_NE(refusal().find("No such file"), std::string::npos) << refusal();
  fs::create_directory(path_);
  EXPECT_NE(refusal().find("not a bundle"), std::string::npos) << refusal();
}

TEST_F(BundleTest, NothingElseIsOverwritten) {
  OsFileOps ops;
  extract_from(loser_, path_);
  auto refused = BundleWriter::create(path_, ops);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("holds a finished bundle"), std::string::npos);
  fs::remove(path_ + "/manifest");
  write(path_ + "/messages/photo.jpg", "");
  refused = BundleWriter::create(path_, ops);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("photo.jpg"), std::string::npos);
  for (const char* other : {"thesis.txt", "salvage-bundle/x"}) {
    fs::remove_all(path_);
    write(path_ + "/" + other, "");
    EXPECT_FALSE(BundleWriter::create(path_, ops)) << other;
    EXPECT_TRUE(fs::exists(path_ + "/" + other));
  }
}

TEST_F(BundleTest, OnlyOneExtractionWritesIt) {
  OsFileOps ops;
  auto first = BundleWriter::create(path_, ops);
  ASSERT_TRUE(first);
  auto second = BundleWriter::create(path_, ops);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::unavailable) << second.error().message;
}

TEST_F(BundleTest, OneThatWasFinishedMeanwhileIsKept) {
  FaultOps ops;
  ops.before_name = [&](const std::string& name) {
    if (name == bundle_label_name) write(path_ + "/manifest", "of another extraction");
  };
  auto refused = BundleWriter::create(path_, ops);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("holds a finished bundle"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(read(path_ + "/manifest"), "of another extraction");
}

TEST_F(BundleTest, OnlyOnesOwn) {
  ASSERT_EQ(::geteuid(), 0u) << "this test changes file owners: run it as root";
  OsFileOps ops;
  auto created = [&] {
    auto done = BundleWriter::create(path_, ops);
    return done ? "" : done.error().message;
  };
  auto for_others = [&](const std::string& path, const std::function<std::string()>& said) {
    ASSERT_EQ(::chown(path.c_str(), 12345, 0), 0);
    EXPECT_NE(said().find("belongs to user 12345"), std::string::npos) << said();
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
    for (unsigned mode : {0720u, 0702u}) {
      fs::permissions(path, fs::perms(mode));
      EXPECT_NE(said().find(fmt::format("mode {:o}", mode)), std::string::npos) << said();
    }
    fs::permissions(path, fs::perms(0700));
  };
  fs::create_directory(path_);
  for_others(path_, created);
  EXPECT_TRUE(fs::is_empty(path_));
  extract_from(loser_, path_);
  for_others(path_, [&] { return refusal(); });
  for_others(path_ + "/messages", [&] { return refusal(); });
  EXPECT_EQ(refusal(), "");
}

// At each step: the incomplete bundle is refused with a reason, and the extraction can be repeated into it.
void end_everywhere(const Spool& loser, const TemporaryDirectory& beside, Fault fault) {
  int steps = 0;
  for (bool ended = false; !ended;) {
    std::string path = beside / fmt::format("bundle-{}", ++steps);
    auto run = [&] {
      FaultOps ops(fault, steps);
      return extract(loser.open().get(), options_for(path), written_after, {}, &ops).has_value();
    };
    ended = fault == Fault::fails ? run() : run_in_child([&] { (void)run(); });
    if (ended) break;
    auto opened = Bundle::open(path);
    if (!fs::exists(path + "/manifest")) {
      ASSERT_FALSE(opened) << steps;
      EXPECT_TRUE(opened.error().message.find("has not ended") != std::string::npos ||
                  opened.error().message.find("not a bundle") != std::string::npos)
          << opened.error().message;
      extract_from(loser, path);
      opened = Bundle::open(path);
    }
    ASSERT_TRUE(opened) << steps << ": " << opened.error().message;
    EXPECT_EQ(opened->manifest().messages.size(), 2u);
    for (const Message& m : opened->manifest().messages) EXPECT_TRUE(opened->verify(m));
  }
  EXPECT_GT(steps, 10) << "no fault was injected";
}

TEST_F(BundleTest, ExtractionKilledAtEachStep) {
  end_everywhere(loser_, beside_, Fault::ends);
}
TEST_F(BundleTest, ExtractionKilledInEachWrite) {
  end_everywhere(loser_, beside_, Fault::ends_in_the_middle);
}
TEST_F(BundleTest, EachStepOfAnExtractionFails) {
  end_everywhere(loser_, beside_, Fault::fails);
}

}  // namespace
}  // namespace twinloft::repl::salvage
