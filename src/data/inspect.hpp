// What does a token file hold, and is all of it right?
#pragma once

#include "data/prepare.hpp"

#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// What `dataset inspect` is asked to do.
struct InspectDatasetOptions {
  std::vector<std::string> files;
  std::optional<TokenizerConfig> tokenizer;  ///< shows text and bounds the ids
};

/// What one token file holds.
struct DatasetReport {
  std::string path;  ///< the file of ids
  std::string kind;  ///< "Megatron, uint16"
  TokenStatistics statistics;
  std::string checksum;  ///< SHA-256 over sizes and CRC-32C of the files
  std::string sample;    ///< the first ids, as text if there is a tokenizer
};

/// Opens each file, checks header, index and every id, and counts. Errors (data): those of
/// open_token_file(); "token-range" for an id outside the tokenizer's vocabulary (file, offset,
/// id).
[[nodiscard]] std::vector<DatasetReport> inspect_datasets(const InspectDatasetOptions& options);

/// Lines for people.
[[nodiscard]] std::string to_text(const DatasetReport& report);
/// One line of JSON with the same.
[[nodiscard]] std::string to_json(const DatasetReport& report);

}  // namespace colossal
