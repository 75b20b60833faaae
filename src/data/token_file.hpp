// Which token files can be read? Megatron-LM's pair of .bin and .idx, llm.c's .bin, and HDF5.
#pragma once

#include "config/config.hpp"
#include "data/token_stream.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace colossal {

/// How a token file is opened.
struct TokenFileOptions {
  TokenFormat format = TokenFormat::automatic;
  std::int64_t vocab_size = 0;  ///< ids must be below it
  DataValidation validate = DataValidation::header;
};

/// A mapped file of token ids. Megatron files have documents, llm.c files have none, HDF5 files
/// may.
class TokenFile : public TokenStream {
 public:
  /// The file that holds the ids.
  [[nodiscard]] virtual const std::filesystem::path& path() const = 0;
  /// "Megatron, uint16": format and type of the ids.
  [[nodiscard]] virtual std::string kind() const = 0;
  /// Reads every id once. Errors: data "token-range" with file, byte offset, id and vocabulary.
  virtual void scan() const = 0;
};

/// Opens FILE.bin, FILE.idx or FILE (Megatron), an llm.c file, or an HDF5 file with the dataset
/// `tokens`. `auto`: Megatron if an .idx lies beside the file, else by magic number. The sizes of
/// header and file must agree whatever `validate` says; `header` also checks every entry of an
/// index, `full` every id. Errors (data): "file-not-found", "data-unreadable", "data-empty";
/// "token-format" for a file of another kind, version or type; "token-file" for one that is
/// truncated or contradicts itself, with file, offset, and what is there; "token-range". Source:
/// optimizers-and-recipes 7.1, 7.3, 7.4.
[[nodiscard]] std::unique_ptr<TokenFile> open_token_file(const std::filesystem::path& path,
                                                         const TokenFileOptions& options);

}  // namespace colossal
