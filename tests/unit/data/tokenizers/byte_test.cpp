// Is the byte tokenizer the identity, and does every tokenizer keep the interface's promises?
#include "toy.hpp"

#include <numeric>

namespace colossal::test {

TEST_CASE("bytes are ids", "[tokenizers]") {
  const auto tokenizer = open_at(TokenizerType::byte, "");
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  const Ids ids = encode(*tokenizer, all);
  REQUIRE(ids.size() == 256);
  CHECK(ids.front() == 0);
  CHECK(ids.back() == 255);
  CHECK(tokenizer->decode(ids) == all);
  CHECK(tokenizer->size() == 256);
  CHECK(require_eod(*tokenizer) == 0);
  CHECK(tokenizer->boundary("abc", 1) == 1);
  CHECK(tokenizer->boundary("abc", 9) == 3);
}

TEST_CASE("encoding appends", "[tokenizers]") {
  const TempDir folder;
  for (const auto& tokenizer :
       {open_at(TokenizerType::byte, ""), open_at(TokenizerType::bpe, write_toy(folder.path()))}) {
    Ids ids = {7};
    tokenizer->encode("a", ids);
    CHECK(ids == Ids{7, 'a'});
    tokenizer->encode("", ids);
    CHECK(ids.size() == 2);
  }
}

TEST_CASE("ids that do not exist cannot be decoded", "[tokenizers]") {
  const TempDir folder;
  for (const auto& tokenizer :
       {open_at(TokenizerType::byte, ""), open_at(TokenizerType::bpe, write_toy(folder.path()))}) {
    for (const TokenId id : {TokenId{-1}, static_cast<TokenId>(tokenizer->size())}) {
      const Error error = error_of([&] { static_cast<void>(tokenizer->decode(Ids{id})); });
      CHECK(error.kind() == ErrorKind::data);
      CHECK(error.id() == "token-range");
      CHECK(std::string(error.what()).find(std::to_string(id)) != std::string::npos);
    }
  }
}

}  // namespace colossal::test
