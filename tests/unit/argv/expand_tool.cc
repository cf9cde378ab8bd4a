// Reads templates that end in NUL from standard input, and prints for each the arguments, every one followed
// by NUL, between the bytes 0x01 and 0x02; or 0x03 where the template is refused. For sh_quoting_test.py.
#include <iostream>
#include <string>

#include "twinloft/argv/argv.h"

int main() {
  std::string text;
  while (std::getline(std::cin, text, '\0')) {
    const auto parsed = twinloft::argv::Template::parse(text);
    if (!parsed) {
      std::cout << '\x03';
      continue;
    }
    const auto arguments = parsed->expand({});
    if (!arguments) return 1;
    std::cout << '\x01';
    for (const std::string& a : *arguments) std::cout << a << '\0';
    std::cout << '\x02';
  }
  return 0;
}
