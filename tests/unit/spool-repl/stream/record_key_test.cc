// The key schedule against the traces of RFC 8448, section 3.
#include "twinloft/spool-repl/stream/record_key.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <string_view>
#include <vector>

#include "twinloft/spool-repl/stream/kernel_tls.h"

namespace twinloft::repl::stream {
namespace {

std::vector<unsigned char> bytes(const char* digits) {
  long n = 0;
  unsigned char* made = OPENSSL_hexstr2buf(digits, &n);
  std::vector<unsigned char> out(made, made + n);
  OPENSSL_free(made);
  return out;
}

TrafficSecret secret(const char* digits, RecordCipher cipher = RecordCipher::aes_128_gcm) {
  auto all = bytes(digits);
  return {cipher, std::span<const unsigned char, TrafficSecret::bytes>(all)};
}

constexpr const char* of_server = "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";
constexpr const char* of_client = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";

TEST(RecordKey, AsInTheTraces) {
  struct {
    const char *secret, *key, *iv;
  } const traces[] = {{of_server, "9f02283b6c9c07efc26bb9f2ac92e356", "cf782b88dd83549aadf1e984"},
                      {of_client, "17422dda596ed5d9acd890e3c63f5051", "5b78923dee08579033e523d9"}};
  for (const auto& trace : traces) {
    const RecordKey key = secret(trace.secret).key().value();
    EXPECT_EQ(std::vector(key.key.begin(), key.key.begin() + 16), bytes(trace.key));
    EXPECT_EQ(std::vector(key.iv.begin(), key.iv.end()), bytes(trace.iv));
    EXPECT_EQ(std::vector(key.key.begin() + 16, key.key.end()), std::vector<unsigned char>(16));
  }
}

TEST(RecordKey, EachKeyIsAnother) {
  for (RecordCipher cipher : {RecordCipher::aes_128_gcm, RecordCipher::chacha20_poly1305}) {
    TrafficSecret changing = secret(of_server, cipher);
    const RecordKey first = changing.key().value();
    ASSERT_TRUE(changing.advance());
    const RecordKey second = changing.key().value();
    EXPECT_NE(first.key, second.key);
    EXPECT_NE(first.iv, second.iv);
    EXPECT_EQ(second.cipher, cipher);
  }
}

TEST(RecordKey, TheCiphersOfReplicas) {
  EXPECT_EQ(record_cipher(0x1301), RecordCipher::aes_128_gcm);
  EXPECT_EQ(record_cipher(0x1303), RecordCipher::chacha20_poly1305);
  EXPECT_FALSE(record_cipher(0x1302)) << "AES-256-GCM has another hash";
}

TEST(KernelTls, OnlyTcpHasIt) {
  RecordKey key;
  EXPECT_FALSE(give_key_to_kernel(-1, key));
  EXPECT_FALSE(send_record(-1, 21, {}));
  Status has = kernel_has_tls(key.cipher);
  EXPECT_TRUE(has || has.error().message.find("TLS") != std::string::npos) << has.error().message;
}

}  // namespace
}  // namespace twinloft::repl::stream
