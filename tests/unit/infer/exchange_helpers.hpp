// What do the tests of export and import share? A configuration, checkpoints of its model, and
// weights by name.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/safetensors.hpp"
#include "config/load.hpp"
#include "infer/decoder.hpp"
#include "infer/exchange.hpp"
#include "support/temp_dir.hpp"
#include "support/text.hpp"
#include "unit/infer/infer_helpers.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {

namespace fs = std::filesystem;
using Weights = std::vector<std::pair<std::string, at::Tensor>>;

inline void write_weights(const fs::path& path, const Weights& weights) {
  std::vector<SafeTensor> entries;
  for (const auto& [name, values] : weights) {
    entries.push_back({.name = name,
                       .dtype = values.scalar_type(),
                       .shape = Shape(values.sizes().begin(), values.sizes().end())});
  }
  SafetensorsWriter writer(path, entries);
  for (const auto& [name, values] : weights) {
    writer.write(values);
  }
  writer.commit();
}

inline Weights read_weights(const fs::path& path) {
  const SafetensorsFile file(path);
  Weights weights;
  for (const SafeTensor& tensor : file.tensors()) {
    weights.emplace_back(tensor.name, file.read(tensor));
  }
  return weights;
}

inline at::Tensor& weight(Weights& weights, const std::string& name) {
  for (auto& [known, values] : weights) {
    if (known == name) {
      return values;
    }
  }
  FAIL("no weight " << name);
  return weights.front().second;
}

/// A configuration file around a model of two layers, and the checkpoint of weights of that model.
class Workshop {
 public:
  explicit Workshop(std::string model = "", std::string precision = "fp32")
      : model_(std::move(model)), precision_(std::move(precision)) {
    std::ofstream(config()) << fmt::format(
        "version: 1\n"
        "model:\n  {{type: gpt, num_layers: 2, hidden_size: 32, num_heads: 4, ffn_hidden_size: "
        "48,\n"
        "   vocab_size: 61, vocab_pad_multiple: 16, max_seq_length: 12, init_std: 0.4{}}}\n"
        "data: {{type: synthetic, seq_length: 12}}\n"
        "train: {{steps: 1, global_batch_size: 2, micro_batch_size: 2, precision: {}}}\n"
        "optimizer: {{type: adamw, lr: 1e-3}}\n",
        model_,
        precision_);
  }

  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] fs::path config() const { return path("config.yaml"); }
  [[nodiscard]] Config loaded() const { return load(config()).config; }

  /// Saves the weights of `decoder` as training would; returns the root.
  fs::path save(const Decoder& decoder, const std::string& name = "run") const {
    std::vector<TensorRecord> records;
    for (const Parameter* parameter : decoder.parameters()) {
      const ParamSpec& spec = parameter->spec();
      if (spec.tied_to.empty()) {
        const Shape zeros(spec.shape.size(), 0);
        records.push_back(
            {"model/" + spec.name, spec.shape, parameter->tensor(), {{zeros, zeros, spec.shape}}});
      }
    }
    RunState state;
    state.step = 7;
    state.config_yaml = to_yaml(loaded());
    save_checkpoint(path(name), state, records, Comm(), {});
    return path(name);
  }

  /// Saves fresh weights and exports them; returns the file.
  fs::path exported(const std::string& dtype = "fp32", bool untie = false) const {
    const Decoder decoder(loaded(), 1);
    const ExportOptions options{.checkpoint = save(decoder).string(),
                                .output = path("out/model.safetensors").string(),
                                .dtype = dtype,
                                .untie = untie};
    REQUIRE(run_export(options) == 0);
    return options.output;
  }

  void import(const fs::path& file,
              const std::string& name,
              std::vector<std::string> sets = {}) const {
    const int code = run_import({.file = file.string(),
                                 .config = config().string(),
                                 .sets = std::move(sets),
                                 .output = path(name).string(),
                                 .build_id = "test-build"});
    REQUIRE(code == 0);
  }

  /// Imports what must be refused; returns the message.
  std::string refused(ErrorKind kind,
                      const std::string& id,
                      const fs::path& file,
                      std::vector<std::string> sets = {}) const {
    std::string text;
    require_error(kind, id, [&] {
      try {
        import(file, "refused", std::move(sets));
      } catch (const Error& error) {
        text = error.what();
        throw;
      }
    });
    CHECK_FALSE(fs::exists(path("refused")));
    return text;
  }

 private:
  TempDir folder_;
  std::string model_;
  std::string precision_;
};

inline at::Tensor logits_of(const fs::path& checkpoint, const Config& config) {
  Decoder decoder(config, 1);
  decoder.load(find_checkpoint(checkpoint));
  return decoder.prefill(0, tokens_like(9, config.model.vocab_size));
}

inline bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline const std::string kWte = "transformer.wte.weight";
inline const std::string kQkv = "transformer.h.0.attn.c_attn.weight";

}  // namespace colossal::test
