// For sh_quoting_test.py. Reads templates from standard input; each ends in NUL. For each template, prints
// its arguments between the bytes 0x01 and 0x02, each followed by NUL. For a refused template, prints 0x03.
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
