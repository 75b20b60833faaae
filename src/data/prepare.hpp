// How does text become a file of token ids, once, before training?
#pragma once

#include "data/tokenizers/tokenizer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace colossal {

/// What a document is: a whole file, a line, or lines up to a blank one.
enum class DocumentSplit : std::uint8_t { file, line, blank_line };

/// A document of fewer tokens, the one that ends it left out, counts as short.
inline constexpr std::int64_t kShortDocument = 8;

/// What `dataset prepare` is asked to do.
struct PrepareOptions {
  TokenizerConfig tokenizer;
  std::vector<std::string> inputs;  ///< text files, "-": standard input
  std::string output;               ///< OUT, OUT.bin or OUT.idx
  DocumentSplit split = DocumentSplit::file;
  bool end_documents = true;  ///< put the end-of-document id after each document
};

/// What a token file holds.
struct TokenStatistics {
  std::int64_t num_documents = 0;  ///< 0 if the file does not say
  std::int64_t num_tokens = 0;     ///< ids that end documents included
  std::int64_t num_empty = 0;      ///< documents without tokens
  std::int64_t num_short = 0;  ///< documents of fewer than kShortDocument tokens, empty ones not
  std::int64_t smallest = 0;   ///< ids; 0 without tokens
  std::int64_t largest = 0;
};

/// What `dataset prepare` did.
struct PrepareReport {
  TokenStatistics statistics;  ///< empty documents are counted but not written
  std::string bin;             ///< the file of ids; the index lies beside it
  std::string type;            ///< of the ids: "uint16"
  std::int64_t num_bytes = 0;  ///< of text
  double seconds = 0;
};

/// Encodes the inputs on all cores and writes OUT.bin and OUT.idx in Megatron-LM's format. Memory
/// does not grow with the input, but for documents that cannot be cut (lines, paragraphs, `bpe` of
/// LLaMA-2's kind). Says how far it is every two seconds. Errors: data "file-not-found",
/// "data-unreadable", "data-empty" (no token at all), "separator-in-text" (`byte`), "tokenizer-eod"
/// and those of open_tokenizer(); environment "output-write". After an error no file is left and an
/// earlier OUT is as it was.
[[nodiscard]] PrepareReport prepare_dataset(const PrepareOptions& options);

/// Lines for people: documents, tokens, empty and short documents, range of ids, speed.
[[nodiscard]] std::string to_text(const PrepareReport& report);
/// One line of JSON with the same.
[[nodiscard]] std::string to_json(const PrepareReport& report);

/// `byte`, `bpe:PATH` or `wordpiece:PATH` as written on the command line. Errors: usage
/// "bad-tokenizer".
[[nodiscard]] TokenizerConfig parse_tokenizer(const std::string& text);

}  // namespace colossal
