// Properties that hold for any bytes in any value. Every failure prints its seed.
#include "support.h"

namespace twinloft::argv::test {
namespace {

struct Shape {
  std::string text;
  std::size_t words = 0;  // no groups, so the text alone gives the number of arguments
};

std::string random_literal(SeededRandom& random) {
  std::string out;
  for (std::size_t i = 1 + random.below(6); i > 0; --i) out += static_cast<char>('a' + random.below(26));
  return out;
}

std::string random_word(SeededRandom& random) {
  const auto& macros = mail_macros();
  std::string out;
  for (std::size_t i = 1 + random.below(4); i > 0; --i) {
    const std::string macro = "%" + macros[random.below(macros.size())].name;
    switch (random.below(6)) {
      case 0:
        out += macro + "%";
        break;
      case 1:
        out += macro + ":lower%";
        break;
      case 2:
        out += macro + ":-" + random_literal(random) + "%";
        break;
      case 3:
        out += "\"" + random_literal(random) + " " + macro + "%\"";
        break;
      case 4:
        out += "'" + random_literal(random) + " %'";
        break;
      default:
        out += random_literal(random);
    }
  }
  return out;
}

Shape random_shape(SeededRandom& random) {
  Shape shape{"/bin/p --", 2};
  for (std::size_t i = random.below(12); i > 0; --i, ++shape.words) shape.text += " " + random_word(random);
  return shape;
}

Values random_values(SeededRandom& random) {
  Values values;
  for (const MacroName& m : mail_macros())
    values[m.name] = random_value(random, random.below(3) == 0 ? 0 : 40);
  return values;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// The rule of the language in its shortest form: the expected argument of a word.
std::string expected(const Word& word, const Values& values) {
  std::string out;
  for (const Part& part : word.parts) {
    if (part.kind == Part::Kind::literal) {
      out += part.text;
      continue;
    }
    const std::string& value = values.find(part.name)->second;
    if (value.empty()) out += part.text;
    for (const char c : value) out += part.fold == Fold::lower ? lower(c) : c;
  }
  return out;
}

TEST(ArgvProperty, WordCountAndOrderNeverChange) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const Shape shape = random_shape(random);
    const Template t = parse(shape.text);
    ASSERT_EQ(t.words().size(), shape.words) << shape.text;
    for (int round = 0; round < 4; ++round) {
      const Values values = random_values(random);
      const auto arguments = t.expand(values);
      ASSERT_TRUE(arguments) << shape.text << "\n" << arguments.error().message;
      ASSERT_EQ(arguments->size(), shape.words) << shape.text;
      for (std::size_t i = 0; i < shape.words; ++i)
        ASSERT_EQ((*arguments)[i], expected(t.words()[i], values)) << i;
    }
  }
}

TEST(ArgvProperty, OnePassOnly) {
  // Values that look like templates are passed on byte for byte.
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const std::string value = random_shape(random).text + random_value(random, 30);
    const auto arguments = parse("p -- %to% x%to%y \"%to%\"").expand({{"to", value}});
    ASSERT_TRUE(arguments);
    ASSERT_EQ(*arguments, (Arguments{"p", "--", value, "x" + value + "y", value}));
  }
}

TEST(ArgvProperty, WithoutTwoDashesNoWordThatStartsWithAMacroIsAnOption) {
  std::size_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const Template t = parse("p %to%%from% %user:upper% %detail%-x %id:-ok%" + random_literal(random));
    Values values = random_values(random);
    for (auto& [name, value] : values)
      if (random.below(8) == 0) value.insert(0, "-");
    const auto arguments = t.expand(values);
    if (!arguments) {
      ASSERT_EQ(arguments.error().code, ExpandError::Code::leading_dash);
      ++refused;
      continue;
    }
    for (std::size_t i = 1; i < arguments->size(); ++i) ASSERT_FALSE((*arguments)[i].starts_with('-')) << i;
  }
  EXPECT_GT(refused, 500U);
  EXPECT_LT(refused, 4500U);
}

TEST(ArgvProperty, AGroupIsThereOrNot) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const Values values = random_values(random);
    const auto arguments = parse("p -- [ -a %original_to% -b x%detail% ] %to% [ %id% ] end").expand(values);
    ASSERT_TRUE(arguments);
    const bool first = !values.at("original_to").empty() && !values.at("detail").empty();
    const bool second = !values.at("id").empty();
    Arguments expect = {"p", "--"};
    if (first) expect.insert(expect.end(), {"-a", values.at("original_to"), "-b", "x" + values.at("detail")});
    expect.push_back(values.at("to"));
    if (second) expect.push_back(values.at("id"));
    expect.push_back("end");
    ASSERT_EQ(*arguments, expect);
  }
}

TEST(ArgvProperty, NoTemplateBreaksTheParser) {
  static constexpr std::string_view pieces[] = {"%",  "to", "%to%",  ":",   "-",    "'",   "\"", "\\",
                                                " ",  "[",  "]",     " [ ", " ] ",  "\n",  "a",  "%%",
                                                "--", ":-", "lower", "$",   "\xff", "\r\n"};
  std::size_t parsed_count = 0;
  for (std::uint64_t seed = 1; seed <= 20000; ++seed) {
    SeededRandom random(seed);
    std::string text;
    for (std::size_t i = random.below(16); i > 0; --i) text += pieces[random.below(std::size(pieces))];
    const auto parsed = Template::parse(text);
    if (!parsed) {
      ASSERT_LE(parsed.error().offset, text.size()) << "seed " << seed;
      ASSERT_LE(parsed.error().caret, parsed.error().excerpt.size()) << "seed " << seed;
      continue;
    }
    ++parsed_count;
    ASSERT_GE(parsed->words().size(), 1U);
    const auto arguments = parsed->expand({{"to", "x y"}});
    if (arguments) {
      ASSERT_LE(arguments->size(), parsed->words().size()) << "seed " << seed;
    }
  }
  EXPECT_GT(parsed_count, 1000U);
}

}  // namespace
}  // namespace twinloft::argv::test
