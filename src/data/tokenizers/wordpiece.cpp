// How is text normalised, cut into words and words into pieces, as BERT does?
#include "data/tokenizers/wordpiece.hpp"

#include "core/error.hpp"
#include "data/tokenizers/merges.hpp"
#include "data/tokenizers/pool.hpp"
#include "data/tokenizers/unicode.hpp"
#include "data/tokenizers/wordpiece_spec.hpp"

#include <array>
#include <utility>

namespace colossal {
namespace {

constexpr std::int32_t kReplacement = 0xFFFD;

/// Endings that stand at the word before them when ids become text again, without the space.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kJoined = {
    {{" .", "."},
     {" ?", "?"},
     {" !", "!"},
     {" ,", ","},
     {" ' ", "'"},
     {" n't", "n't"},
     {" 'm", "'m"},
     {" do not", " don't"},
     {" 's", "'s"},
     {" 've", "'ve"},
     {" 're", "'re"}}};

/// Replaces from left to right; what was put in is not searched again.
void replace_all(std::string& text, std::string_view old, std::string_view by) {
  for (std::size_t at = text.find(old); at != std::string::npos;
       at = text.find(old, at + by.size())) {
    text.replace(at, old.size(), by);
  }
}

/// What one thread needs while it encodes.
struct WordScratch {
  detail::WordCache words;
  std::string clean;
  std::string word;
  std::vector<TokenId> ids;
};

class WordPieceTokenizer : public Tokenizer {
 public:
  explicit WordPieceTokenizer(detail::WordPieceSpec spec)
      : spec_(std::move(spec)), added_(spec_.added) {
    const auto& tokens = spec_.vocabulary.tokens();
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (tokens[id].starts_with(spec_.continuation)) {
        continued_.emplace(tokens[id].substr(spec_.continuation.size()), static_cast<TokenId>(id));
      }
    }
  }

  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    const auto scratch = pool_.take();
    added_.split(
        text,
        [&](std::string_view piece) { encode_piece(piece, *scratch, ids); },
        [&](TokenId id) { ids.push_back(id); });
  }

  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::string token = detail::piece_of(spec_.vocabulary.tokens(), ids[i]);
      const bool continues = i > 0 && token.starts_with(spec_.continuation);
      if (continues) {
        token.erase(0, spec_.continuation.size());
      } else if (i > 0) {
        token.insert(0, 1, ' ');
      }
      for (const auto& [apart, joined] : kJoined) {
        replace_all(token, apart, joined);
      }
      text += token;
    }
    return text;
  }

  [[nodiscard]] std::int64_t size() const override { return spec_.vocabulary.size(); }
  [[nodiscard]] std::optional<TokenId> eod() const override { return spec_.vocabulary.eod(); }
  [[nodiscard]] std::string fingerprint() const override { return spec_.fingerprint; }
  [[nodiscard]] std::size_t boundary(std::string_view text, std::size_t from) const override {
    return added_.touches_space() ? text.size() : detail::word_boundary(text, from);
  }

 private:
  /// Controls go before spaces are looked for, so only some of \s separates cleaned text.
  [[nodiscard]] bool separates(std::int32_t code) const {
    const bool kept = !spec_.clean_text || code == '\t' || code == '\n' || code == '\r' ||
                      (code != 0 && !detail::is_control(code));
    return kept && detail::is_space(code);
  }
  [[nodiscard]] bool dropped(std::int32_t code) const {
    return code < 0 ||
           (spec_.clean_text && (code == 0 || code == kReplacement || detail::is_control(code)));
  }

  void encode_piece(std::string_view piece, WordScratch& scratch, std::vector<TokenId>& ids) const {
    std::size_t begin = 0;
    for (std::size_t at = 0; at <= piece.size();) {
      const bool end = at == piece.size();
      const detail::Character next = end ? detail::Character{} : detail::character_at(piece, at);
      if (end || separates(next.code)) {
        encode_chunk(piece.substr(begin, at - begin), scratch, ids);
        begin = at + next.length;
      }
      at += next.length;
    }
  }

  /// Text without separating space. It is normalised alone: no rule looks across a space.
  void encode_chunk(std::string_view chunk, WordScratch& scratch, std::vector<TokenId>& ids) const {
    if (chunk.empty() || scratch.words.append(chunk, ids)) {
      return;
    }
    scratch.ids.clear();
    scratch.word.clear();
    for (const char32_t code : normalised(chunk, scratch)) {
      add_character(static_cast<std::int32_t>(code), scratch);
    }
    finish_word(scratch);
    scratch.words.store(chunk, scratch.ids.data(), scratch.ids.size());
    ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  }

  [[nodiscard]] std::u32string normalised(std::string_view chunk, WordScratch& scratch) const {
    std::u32string codes;
    for (std::size_t at = 0; at < chunk.size();) {
      const detail::Character next = detail::character_at(chunk, at);
      at += next.length;
      if (!dropped(next.code)) {
        codes.push_back(static_cast<char32_t>(next.code));
      }
    }
    if (!spec_.strip_accents) {
      return codes;
    }
    scratch.clean.clear();
    for (const char32_t code : codes) {
      detail::append_utf8(static_cast<std::int32_t>(code), scratch.clean);
    }
    codes = detail::decompose(scratch.clean);
    std::erase_if(codes, [](char32_t code) {
      return detail::is_nonspacing_mark(static_cast<std::int32_t>(code));
    });
    return codes;
  }

  void add_character(std::int32_t code, WordScratch& scratch) const {
    const bool alone = detail::is_punctuation(code) || (spec_.separate_cjk && detail::is_cjk(code));
    if (alone) {
      finish_word(scratch);
    }
    detail::append_utf8(spec_.lowercase ? detail::to_lower(code) : code, scratch.word);
    if (alone) {
      finish_word(scratch);
    }
  }

  /// Cuts the word into the longest pieces there are, from the left; one that does not end this way
  /// is unknown as a whole.
  void finish_word(WordScratch& scratch) const {
    const std::string_view word = scratch.word;
    const std::size_t before = scratch.ids.size();
    bool known = num_characters(word) <= spec_.longest_word;
    for (std::size_t at = 0; known && at < word.size();) {
      const std::size_t length = longest_piece(word, at, scratch.ids);
      known = length > 0;
      at += length;
    }
    if (!known) {
      scratch.ids.resize(before);
      scratch.ids.push_back(spec_.unknown);
    }
    scratch.word.clear();
  }

  /// Appends the id of the longest piece at `at` and returns its bytes; 0 if there is none.
  std::size_t longest_piece(std::string_view word,
                            std::size_t at,
                            std::vector<TokenId>& ids) const {
    for (std::size_t length = word.size() - at; length > 0; --length) {
      const std::optional<TokenId> id = piece_id(word.substr(at, length), at > 0);
      if (id) {
        ids.push_back(*id);
        return length;
      }
    }
    return 0;
  }

  [[nodiscard]] std::optional<TokenId> piece_id(std::string_view piece, bool continues) const {
    if (!continues) {
      return spec_.vocabulary.find(piece);
    }
    const auto it = continued_.find(piece);
    return it == continued_.end() ? std::nullopt : std::optional(it->second);
  }

  static std::size_t num_characters(std::string_view word) {
    std::size_t count = 0;
    for (const char c : word) {
      count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
    }
    return count;
  }

  detail::WordPieceSpec spec_;
  detail::AddedTokens added_;
  detail::IdMap continued_;  ///< pieces that continue a word, without their prefix
  mutable detail::Pool<WordScratch> pool_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_wordpiece_tokenizer(const TokenizerConfig& config) {
  const ErrorContext context("opening tokenizer " + config.path);
  return std::make_unique<WordPieceTokenizer>(detail::read_wordpiece(config.path));
}

}  // namespace colossal
