// How do the tests of config load a text? From a folder of their own, summed up as "id line col;
// ...".
#pragma once

#include "config/load.hpp"
#include "support/temp_dir.hpp"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {

/// The smallest valid configuration; needs no files.
inline const std::string kSynthetic =
    "version: 1\n"
    "model: {type: gpt, num_layers: 2, hidden_size: 64, num_heads: 4, vocab_size: 256}\n"
    "data: {type: synthetic, seq_length: 64}\n"
    "train: {steps: 50, micro_batch_size: 4}\n"
    "optimizer: {type: adamw, lr: 1e-3}\n";

/// The same with text files.
inline const std::string kText =
    "version: 1\n"
    "model: {type: gpt, num_layers: 2, hidden_size: 64, num_heads: 4}\n"
    "data: {type: text, train: [a.txt], tokenizer: {type: byte}, seq_length: 64}\n"
    "train: {steps: 50, micro_batch_size: 4}\n"
    "optimizer: {type: adamw, lr: 1e-3}\n";

/// The same with files of token ids.
inline const std::string kTokens =
    "version: 1\n"
    "model: {type: gpt, num_layers: 2, hidden_size: 64, num_heads: 4, vocab_size: 256}\n"
    "data: {type: tokens, train: [a.bin], seq_length: 64}\n"
    "train: {steps: 50, micro_batch_size: 4}\n"
    "optimizer: {type: adamw, lr: 1e-3}\n";

/// The smallest valid configuration with these keys of the optimizer besides lr.
inline std::string with_optimizer(const std::string& keys) {
  return kSynthetic.substr(0, kSynthetic.find("optimizer:")) + "optimizer: {lr: 0.1, " + keys +
         "}\n";
}

/// "id line col" of every diagnostic, joined by "; ".
inline std::string summary(const Loaded& loaded) {
  std::string text;
  for (const Diagnostic& item : loaded.diagnostics) {
    text += (text.empty() ? "" : "; ") + item.id + " " + std::to_string(item.origin.line) + " " +
            std::to_string(item.origin.col);
  }
  return text;
}

/// --set options, and a world size if not 0.
inline LoadOptions options(std::vector<std::string> sets, std::int64_t world = 0) {
  LoadOptions result;
  for (std::string& set : sets) {
    result.overrides.push_back({std::move(set)});
  }
  if (world != 0) {
    result.world_size = world;
    result.world_origin = "no launcher environment found";
  }
  return result;
}

/// A folder with configuration files.
class ConfigSandbox {
 public:
  /// Writes a file and returns its path.
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    const auto path = dir_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  /// Loads `text` as run.yaml.
  Loaded load(const std::string& text, const LoadOptions& with = {}) const {
    if (text != last_ || last_.empty()) {
      write("run.yaml", text);
      last_ = text;
    }
    return colossal::load(dir_.path() / "run.yaml", with);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return dir_.path(); }

 private:
  TempDir dir_;
  mutable std::string last_;  ///< content of run.yaml: most tests vary only the options
};

}  // namespace colossal::test
