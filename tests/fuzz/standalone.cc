// Runs a fuzzer without libFuzzer, for other compilers: every file of its corpus, then random changes of
// these files, the same in each run. Without coverage it finds little, but it keeps the fuzzers working, also
// under the sanitizers. The long runs use libFuzzer.
//
//   NAME [-runs=N] [-seed=N] [-max_len=N] [DIRECTORY | FILE ...]
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using twinloft::SeededRandom;

struct Options {
  std::uint64_t runs = 0, seed = 1, max_len = 4096;
  std::vector<std::string> inputs;
};

void add_inputs(const std::filesystem::path& path, std::vector<std::string>& out) {
  if (std::filesystem::is_directory(path)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) add_inputs(file, out);
    return;
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "%s cannot be read\n", path.c_str());
    std::exit(2);
  }
  out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

bool number(std::string_view word, std::string_view name, std::uint64_t& out) {
  if (!word.starts_with(name)) return false;
  word.remove_prefix(name.size());
  return std::from_chars(word.data(), word.data() + word.size(), out).ec == std::errc();
}

// Copies a part of one input into another, or changes, removes or repeats bytes.
std::string changed(const Options& o, SeededRandom& random) {
  auto any = [&]() -> const std::string& { return o.inputs[random.below(o.inputs.size())]; };
  std::string text = any();
  for (std::uint64_t n = 1 + random.below(6); n > 0; --n) {
    std::size_t at = random.below(text.size() + 1),
                count = std::min<std::size_t>(random.below(20), text.size() - at);
    switch (random.below(5)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        text.erase(at, count);
        break;
      case 2:
        text.insert(at, text.substr(at, count));
        break;
      case 3:
        text.insert(at, std::string(1 + random.below(3), static_cast<char>(random.below(256))));
        break;
      default: {
        const std::string& other = any();
        std::size_t from = random.below(other.size() + 1);
        text.insert(at, other.substr(from, random.below(60)));
      }
    }
  }
  return text.substr(0, o.max_len);
}

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i)
    if (std::string_view word = argv[i]; !number(word, "-runs=", o.runs) && !number(word, "-seed=", o.seed) &&
                                         !number(word, "-max_len=", o.max_len))
      add_inputs(argv[i], o.inputs);
  // Changes of nothing are short, and reach little.
  if (o.inputs.empty()) {
    std::fprintf(stderr, "no inputs: name the directory with the corpus\n");
    return 2;
  }
  for (const std::string& input : o.inputs) run(input);
  o.inputs.emplace_back();
  SeededRandom random(o.seed);
  for (std::uint64_t i = 0; i < o.runs; ++i) run(changed(o, random));
  std::printf("%zu inputs and %llu changed ones\n", o.inputs.size() - 1,
              static_cast<unsigned long long>(o.runs));
  return 0;
}
