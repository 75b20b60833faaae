// Is text shown as soon as its characters are whole, and never sooner?
#include "infer/text_stream.hpp"

#include "support/catch.hpp"
#include "unit/infer/infer_helpers.hpp"

#include <vector>

namespace colossal::test {
namespace {

/// Ids are words; a word of a negative id goes on with the one before it.
std::string words_of(std::span<const std::int64_t> ids) {
  std::string text;
  for (const std::int64_t id : ids) {
    text += (text.empty() || id < 0 ? "" : " ") + std::to_string(std::abs(id));
  }
  return text;
}

std::vector<std::string> shown(const std::string& text) {
  TextStream stream(bytes_of, {});
  std::vector<std::string> parts;
  for (const char c : text) {
    parts.push_back(stream.push(static_cast<unsigned char>(c)));
  }
  parts.push_back(stream.finish());
  return parts;
}

}  // namespace

TEST_CASE("characters are cut at their ends only", "[text]") {
  CHECK(whole_characters("") == 0);
  CHECK(whole_characters("abc") == 3);
  CHECK(whole_characters("ab\xC3") == 2);            // first of two
  CHECK(whole_characters("ab\xC3\xA9") == 4);        // e acute
  CHECK(whole_characters("\xE2\x82") == 0);          // two of three
  CHECK(whole_characters("\xE2\x82\xAC") == 3);      // euro sign
  CHECK(whole_characters("x\xF0\x9F\x98") == 1);     // three of four
  CHECK(whole_characters("\xF0\x9F\x98\x80") == 4);  // an emoji
  CHECK(whole_characters("\xF0\x9F\x98\x80\xE2") == 4);
}

TEST_CASE("what is no UTF-8 is not held back", "[text]") {
  CHECK(whole_characters("\x80") == 1);
  CHECK(whole_characters("a\x80\x80\x80\x80\x80") == 6);
  CHECK(whole_characters("\xFF") == 1);
  CHECK(whole_characters("\xC0") == 1);  // never starts a character
  CHECK(whole_characters("\xC3\x28") == 2);
}

TEST_CASE("a stream shows whole characters as they come", "[text]") {
  using Parts = std::vector<std::string>;
  CHECK(shown("a\xC3\xA9z") == Parts{"a", "", "\xC3\xA9", "z", ""});
  CHECK(shown("\xF0\x9F\x98\x80") == Parts{"", "", "", "\xF0\x9F\x98\x80", ""});
  CHECK(shown("a\xE2\x82") == Parts{"a", "", "", "\xE2\x82"});  // the end comes first
  CHECK(shown("\xC3\x28") == Parts{"", "\xC3\x28", ""});
}

TEST_CASE("a long stream loses nothing", "[text]") {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += i % 3 == 0 ? "\xE2\x82\xAC" : i % 3 == 1 ? "q" : "\xC3\xA9";
  }
  std::string together;
  for (const std::string& part : shown(text)) {
    CHECK(whole_characters(part) == part.size());
    together += part;
  }
  CHECK(together == text);
}

TEST_CASE("a token reads as its neighbours make it", "[text]") {
  const std::vector<std::int64_t> prompt = {1, 2};
  TextStream stream(words_of, prompt);
  CHECK(stream.push(3) == " 3");
  CHECK(stream.push(-4) == "4");
  std::string together;
  for (std::int64_t i = 5; i < 60; ++i) {
    together += stream.push(i % 2 == 0 ? i : -i);
  }
  CHECK(together.starts_with("5 67 89 "));
  CHECK(together.ends_with("57 5859"));
  CHECK(stream.finish().empty());
  TextStream first(words_of, {});
  CHECK(first.push(7) == "7");
}

}  // namespace colossal::test
