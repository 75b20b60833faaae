// Do weights that Hugging Face's own library saved compute here what they compute there, and do
// they leave as they came?
#include "infer/exchange.hpp"

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/safetensors.hpp"
#include "config/load.hpp"
#include "infer/decoder.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "support/temp_dir.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

struct Variant {
  const char* name;
  const char* model;  ///< what differs from the base, as YAML
};

constexpr Variant kVariants[] = {
    {"gpt2_default", ""},
    {"gpt2_wide", ", activation: gelu, ffn_hidden_size: 24, norm_eps: 1e-3"},
    {"gpt2_untied", ", activation: relu, tie_embeddings: false"}};

/// A fixture, its import, and where more can be written.
class Imported {
 public:
  explicit Imported(const Variant& variant)
      : fixture_(fs::path(COLOSSAL_TEST_DATA) / "fixtures" / variant.name) {
    const std::string heads = std::string(variant.name) == "gpt2_untied" ? "2" : "4";
    std::ofstream(folder_.path() / "config.yaml") << fmt::format(
        "version: 1\n"
        "model: {{type: gpt, num_layers: 2, hidden_size: 16, num_heads: {}, vocab_size: 128,\n"
        "  max_seq_length: 24{}}}\n"
        "data: {{type: synthetic, seq_length: 24}}\n"
        "train: {{steps: 1, global_batch_size: 1, micro_batch_size: 1, precision: fp32}}\n"
        "optimizer: {{type: adamw, lr: 1e-3}}\n",
        heads,
        variant.model);
    const int code = run_import({.file = (fixture_ / "model.safetensors").string(),
                                 .config = (folder_.path() / "config.yaml").string(),
                                 .sets = {},
                                 .output = checkpoint().string(),
                                 .build_id = ""});
    REQUIRE(code == 0);
  }

  [[nodiscard]] fs::path checkpoint() const { return folder_.path() / "imported"; }
  [[nodiscard]] fs::path output() const { return folder_.path() / "out" / "model.safetensors"; }
  [[nodiscard]] SafetensorsFile file(const std::string& name) const {
    return SafetensorsFile(fixture_ / name);
  }

  /// Logits [S, V] of a row of tokens.
  [[nodiscard]] at::Tensor logits(const at::Tensor& tokens) const {
    Decoder decoder(load(folder_.path() / "config.yaml").config, 1);
    decoder.load(find_checkpoint(checkpoint()));
    const std::vector<std::int64_t> ids(tokens.const_data_ptr<std::int64_t>(),
                                        tokens.const_data_ptr<std::int64_t>() + tokens.numel());
    std::vector<at::Tensor> rows;
    for (std::size_t length = 1; length <= ids.size(); ++length) {
      rows.push_back(decoder.prefill(0, std::span(ids).first(length)));
    }
    return at::stack(rows);
  }

 private:
  TempDir folder_;
  fs::path fixture_;
};

}  // namespace

TEST_CASE("imported GPT-2 weights compute what Hugging Face's library computes", "[golden]") {
  for (const Variant& variant : kVariants) {
    INFO(variant.name);
    const Imported imported(variant);
    const SafetensorsFile expected = imported.file("expected.safetensors");
    const at::Tensor tokens = expected.read(*expected.find("tokens"));
    const at::Tensor logits = expected.read(*expected.find("logits"));
    REQUIRE(tokens.sizes() == at::IntArrayRef({2, 24}));
    for (const std::int64_t row : {0, 1}) {
      require_close(logits.select(0, row),
                    imported.logits(tokens.select(0, row).contiguous()),
                    1e-5,
                    fmt::format("logits of row {}", row));
    }
  }
}

TEST_CASE("weights of Hugging Face's library leave as they came", "[golden]") {
  for (const Variant& variant : kVariants) {
    INFO(variant.name);
    const Imported imported(variant);
    REQUIRE(run_export({.checkpoint = imported.checkpoint().string(),
                        .output = imported.output().string()}) == 0);
    const SafetensorsFile before = imported.file("model.safetensors");
    const SafetensorsFile after(imported.output());
    REQUIRE(after.tensors().size() == before.tensors().size());
    for (const SafeTensor& tensor : before.tensors()) {
      INFO(tensor.name);
      const SafeTensor* const found = after.find(tensor.name);
      REQUIRE(found != nullptr);
      CHECK(at::equal(after.read(*found), before.read(tensor)));
    }
  }
}

}  // namespace colossal::test
