// Does byte-pair encoding give the ids that three merges allow, and is every wrong file refused
// with its place?
#include "data/tokenizers/bpe_spec.hpp"
#include "data/tokenizers/merges.hpp"
#include "toy.hpp"

#include <thread>

namespace colossal::test {

using Catch::Matchers::Contains;

namespace {

/// The error of opening GPT-2 files with this list of merges.
Error merges_error(std::string_view merges) {
  const TempDir folder;
  write_toy(folder.path(), merges);
  return error_of([&] { open_at(TokenizerType::bpe, folder.path().string()); });
}

}  // namespace

TEST_CASE("three merges give the expected ids", "[tokenizers]") {
  const TempDir folder;
  const auto tokenizer = open_at(TokenizerType::bpe, write_toy(folder.path()));
  CHECK(encode(*tokenizer, "hello") == Ids{258, 'o'});
  CHECK(encode(*tokenizer, "hell") == Ids{258});
  CHECK(encode(*tokenizer, "lll") == Ids{257, 'l'});  // the leftmost pair first
  CHECK(encode(*tokenizer, "llll") == Ids{257, 257});
  CHECK(encode(*tokenizer, "h el l") == Ids{'h', ' ', 'e', 'l', ' ', 'l'});  // not across words
  CHECK(encode(*tokenizer, "shell\n") == Ids{'s', 258, '\n'});
  CHECK(encode(*tokenizer, "").empty());
  CHECK(tokenizer->size() == 260);
  CHECK(require_eod(*tokenizer) == 259);
}

TEST_CASE("the end of text is one id wherever it stands", "[tokenizers]") {
  const TempDir folder;
  const auto tokenizer = open_at(TokenizerType::bpe, write_toy(folder.path()));
  CHECK(encode(*tokenizer, "he<|endoftext|>he") == Ids{256, 259, 256});
  CHECK(encode(*tokenizer, "<|endoftext|><|endoftext|>") == Ids{259, 259});
  CHECK(encode(*tokenizer, "<|endoftext|").size() == 12);
}

TEST_CASE("any bytes come back from their ids", "[tokenizers]") {
  const TempDir folder;
  const auto tokenizer = open_at(TokenizerType::bpe, write_toy(folder.path()));
  std::string bytes;
  std::uint64_t state = 1;
  for (int round = 0; round < 200; ++round) {
    bytes.clear();
    for (int i = 0; i < 50; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      bytes += (state >> 60U) < 6 ? "hello"[(state >> 40U) % 5] : static_cast<char>(state >> 33U);
    }
    CHECK(tokenizer->decode(encode(*tokenizer, bytes)) == bytes);
  }
}

TEST_CASE("one file of the pair, its folder and GPT-2's own names open the same", "[tokenizers]") {
  const TempDir folder;
  const std::string expected = open_at(TokenizerType::bpe, write_toy(folder.path()))->fingerprint();
  CHECK(open_at(TokenizerType::bpe, (folder.path() / "vocab.json").string())->fingerprint() ==
        expected);
  CHECK(open_at(TokenizerType::bpe, (folder.path() / "merges.txt").string())->fingerprint() ==
        expected);
  const TempDir original;
  write_file(original.path(), "encoder.json", toy_vocabulary().dump());
  write_file(original.path(), "vocab.bpe", kToyMerges);
  CHECK(open_at(TokenizerType::bpe, original.path().string())->fingerprint() == expected);
}

TEST_CASE("the fingerprint follows the content of the files", "[tokenizers]") {
  const TempDir a;
  const TempDir b;
  CHECK(
      open_at(TokenizerType::bpe, write_toy(a.path()))->fingerprint() !=
      open_at(TokenizerType::bpe, write_toy(b.path(), "#version: 0.2\nh e\nl l\n"))->fingerprint());
}

TEST_CASE("line ends of Windows in merges.txt do not matter", "[tokenizers]") {
  const TempDir folder;
  const auto tokenizer = open_at(
      TokenizerType::bpe, write_toy(folder.path(), "#version: 0.2\r\nh e\r\nl l\r\nhe ll\r\n"));
  CHECK(encode(*tokenizer, "hell") == Ids{258});
}

TEST_CASE("wrong merges are refused with their line", "[tokenizers]") {
  const Error unknown = merges_error("#version: 0.2\nh e\nl o\n");
  CHECK(unknown.exit_code() == 4);
  CHECK(unknown.id() == "tokenizer-file");
  CHECK_THAT(unknown.what(), Contains("merges.txt:3:"));
  CHECK_THAT(unknown.what(), Contains("'lo'"));
  CHECK_THAT(merges_error("h e\nhe  ll\n").what(), Contains("merges.txt:2:"));
  CHECK_THAT(merges_error("h\n").what(), Contains("merges.txt:1: 'h' is no merge"));
  CHECK_THAT(merges_error("\xC4\x80\xE2\x82\xAC e\n").what(), Contains("merges.txt:1:"));
}

TEST_CASE("wrong vocabularies are refused", "[tokenizers]") {
  const TempDir folder;
  write_toy(folder.path());
  const auto error_with = [&](const std::string& vocabulary) {
    write_file(folder.path(), "vocab.json", vocabulary);
    return error_of([&] { open_at(TokenizerType::bpe, folder.path().string()); });
  };
  CHECK_THAT(error_with("{\"a\": 1,\n \"b\" 2}").what(), Contains("line 2, column"));
  CHECK_THAT(error_with("[1, 2]").what(), Contains("not a mapping"));
  CHECK_THAT(error_with("{\"a\": \"b\"}").what(), Contains("['a'] is string, not a whole number"));
  CHECK_THAT(error_with("{\"a\": -1}").what(), Contains("has id -1"));
  CHECK_THAT(error_with("{\"a\": 99999999}").what(), Contains("has id 99999999"));
  CHECK_THAT(error_with("{\"a\": 1, \"b\": 1}").what(), Contains("id 1 belongs to 'a' and to 'b'"));
  CHECK_THAT(error_with("").what(), Contains("is empty"));
  Json one_less = toy_vocabulary();
  one_less.erase("A");
  CHECK_THAT(error_with(one_less.dump()).what(), Contains("no token for the byte 0x41"));
  std::filesystem::remove(folder.path() / "vocab.json");
  const Error missing = error_of([&] { open_at(TokenizerType::bpe, folder.path().string()); });
  CHECK(missing.id() == "file-not-found");
  CHECK_THAT(missing.what(), Contains("vocab.json"));
  CHECK_THAT(missing.what(), Contains("while opening tokenizer"));
}

TEST_CASE("a folder without a tokenizer says what was expected", "[tokenizers]") {
  const TempDir folder;
  for (const TokenizerType type : {TokenizerType::bpe, TokenizerType::wordpiece}) {
    const Error error = error_of([&] { open_at(type, folder.path().string()); });
    CHECK(error.id() == "file-not-found");
    CHECK(error.exit_code() == 4);
    CHECK_THAT(error.what(), Contains("tokenizer.json"));
  }
}

TEST_CASE("a file that cannot be read is no tokenizer", "[tokenizers]") {
  const TempDir folder;
  std::filesystem::create_directories(folder.path() / "vocab.json");
  const Error error = error_of([&] { open_at(TokenizerType::bpe, folder.path().string()); });
  CHECK(error.id() == "data-unreadable");
}

TEST_CASE("a text may be cut at a boundary without changing its ids", "[tokenizers]") {
  const TempDir folder;
  const auto tokenizer = open_at(TokenizerType::bpe, write_toy(folder.path()));
  const std::string text = "hell  he's 12 \n\n hello, <|endoftext|> she'll  do  ";
  const Ids whole = encode(*tokenizer, text);
  std::size_t cuts = 0;
  for (std::size_t from = 0; from <= text.size(); ++from) {
    const std::size_t at = tokenizer->boundary(text, from);
    REQUIRE(at >= std::min(from, text.size()));
    cuts += at < text.size() ? 1 : 0;
    Ids parts = encode(*tokenizer, std::string_view(text).substr(0, at));
    tokenizer->encode(std::string_view(text).substr(at), parts);
    CHECK(parts == whole);
  }
  CHECK(cuts > 20);
}

TEST_CASE("threads share a tokenizer", "[tokenizers]") {
  const TempDir folder;
  const auto tokenizer = open_at(TokenizerType::bpe, write_toy(folder.path()));
  const std::string text = "hello hell shell he llama ";
  const Ids expected = encode(*tokenizer, text);
  std::vector<int> wrong(4, 0);
  {
    std::vector<std::jthread> threads;
    for (int& count : wrong) {
      threads.emplace_back([&] {
        for (int i = 0; i < 300; ++i) {
          count += encode(*tokenizer, text) == expected ? 0 : 1;
        }
      });
    }
  }
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("merging equals the plain algorithm on random tables", "[tokenizers]") {
  std::uint64_t state = 7;
  const auto random = [&](std::uint64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<TokenId>((state >> 33U) % below);
  };
  detail::MergeBuffers buffers;
  for (int round = 0; round < 300; ++round) {
    detail::MergeTable table(40);
    for (TokenId rank = 0; rank < 40; ++rank) {
      table.add(random(8 + static_cast<std::uint64_t>(rank)),
                random(8 + static_cast<std::uint64_t>(rank)),
                {static_cast<std::uint32_t>(rank), 8 + rank});
    }
    Ids ids;
    for (int i = 0; i < 30; ++i) {
      ids.push_back(random(8));
    }
    Ids plain = ids;
    for (;;) {  // one lowest pair at a time, leftmost first
      std::size_t best = plain.size();
      const detail::Merge* merge = nullptr;
      for (std::size_t i = 0; i + 1 < plain.size(); ++i) {
        const detail::Merge* found = table.find(plain[i], plain[i + 1]);
        if (found != nullptr && (merge == nullptr || found->rank < merge->rank)) {
          merge = found;
          best = i;
        }
      }
      if (merge == nullptr) {
        break;
      }
      plain[best] = merge->id;
      plain.erase(plain.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    detail::merge_symbols(table, ids, buffers);
    CHECK(ids == plain);
  }
}

TEST_CASE("a word with more symbols than can be merged is refused, not cut off", "[tokenizers]") {
  const TempDir folder;
  detail::BpeSpec spec = detail::read_bpe(write_toy(folder.path()));
  CHECK(spec.most_symbols == 2'147'483'647);  // places in a word are 32 bits wide
  spec.most_symbols = 8;
  const auto tokenizer = detail::make_bpe_tokenizer(std::move(spec));
  CHECK(encode(*tokenizer, "hellhell hellhel") == Ids{258, 258, ' ', 258, 256, 'l'});
  Ids ids;
  const Error error = error_of([&] { tokenizer->encode("hellhellh", ids); });
  CHECK(error.kind() == ErrorKind::data);
  CHECK(error.id() == "word-too-long");
  CHECK_THAT(error.what(), Contains("9 bytes") && Contains("9 symbols, at most 8"));
  CHECK(ids.empty());
  CHECK(encode(*tokenizer, "hell") == Ids{258});  // and it goes on working
}

TEST_CASE("the word cache forgets when it is full and stays right", "[tokenizers]") {
  detail::WordCache cache;
  Ids ids;
  CHECK_FALSE(cache.append("a", ids));
  for (TokenId i = 0; i < 100'000; ++i) {
    cache.store("word" + std::to_string(i), &i, 1);
  }
  CHECK_FALSE(cache.append("word0", ids));
  REQUIRE(cache.append("word99999", ids));
  CHECK(ids == Ids{99'999});
  const std::string longer(65, 'x');
  cache.store(longer, ids.data(), 1);
  CHECK_FALSE(cache.append(longer, ids));
}

}  // namespace colossal::test
