// Do the scanners cut text as the regular expressions of GPT-2, LLaMA-3 and Qwen2 do?
#include "data/tokenizers/split.hpp"

#include "support/catch.hpp"

#include <string>
#include <vector>

using namespace colossal::detail;
using Words = std::vector<std::string>;

namespace {

Words words(SplitPattern pattern, std::string_view text) {
  Words all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(pattern, text, at);
    REQUIRE(end > at);
    REQUIRE(end <= text.size());
    all.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return all;
}

}  // namespace

TEST_CASE("GPT-2 keeps one space with a word and leaves the rest", "[tokenizers]") {
  const auto gpt2 = [](std::string_view text) { return words(SplitPattern::gpt2, text); };
  CHECK(gpt2("Hello, world!") == Words{"Hello", ",", " world", "!"});
  CHECK(gpt2("a  b") == Words{"a", " ", " b"});
  CHECK(gpt2("a\n\nb") == Words{"a", "\n", "\n", "b"});
  CHECK(gpt2("a \n b  ") == Words{"a", " \n", " b", "  "});
  CHECK(gpt2("don't DON'T we'll'x") ==
        Words{"don", "'t", " DON", "'", "T", " we", "'ll", "'", "x"});
  CHECK(gpt2("x12345 678") == Words{"x", "12345", " 678"});
  CHECK(gpt2(" 's") == Words{" '", "s"});
  CHECK(gpt2("...'s") == Words{"...'", "s"});
  CHECK(gpt2("\t\tx") == Words{"\t", "\t", "x"});
  CHECK(gpt2("   ") == Words{"   "});
}

TEST_CASE("LLaMA-3 takes any sign before letters, three digits, and line ends", "[tokenizers]") {
  const auto llama3 = [](std::string_view text) { return words(SplitPattern::llama3, text); };
  CHECK(llama3("Hello, world!") == Words{"Hello", ",", " world", "!"});
  CHECK(llama3("(a)\tb-c") == Words{"(a", ")", "\tb", "-c"});
  CHECK(llama3("12345 6") == Words{"123", "45", " ", "6"});
  CHECK(llama3("DON'T I'LL") == Words{"DON", "'T", " I", "'LL"});
  CHECK(llama3("it'\xC5\xBF") == Words{"it", "'\xC5\xBF"});
  CHECK(llama3("a.\n\nb") == Words{"a", ".\n\n", "b"});
  CHECK(llama3("a \n \n  b") == Words{"a", " \n \n", " ", " b"});
  CHECK(llama3("a   7") == Words{"a", "  ", " ", "7"});
  CHECK(llama3("\na\r\n") == Words{"\n", "a", "\r\n"});
  CHECK(words(SplitPattern::qwen2, "12 3") == Words{"1", "2", " ", "3"});
}

TEST_CASE("classes go beyond ASCII, and bytes that are no UTF-8 are signs", "[tokenizers]") {
  // Cyrillic letters, Arabic-Indic digits, an ideographic space, Devanagari with a vowel sign.
  CHECK(words(SplitPattern::gpt2, "\xD0\xBC\xD0\xB8\xD1\x80 \xD9\xA1\xD9\xA2") ==
        Words{"\xD0\xBC\xD0\xB8\xD1\x80", " \xD9\xA1\xD9\xA2"});
  CHECK(words(SplitPattern::gpt2, "a\xE3\x80\x80z") == Words{"a", "\xE3\x80\x80", "z"});
  CHECK(words(SplitPattern::gpt2, "\xE0\xA4\x95\xE0\xA5\x80") ==
        Words{"\xE0\xA4\x95", "\xE0\xA5\x80"});
  CHECK(words(SplitPattern::gpt2, "a\xFF\xFE z\xE3\x80") ==
        Words{"a", "\xFF\xFE", " z", "\xE3\x80"});
  CHECK(words(SplitPattern::llama3, "\xFFz") == Words{"\xFFz"});
}

TEST_CASE("patterns are known by their text", "[tokenizers]") {
  CHECK(known_pattern(
            R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)") ==
        SplitPattern::gpt2);
  CHECK_FALSE(known_pattern(R"(\w+)").has_value());
}
