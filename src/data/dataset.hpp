// Where do samples come from? A dataset is a numbered list of samples; no order, no rank, no thread
// lives here.
#pragma once

#include "config/config.hpp"
#include "core/batch.hpp"
#include "core/registry.hpp"
#include "data/sampler.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace colossal {

/// Numbered samples. Thread-safe for concurrent reads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples.
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// The parts of [0, size) that are drawn by weight, in order; one part: all samples are equal.
  [[nodiscard]] virtual std::vector<SampleSource> sources() const { return {{size(), 1}}; }
  /// Samples `indices` as one batch: "tokens" [n,S] and "labels" [n,S] int64, labels already
  /// shifted (rows of features: "features" [n,1,F] fp32 and "labels" [n,1], the class); an index of
  /// -1 gives a row without labels (padding of the last evaluation batch).
  [[nodiscard]] virtual Batch read(std::span<const std::int64_t> indices) const = 0;
  /// Identity of the content (files, sizes, hash), stored in checkpoints and compared on resume.
  /// What a tokenizer with files read has "+" and the tokenizer's fingerprint at its end.
  [[nodiscard]] virtual std::string fingerprint() const = 0;
  /// One line for the plan: "datasets/kjv/train.txt: 4,190,000 tokens, 32,734 samples".
  [[nodiscard]] virtual std::string summary() const = 0;
};

/// The tokenizer's part of a dataset's fingerprint; empty if no tokenizer with files took part.
[[nodiscard]] inline std::string tokenizer_part(const std::string& fingerprint) {
  const std::size_t plus = fingerprint.find('+');
  return plus == std::string::npos ? "" : fingerprint.substr(plus + 1);
}

/// Which files of a configuration a dataset is made of.
enum class Split : std::uint8_t { train, eval };

/// What a dataset factory gets.
struct DatasetRequest {
  const DataConfig& data;
  std::int64_t vocab_size = 0;  ///< token ids, or classes
  std::int64_t seed = 0;
  Split split = Split::train;
  std::int64_t num_features = 0;  ///< of a row, for a model that reads rows; 0: it reads tokens
  std::int64_t threads = 1;       ///< that may encode text while it is opened
};

/// The items of data.train or data.eval.
[[nodiscard]] const std::vector<DataSource>& items_of(const DatasetRequest& request);

/// Table by data.type: text, synthetic, tokens.
[[nodiscard]] const Registry<Dataset, const DatasetRequest&>& datasets();

/// Opens the dataset of a split and checks it (config-and-cli 2.3). Items with weights become
/// sources of one dataset, see blend.hpp. Errors (all exit 4): data "file-not-found",
/// "data-unreadable", "data-empty", "data-too-short", "separator-in-text" (file, byte offset),
/// "token-file",
/// ...
[[nodiscard]] std::unique_ptr<Dataset> open_dataset(const DatasetRequest& request);

}  // namespace colossal
