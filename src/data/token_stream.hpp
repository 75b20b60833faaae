// What lies between files and rows? One long stream of token ids, cut into documents.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace colossal {

/// Token ids of one or more files, one after another. Thread-safe for concurrent reads.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  /// Tokens of all documents.
  [[nodiscard]] virtual std::int64_t num_tokens() const = 0;
  /// Tokens [begin, begin + out.size()), which must exist. Errors: data "token-range" for an id
  /// outside the vocabulary.
  virtual void copy(std::int64_t begin, std::span<std::int64_t> out) const = 0;
  /// Documents; 0 if the files do not say where documents begin.
  [[nodiscard]] virtual std::int64_t num_documents() const = 0;
  /// Position of the first token of a document; of num_documents(): num_tokens(). Never decreases:
  /// a document may be empty.
  [[nodiscard]] virtual std::int64_t document_begin(std::int64_t document) const = 0;
  /// Sizes and checksums of the files in order, for fingerprints; reads all of them.
  [[nodiscard]] virtual std::string identity() const = 0;
};

/// Document of `stream` that holds the token at `position`. The stream has documents.
[[nodiscard]] std::int64_t document_at(const TokenStream& stream, std::int64_t position);

/// The parts one after another; `separator` is one more token after every part but the last, and
/// belongs to the document before it. The result has no documents if any part has none.
[[nodiscard]] std::unique_ptr<TokenStream> join_streams(
    std::vector<std::unique_ptr<TokenStream>> parts, std::optional<std::int64_t> separator);

}  // namespace colossal
