// How are text files read as documents without holding them in memory?
#pragma once

#include "data/prepare.hpp"
#include "data/tokenizers/tokenizer.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// A document, or part of one.
struct DocumentPiece {
  std::string text;
  bool ends_document = true;
  std::size_t input = 0;  ///< index of the file it comes from
};

/// Reads inputs in order. Whole files come in pieces that `tokenizer` may encode one by one; lines
/// and paragraphs come whole. Line ends, and \r before them, are not part of a line.
class DocumentReader {
 public:
  /// All must outlive the reader. "-" is standard input.
  DocumentReader(const std::vector<std::string>& inputs,
                 DocumentSplit split,
                 const Tokenizer& tokenizer);
  ~DocumentReader();
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;

  /// The next piece; nothing after the last. Errors: data "file-not-found", "data-unreadable".
  [[nodiscard]] std::optional<DocumentPiece> next();

 private:
  void open();
  void close();
  /// Reads one more block; returns false at the end of the file.
  bool fill();
  [[nodiscard]] std::string_view rest() const;
  std::optional<std::string> next_line();
  std::optional<DocumentPiece> next_part();
  std::optional<DocumentPiece> next_paragraph();
  /// What is left of the open input; nothing at its end.
  std::optional<DocumentPiece> next_of_input();

  const std::vector<std::string>& inputs_;
  DocumentSplit split_;
  const Tokenizer& tokenizer_;
  std::size_t input_ = 0;
  int descriptor_ = -1;
  bool end_ = false;
  std::string buffer_;
  std::size_t begin_ = 0;    ///< of what is not yet given out
  std::size_t scanned_ = 0;  ///< bytes of rest() without a place to cut
};

}  // namespace colossal::detail
