// How do threads share the work? They take the next text from a counter.
#include "data/tokenizers/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace colossal {
namespace {

constexpr std::size_t kPieceBytes = 256U << 10U;

}  // namespace

std::vector<std::vector<TokenId>> encode_all(const Tokenizer& tokenizer,
                                             std::span<const std::string_view> texts,
                                             std::size_t num_threads) {
  std::vector<std::vector<TokenId>> ids(texts.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto encode_the_rest = [&] {
    for (std::size_t i = next++; i < texts.size(); i = next++) {
      tokenizer.encode(texts[i], ids[i]);
    }
  };
  const auto work = [&] {
    try {
      encode_the_rest();
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = failure ? failure : std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(num_threads, texts.size()); ++i) {
      threads.emplace_back(work);
    }
    work();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  return ids;
}

std::vector<std::string_view> cut_text(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string_view> pieces;
  while (text.size() > kPieceBytes) {
    const std::size_t end = tokenizer.boundary(text, kPieceBytes);
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  if (!text.empty()) {
    pieces.push_back(text);
  }
  return pieces;
}

}  // namespace colossal
