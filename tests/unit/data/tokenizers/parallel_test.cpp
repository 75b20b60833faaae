// Do threads together give what one gives alone?
#include "data/tokenizers/parallel.hpp"

#include "toy.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

namespace colossal::test {
namespace {

/// Refuses one text.
class Refusing : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    check(text != "bad", ErrorKind::data, "refused", "refused");
    ids.push_back(static_cast<TokenId>(text.size()));
  }
  [[nodiscard]] std::string decode(std::span<const TokenId> /*ids*/) const override { return {}; }
  [[nodiscard]] std::int64_t size() const override { return 1; }
  [[nodiscard]] std::optional<TokenId> eod() const override { return {}; }
  [[nodiscard]] std::string fingerprint() const override { return {}; }
  [[nodiscard]] std::size_t boundary(std::string_view text, std::size_t /*from*/) const override {
    return text.size();
  }
};

/// Holds every text back until the expected number of threads has come, at most 30 s.
class Counting : public Refusing {
 public:
  explicit Counting(std::size_t expected) : expected_(expected) {}
  void encode(std::string_view /*text*/, std::vector<TokenId>& /*ids*/) const override {
    std::unique_lock lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    more_.notify_all();
    more_.wait_for(lock, std::chrono::seconds(30), [this] { return threads_.size() >= expected_; });
  }
  [[nodiscard]] std::size_t num_threads() const { return threads_.size(); }

 private:
  std::size_t expected_;
  mutable std::mutex mutex_;
  mutable std::condition_variable more_;
  mutable std::set<std::thread::id> threads_;
};

}  // namespace

TEST_CASE("texts keep their order however many threads there are", "[tokenizers]") {
  const TempDir folder;
  const auto tokenizer = open_at(TokenizerType::bpe, write_toy(folder.path()));
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i) {
    texts.push_back("hello " + std::string(static_cast<std::size_t>(i % 17), 'l'));
  }
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  for (const std::size_t num_threads : {1U, 4U, 1000U}) {
    const auto ids = encode_all(*tokenizer, views, num_threads);
    REQUIRE(ids.size() == texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CHECK(ids[i] == encode(*tokenizer, texts[i]));
    }
  }
  CHECK(encode_all(*tokenizer, {}, 4).empty());
}

TEST_CASE("as many threads encode as are asked for", "[tokenizers]") {
  const std::vector<std::string_view> texts(30, "text");
  for (const std::size_t num_threads : {1U, 3U}) {
    const Counting tokenizer(num_threads);
    static_cast<void>(encode_all(tokenizer, texts, num_threads));
    CHECK(tokenizer.num_threads() == num_threads);
  }
}

TEST_CASE("an error in a thread is the caller's", "[tokenizers]") {
  std::vector<std::string_view> texts(100, "good");
  texts[63] = "bad";
  const Error error = error_of([&] { static_cast<void>(encode_all(Refusing(), texts, 4)); });
  CHECK(error.id() == "refused");
  CHECK(error_of([] { static_cast<void>(require_eod(Refusing())); }).id() == "tokenizer-eod");
}

TEST_CASE("a long text in pieces has the ids of the whole", "[tokenizers]") {
  const TempDir folder;
  const auto tokenizer = open_at(TokenizerType::bpe, write_toy(folder.path()));
  std::string text;
  for (int i = 0; text.size() < 900'000; ++i) {
    text += i % 3 == 0 ? "hello, she'll  " : "hell " + std::to_string(i) + "\n ";
  }
  const auto pieces = cut_text(*tokenizer, text);
  CHECK(pieces.size() == 4);
  Ids joined;
  for (const auto& ids : encode_all(*tokenizer, pieces, 4)) {
    joined.insert(joined.end(), ids.begin(), ids.end());
  }
  CHECK(joined == encode(*tokenizer, text));
  CHECK(cut_text(Refusing(), text).size() == 1);
  CHECK(cut_text(*tokenizer, "").empty());
}

}  // namespace colossal::test
