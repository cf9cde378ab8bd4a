// The first line of the input is the detail of an address, the rest is a file `subscriptions`. The folder is
// always directly in the Maildir. The file keeps its lines, and has the folder once.
#include <algorithm>
#include <cstdint>
#include <string>

#include "twinloft/base/check.h"
#include "twinloft/mail/folder_name.h"
#include "twinloft/mail/subscriptions.h"

using namespace twinloft;
using namespace twinloft::mail;

namespace {

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

void check_directory(const std::string& directory) {
  TL_CHECK(directory.size() > 1 && directory.size() <= 255 && directory.front() == '.' &&
           directory.back() != '.');
  TL_CHECK(directory.find('/') == std::string::npos && directory.find("..") == std::string::npos);
  TL_CHECK(directory.find_first_of("*%") == std::string::npos && printable(directory));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::size_t line_end = std::min(input.find('\n'), input.size());
  const std::string detail = input.substr(0, line_end),
                    file = input.substr(std::min(line_end + 1, input.size()));
  for (char separator : {'.', '/'}) {
    auto directory = folder_directory(detail, separator);
    if (!directory) continue;
    check_directory(*directory);
    auto added = add_subscription(file, *directory);
    if (!added) continue;
    TL_CHECK(added->size() > file.size() && added->ends_with('\n') &&
             (file.empty() || added->starts_with(file)));
    TL_CHECK(!add_subscription(*added, *directory));
  }
  return 0;
}
