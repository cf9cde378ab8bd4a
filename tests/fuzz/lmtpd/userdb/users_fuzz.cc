// The input of user sources: packets of the look-up process, queries with named parameters, lines of a
// passwd-file.
#include <cstdint>
#include <string_view>

#include "named_query.h"
#include "passwd_line.h"
#include "twinloft/base/check.h"
#include "twinloft/lmtpd/userdb/check.h"
#include "user_wire.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace {

// Whatever can be decoded is encoded to the same bytes.
void packets(ByteSpan in) {
  if (auto key = decode_key(in)) TL_CHECK(std::ranges::equal(encode_key(*key).value(), in));
  auto found = decode_found(in);
  if (!found) return;
  if (*found && **found)
    if (const User* user = std::get_if<User>(&***found)) TL_CHECK(check_user(*user));
  TL_CHECK(std::ranges::equal(encode_found(*found), in));
}

// The query has one parameter for each placeholder of the server. When parsed again, it has none.
void query(std::string_view text) {
  auto parsed = parse_named_query(text);
  if (!parsed) return;
  TL_CHECK(!parsed->parameters.empty() && parsed->text.size() <= text.size());
}

void line(std::string_view text) {
  static const RowReader reader = RowReader::create(
                                      {"%user%@%domain%", "/srv/%domain%/%user%", "%home%/Maildir", 5, 5, ""})
                                      .value();
  UserKey key{"ann", "example.org"};
  (void)name_in_passwd_line(text);
  auto row = parse_passwd_line(text, key);
  if (!row) return;
  auto entry = reader.read(key, *row);
  if (!entry) return;
  if (const User* user = std::get_if<User>(&*entry)) TL_CHECK(check_user(*user));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  ByteSpan in(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      packets(in);
      break;
    case 1:
      query(as_text(in));
      break;
    default:
      line(as_text(in));
  }
  return 0;
}
