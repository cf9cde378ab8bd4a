// What an IMAP server says: the responses are the same for each split of the bytes, and no response makes the
// readers of FETCH and LIST fail in another way than with an error.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/mailbench/imap_response.h"

using namespace twinloft;
using namespace twinloft::mailbench;

namespace {

// The responses until the end or an error; `step` bytes at a time.
std::vector<ImapResponse> responses(std::string_view text, std::size_t step) {
  ImapResponseParser parser;
  std::vector<ImapResponse> out;
  for (std::size_t at = 0; at < text.size(); at += step) {
    for (std::string_view piece = text.substr(at, step); !piece.empty();) {
      auto complete = parser.feed(piece);
      if (!complete) return out;
      if (*complete) out.push_back(parser.response());
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<ImapResponse> whole = responses(text, text.size() + 1), split = responses(text, 1);
  TL_CHECK(whole.size() == split.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    TL_CHECK(whole[i].text == split[i].text && whole[i].literals == split[i].literals);
    auto fetched = imap_fetched(ImapResponse(whole[i]));
    if (fetched && *fetched) TL_CHECK((*fetched)->content.size() <= size);
    (void)imap_listed(std::move(whole[i]));
  }
  return 0;
}
