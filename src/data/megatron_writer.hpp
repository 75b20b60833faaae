// How are token files written that Megatron-LM, and this program, can read?
#pragma once

#include "core/output_file.hpp"
#include "data/detail/token_index.hpp"
#include "data/tokenizers/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace colossal {

/// Writes OUT.bin and OUT.idx (optimizers-and-recipes 7.1): one sequence a document, several only
/// beyond 2^31 - 1 tokens. Ids are uint16 for vocabularies below 65,500, else int32. The files
/// appear at finish(), the index last, so that there is never a pair that does not fit together.
class MegatronWriter {
 public:
  /// `out` may end in .bin or .idx. Errors: environment "output-write".
  MegatronWriter(const std::filesystem::path& out, std::int64_t vocab_size);

  /// Appends ids to the current document; each must be below vocab_size.
  void add(std::span<const TokenId> ids);
  /// Ends the current document, which may be empty.
  void end_document();
  /// Completes both files. Errors: environment "output-write".
  void finish();

  /// Path of the .bin and type of its ids.
  [[nodiscard]] const std::filesystem::path& bin() const noexcept { return bin_path_; }
  [[nodiscard]] detail::TokenType type() const noexcept { return type_; }

 private:
  void end_sequence();
  void write_index();

  std::filesystem::path bin_path_;
  std::filesystem::path idx_path_;
  detail::TokenType type_;
  OutputFile bin_;
  OutputFile idx_;
  std::int64_t sequence_tokens_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> documents_ = {0};
};

}  // namespace colossal
