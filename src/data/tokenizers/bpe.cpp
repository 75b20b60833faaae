// How does text become symbols before they are merged? As bytes of words, or as characters.
#include "data/tokenizers/bpe.hpp"

#include "core/error.hpp"
#include "data/tokenizers/bpe_spec.hpp"
#include "data/tokenizers/pool.hpp"
#include "data/tokenizers/unicode.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace colossal {
namespace {

using detail::BpeSpec;
using detail::Prepend;

constexpr std::string_view kBlock = "\xE2\x96\x81";  // U+2581, written for a space

/// What one thread needs while it encodes.
struct Scratch {
  detail::WordCache words;
  detail::MergeBuffers buffers;
  std::vector<TokenId> symbols;
  std::string text;
};

detail::MergeTable merge_table(const BpeSpec& spec) {
  detail::MergeTable table(spec.merges.size());
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const detail::BpeMerge& merge = spec.merges[rank];
    table.add(merge.left, merge.right, {static_cast<std::uint32_t>(rank), merge.result});
  }
  return table;
}

/// Id of each byte as a token of its own; `name` gives the token. Errors: data "tokenizer-file".
template <class Name>
std::array<TokenId, 256> byte_tokens(const BpeSpec& spec, Name name) {
  std::array<TokenId, 256> ids = {};
  for (std::size_t byte = 0; byte < ids.size(); ++byte) {
    const std::optional<TokenId> id = spec.vocabulary.find(name(byte));
    check(id.has_value(),
          ErrorKind::data,
          "tokenizer-file",
          "the vocabulary has no token for the byte 0x{:02X}, so not every text has ids",
          byte);
    ids[byte] = *id;
  }
  return ids;
}

/// What all byte-pair tokenizers share; subclasses know how a piece of text is cut into symbols.
class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeSpec spec)
      : spec_(std::move(spec)), table_(merge_table(spec_)), added_(spec_.added) {}

  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    const auto scratch = pool_.take();
    const char* const begin = text.data();
    added_.split(
        text,
        [&](std::string_view piece) { encode_piece(piece, piece.data() == begin, *scratch, ids); },
        [&](TokenId id) { ids.push_back(id); });
  }

  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids) {
      text += detail::piece_of(pieces(), id);
    }
    return text;
  }

  [[nodiscard]] std::int64_t size() const override { return spec_.vocabulary.size(); }
  [[nodiscard]] std::optional<TokenId> eod() const override { return spec_.vocabulary.eod(); }
  [[nodiscard]] std::string fingerprint() const override { return spec_.fingerprint; }

 protected:
  /// Appends the ids of text without added tokens; `first`: the text begins with it.
  virtual void encode_piece(std::string_view piece,
                            bool first,
                            Scratch& scratch,
                            std::vector<TokenId>& ids) const = 0;
  /// Bytes of each id.
  [[nodiscard]] virtual const std::vector<std::string>& pieces() const {
    return spec_.vocabulary.tokens();
  }
  /// Symbols of a word before any merge.
  virtual void symbols_of(std::string_view word, std::vector<TokenId>& symbols) const = 0;

  [[nodiscard]] const BpeSpec& spec() const { return spec_; }
  [[nodiscard]] const detail::AddedTokens& added() const { return added_; }

  /// Appends the ids of a word, from the cache if it is known.
  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& ids) const {
    if (scratch.words.append(word, ids)) {
      return;
    }
    std::vector<TokenId>& symbols = scratch.symbols;
    symbols.clear();
    const auto whole = spec_.ignore_merges ? spec_.vocabulary.find(word) : std::nullopt;
    if (whole) {
      symbols.push_back(*whole);
    } else {
      symbols_of(word, symbols);
      check_length(word, symbols.size());
      detail::merge_symbols(table_, symbols, scratch.buffers);
    }
    scratch.words.store(word, symbols.data(), symbols.size());
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

 private:
  void check_length(std::string_view word, std::size_t num_symbols) const {
    check(num_symbols <= spec_.most_symbols,
          ErrorKind::data,
          "word-too-long",
          "a piece of {} bytes that this tokenizer does not cut has {} symbols, at most {} can be "
          "merged\n  fix   give the text in shorter documents: in several files, or with `dataset "
          "prepare --split-documents line`",
          word.size(),
          num_symbols,
          spec_.most_symbols);
  }

  BpeSpec spec_;
  detail::MergeTable table_;
  detail::AddedTokens added_;
  mutable detail::Pool<Scratch> pool_;
};

/// Words are cut by a pattern and merged from their bytes.
class ByteLevelBpe : public BpeTokenizer {
 public:
  explicit ByteLevelBpe(BpeSpec given)
      : BpeTokenizer(std::move(given)), bytes_(byte_tokens(spec(), [](std::size_t byte) {
          return std::string(1, static_cast<char>(byte));
        })) {}

  [[nodiscard]] std::size_t boundary(std::string_view text, std::size_t from) const override {
    return added().touches_space() ? text.size() : detail::word_boundary(text, from);
  }

