// How does text become token ids and back?
#pragma once

#include "config/config.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

struct Loaded;

/// Number of a token; every id is in [0, Tokenizer::size()).
using TokenId = std::int32_t;

/// Text to ids and back. All functions are safe to call from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the ids of `text` to `ids`, without the special tokens that a model may want around a
  /// text ([CLS] ... [SEP]). Any bytes are accepted: what is not UTF-8 becomes byte tokens where
  /// the vocabulary has them, one unknown token where it has no bytes (`bpe` of characters), and is
  /// dropped by `wordpiece`. Errors: data "word-too-long" for `bpe` that finds more than 2^31 - 1
  /// symbols without a place to cut.
  virtual void encode(std::string_view text, std::vector<TokenId>& ids) const = 0;
  /// Bytes that the ids stand for. decode(encode(x)) == x for `byte` and byte-level `bpe`; where
  /// encoding loses something (case, kind of space), the result is what the tokens say. The bytes
  /// of one id alone need not be UTF-8. Errors: data "token-range" for an id that does not exist.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> ids) const = 0;
  /// Rows an embedding needs: largest id + 1.
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// The id that ends a document, if the vocabulary has one.
  [[nodiscard]] virtual std::optional<TokenId> eod() const = 0;
  /// SHA-256 of everything the ids depend on; stored in checkpoints, must match on resume.
  [[nodiscard]] virtual std::string fingerprint() const = 0;
  /// First place at or after `from` where `text` may be cut in two without changing its ids;
  /// text.size() if there is none.
  [[nodiscard]] virtual std::size_t boundary(std::string_view text, std::size_t from) const = 0;
};

/// Opens the tokenizer of a configuration. Reads its files once, about 50 ms for 50,000 tokens.
/// Errors (data): "file-not-found", "data-unreadable", "tokenizer-file" (file, line or key, what is
/// wrong), "tokenizer-unsupported" (the component by name).
[[nodiscard]] std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerConfig& config);

/// What a dataset's fingerprint has of the tokenizer that `config` has opened: its own; nothing for
/// one without files, whose ids cannot change.
[[nodiscard]] std::string stored_fingerprint(const TokenizerConfig& config,
                                             const Tokenizer& tokenizer);

/// Gives model.vocab_size `auto` the size of a tokenizer that has files; part of phase P7, so that
/// `validate` reads no data. Errors: those of open_tokenizer(), of the key data.tokenizer.path.
void resolve_vocabulary(Loaded& loaded);

/// The id that joins documents. Errors: data "tokenizer-eod" if the vocabulary has none.
[[nodiscard]] TokenId require_eod(const Tokenizer& tokenizer);

}  // namespace colossal
