// What do tokenizer files hold that every kind has: tokens with ids, and tokens matched before
// anything else?
#pragma once

#include "data/tokenizers/tokenizer.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace colossal::detail {

/// Lets string maps be asked with a string_view.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};
/// Ids by text.
using IdMap = std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>>;

/// Tokens by id and ids by token. Ids may have holes; a hole is an empty text.
class Vocabulary {
 public:
  /// Errors: data "tokenizer-file" if the id is negative or above 2^24, or taken by another text.
  void add(const std::string& token, std::int64_t id, std::string_view place);
  /// Id of a token, if it exists.
  [[nodiscard]] std::optional<TokenId> find(std::string_view token) const;
  [[nodiscard]] const std::vector<std::string>& tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::int64_t size() const noexcept {
    return static_cast<std::int64_t>(tokens_.size());
  }
  /// The token that ends a document by its usual names, tried in order.
  [[nodiscard]] std::optional<TokenId> eod() const;

 private:
  std::vector<std::string> tokens_;
  IdMap ids_;
};

/// A token found in the raw text before it is split into words.
struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool lstrip = false;  ///< takes the white space before it
  bool rstrip = false;  ///< takes the white space after it
};

/// Finds added tokens: leftmost first, the longest of those that begin at one place.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Calls `piece` for the text between added tokens (never empty) and `token` for each of them, in
  /// order.
  void split(std::string_view text,
             const std::function<void(std::string_view)>& piece,
             const std::function<void(TokenId)>& token) const;
  /// Whether an added token can reach over the edge between a letter and a space.
  [[nodiscard]] bool touches_space() const noexcept { return touches_space_; }

 private:
  struct Match {
    std::size_t begin;
    std::size_t end;
    TokenId id;
  };
  [[nodiscard]] std::optional<Match> next(std::string_view text, std::size_t from) const;
  [[nodiscard]] const AddedToken* longest_at(std::string_view text, std::size_t at) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  ///< longest first
  bool any_ = false;
  bool touches_space_ = false;
};

/// First place at or after `from` between an ASCII letter or digit and a space, where no word of
/// any supported tokenizer reaches across.
[[nodiscard]] std::size_t word_boundary(std::string_view text, std::size_t from) noexcept;

/// Whole text of a tokenizer file. Errors: data "file-not-found", "data-unreadable".
[[nodiscard]] std::string read_tokenizer_file(const std::filesystem::path& path);

/// Adds the bytes of each id. Errors: data "token-range".
[[nodiscard]] const std::string& piece_of(const std::vector<std::string>& pieces, TokenId id);

}  // namespace colossal::detail