 protected:
  void encode_piece(std::string_view piece,
                    bool /*first*/,
                    Scratch& scratch,
                    std::vector<TokenId>& ids) const override {
    if (spec().prefix_space && !piece.starts_with(' ')) {
      scratch.text.assign(1, ' ').append(piece);
      piece = scratch.text;
    }
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t end = detail::word_end(spec().pattern, piece, at);
      encode_word(piece.substr(at, end - at), scratch, ids);
      at = end;
    }
  }

  void symbols_of(std::string_view word, std::vector<TokenId>& symbols) const override {
    for (const char c : word) {
      symbols.push_back(bytes_[static_cast<unsigned char>(c)]);
    }
  }

 private:
  std::array<TokenId, 256> bytes_;
};

/// Symbols are characters, a space is the block U+2581; what has no token becomes bytes or one
/// unknown token.
class CharacterBpe : public BpeTokenizer {
 public:
  explicit CharacterBpe(BpeSpec given) : BpeTokenizer(std::move(given)) {
    if (spec().byte_fallback) {
      bytes_ = byte_tokens(spec(), byte_name);
    } else {
      check(spec().unknown.has_value(),
            ErrorKind::data,
            "tokenizer-file",
            "the model has neither byte_fallback nor an unk_token of its vocabulary, so not every "
            "text has ids");
    }
    for (std::string token : spec().vocabulary.tokens()) {
      while (spec().block_for_space && token.find(kBlock) != std::string::npos) {
        token.replace(token.find(kBlock), kBlock.size(), " ");
      }
      pieces_.push_back(std::move(token));
    }
    for (std::size_t byte = 0; spec().byte_fallback && byte < bytes_.size(); ++byte) {
      pieces_[static_cast<std::size_t>(bytes_[byte])] = std::string(1, static_cast<char>(byte));
    }
  }

  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override {
    std::string text = BpeTokenizer::decode(ids);
    if (spec().prepend != Prepend::never && text.starts_with(' ')) {
      text.erase(0, 1);
    }
    return text;
  }

  /// Merges may reach over spaces, and the block is put before the first piece only.
  [[nodiscard]] std::size_t boundary(std::string_view text, std::size_t /*from*/) const override {
    return text.size();
  }

 protected:
  void encode_piece(std::string_view piece,
                    bool first,
                    Scratch& scratch,
                    std::vector<TokenId>& ids) const override {
    std::string& text = scratch.text;
    text.clear();
    if (prepends(piece, first)) {
      text += kBlock;
    }
    for (const char c : piece) {
      spec().block_for_space&& c == ' ' ? text.append(kBlock) : text.append(1, c);
    }
    const std::string_view view = text;
    for (std::size_t at = 0; at < view.size();) {
      const std::size_t end =
          spec().split_words ? std::min(view.find(kBlock, at + 1), view.size()) : view.size();
      encode_word(view.substr(at, end - at), scratch, ids);
      at = end;
    }
  }

  [[nodiscard]] const std::vector<std::string>& pieces() const override { return pieces_; }

  void symbols_of(std::string_view word, std::vector<TokenId>& symbols) const override {
    bool after_unknown = false;
    for (std::size_t at = 0; at < word.size();) {
      const std::string_view character = word.substr(at, detail::character_at(word, at).length);
      at += character.size();
      const std::optional<TokenId> id = spec().vocabulary.find(character);
      if (id) {
        symbols.push_back(*id);
      } else if (spec().byte_fallback) {
        append_bytes(character, symbols);
      } else if (!after_unknown || !spec().fuse_unknown) {
        symbols.push_back(*spec().unknown);
      }
      after_unknown = !id;
    }
  }

 private:
  void append_bytes(std::string_view text, std::vector<TokenId>& symbols) const {
    for (const char c : text) {
      symbols.push_back(bytes_[static_cast<unsigned char>(c)]);
    }
  }

  static std::string byte_name(std::size_t byte) { return fmt::format("<0x{:02X}>", byte); }

  [[nodiscard]] bool prepends(std::string_view piece, bool first) const {
    const bool there = piece.starts_with(' ') || piece.starts_with(kBlock);
    switch (spec().prepend) {
      case Prepend::never:
        return false;
      case Prepend::always:
        return true;
      case Prepend::unless_there:
        return !there;
      case Prepend::first_piece_only:
        return first && !there;
    }
    return false;
  }

  std::array<TokenId, 256> bytes_ = {};
  std::vector<std::string> pieces_;
};

}  // namespace

std::unique_ptr<Tokenizer> detail::make_bpe_tokenizer(BpeSpec spec) {
  if (spec.byte_level) {
    return std::make_unique<ByteLevelBpe>(std::move(spec));
  }
  return std::make_unique<CharacterBpe>(std::move(spec));
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const TokenizerConfig& config) {
  const ErrorContext context("opening tokenizer " + config.path);
  return detail::make_bpe_tokenizer(detail::read_bpe(config.path));
}

}  // namespace colossal
