#include "twinloft/spool-repl/compress/setting.h"

#include <gtest/gtest.h>

namespace twinloft::repl::compress {
namespace {

TEST(CompressionSettingTest, TextsMeanThemselves) {
  for (const char* text :
       {"none", "lz4", "zstd", "zlib", "xz", "adaptive", "zstd:1", "zstd:19", "zlib:9", "xz:1"}) {
    auto setting = parse_setting(text);
    ASSERT_TRUE(setting) << text;
    EXPECT_EQ(text_of(*setting), text);
  }
  EXPECT_EQ(*parse_setting("zstd:9"), Setting(Method{Codec::zstd, 9}));
  EXPECT_EQ(*parse_setting("adaptive"), Setting(Adaptive{}));
}

TEST(CompressionSettingTest, AnErrorSaysWhatIsExpected) {
  auto message = [](const char* text) {
    auto setting = parse_setting(text);
    return setting ? "accepted" : setting.error().message;
  };
  EXPECT_EQ(message("gzip"),
            "\"gzip\" is no codec: expected \"none\", \"lz4\", \"zstd\", \"zlib\", \"xz\", or \"adaptive\"");
  EXPECT_EQ(message("zstd:20"), "\"20\" is no level of zstd: expected a number from 1 to 19");
  EXPECT_EQ(message("xz:0"), "\"0\" is no level of xz: expected a number from 1 to 9");
  EXPECT_EQ(message("zlib:"), "\"\" is no level of zlib: expected a number from 1 to 9");
  EXPECT_EQ(message("zlib:6x"), "\"6x\" is no level of zlib: expected a number from 1 to 9");
  EXPECT_EQ(message("lz4:1"), "lz4 has no levels: remove \":\"");
  EXPECT_EQ(message("adaptive:3").find("\"adaptive\" is no codec"), 0u);
  EXPECT_NE(message(""), "accepted");
}

TEST(CompressionSettingTest, ASetAlwaysHasNone) {
  EXPECT_TRUE(CodecSet(0).has(Codec::none));
  EXPECT_FALSE(CodecSet(0).has(Codec::xz));
  EXPECT_TRUE(CodecSet(1u << 4).has(Codec::xz));
  for (Codec c : all_codecs) EXPECT_TRUE(CodecSet::all().has(c));
}

}  // namespace
}  // namespace twinloft::repl::compress
