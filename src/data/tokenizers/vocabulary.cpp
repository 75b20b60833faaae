// How are tokens numbered, found in text, and read from files?
#include "data/tokenizers/vocabulary.hpp"

#include "core/error.hpp"
#include "core/system.hpp"
#include "data/tokenizers/unicode.hpp"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

namespace colossal::detail {
namespace {

constexpr std::int64_t kMaxId = 1 << 24;
/// By GPT-2, LLaMA-3, LLaMA-2, Gemma and BERT.
constexpr std::array<std::string_view, 5> kEndNames = {
    "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"};

bool is_ascii_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

void Vocabulary::add(const std::string& token, std::int64_t id, std::string_view place) {
  check(id >= 0 && id <= kMaxId,
        ErrorKind::data,
        "tokenizer-file",
        "{}: token '{}' has id {}, ids go from 0 to {}",
        place,
        token,
        id,
        kMaxId);
  if (id >= size()) {
    tokens_.resize(static_cast<std::size_t>(id) + 1);
  }
  std::string& slot = tokens_[static_cast<std::size_t>(id)];
  check(slot.empty() || slot == token,
        ErrorKind::data,
        "tokenizer-file",
        "{}: id {} belongs to '{}' and to '{}'",
        place,
        id,
        slot,
        token);
  slot = token;
  const auto [entry, fresh] = ids_.emplace(token, static_cast<TokenId>(id));
  check(fresh || entry->second == id,
        ErrorKind::data,
        "tokenizer-file",
        "{}: token '{}' has ids {} and {}",
        place,
        token,
        entry->second,
        id);
}

std::optional<TokenId> Vocabulary::find(std::string_view token) const {
  const auto it = ids_.find(token);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<TokenId> Vocabulary::eod() const {
  for (const std::string_view name : kEndNames) {
    if (const auto id = find(name)) {
      return id;
    }
  }
  return std::nullopt;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) {
  std::ranges::stable_sort(
      tokens, std::ranges::greater{}, [](const AddedToken& token) { return token.content.size(); });
  for (AddedToken& token : tokens) {
    const bool space = std::ranges::any_of(
        token.content, [](char c) { return is_space(static_cast<unsigned char>(c)); });
    touches_space_ = touches_space_ || space || token.lstrip || token.rstrip;
    any_ = true;
    by_first_byte_[static_cast<unsigned char>(token.content.front())].push_back(std::move(token));
  }
}

const AddedToken* AddedTokens::longest_at(std::string_view text, std::size_t at) const {
  for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[at])]) {
    if (text.substr(at).starts_with(token.content)) {
      return &token;
    }
  }
  return nullptr;
}

std::optional<AddedTokens::Match> AddedTokens::next(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      continue;
    }
    Match match = {at, at + token->content.size(), token->id};
    if (token->lstrip) {
      match.begin = std::max(from, space_before(text, match.begin));
    }
    if (token->rstrip) {
      match.end = space_after(text, match.end);
    }
    return match;
  }
  return std::nullopt;
}

void AddedTokens::split(std::string_view text,
                        const std::function<void(std::string_view)>& piece,
                        const std::function<void(TokenId)>& token) const {
  std::size_t done = 0;
  while (any_ && done < text.size()) {
    const std::optional<Match> match = next(text, done);
    if (!match) {
      break;
    }
    if (match->begin > done) {
      piece(text.substr(done, match->begin - done));
    }
    token(match->id);
    done = match->end;
  }
  if (done < text.size()) {
    piece(text.substr(done));
  }
}

std::size_t word_boundary(std::string_view text, std::size_t from) noexcept {
  for (std::size_t at = std::max<std::size_t>(from, 1); at < text.size(); ++at) {
    if (text[at] == ' ' && is_ascii_word(text[at - 1])) {
      return at;
    }
  }
  return text.size();
}

std::string read_tokenizer_file(const std::filesystem::path& path) {
  std::error_code failed;
  check(std::filesystem::exists(path, failed),
        ErrorKind::data,
        "file-not-found",
        "tokenizer file '{}' does not exist; check data.tokenizer.path",
        path.string());
  const bool regular = std::filesystem::is_regular_file(path, failed);
  const std::optional<std::string> text = regular ? read_file(path, failed) : std::nullopt;
  check(text.has_value(),
        ErrorKind::data,
        "data-unreadable",
        "tokenizer file '{}' cannot be read; check its kind and permissions",
        path.string());
  check(!text->empty(),
        ErrorKind::data,
        "tokenizer-file",
        "tokenizer file '{}' is empty (0 bytes)",
        path.string());
  return *text;
}

const std::string& piece_of(const std::vector<std::string>& pieces, TokenId id) {
  check(id >= 0 && static_cast<std::size_t>(id) < pieces.size(),
        ErrorKind::data,
        "token-range",
        "id {} does not exist: the tokenizer has ids 0 to {}",
        id,
        pieces.size() - 1);
  return pieces[static_cast<std::size_t>(id)];
}

}  // namespace colossal::detail
