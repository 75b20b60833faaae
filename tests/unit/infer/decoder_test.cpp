// Are the logits of cached steps those of the model that was trained?
#include "infer/decoder.hpp"

#include "support/close.hpp"
#include "support/one_thread.hpp"
#include "unit/infer/infer_helpers.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

namespace colossal::test {
namespace {

struct Variant {
  std::string name;
  std::function<void(ModelConfig&)> change;
};

/// Every option of the GPT table at each of its values.
const std::vector<Variant> kVariants = {
    {"default", [](ModelConfig&) {}},
    {"gelu", [](ModelConfig& m) { m.activation = ActivationKind::gelu; }},
    {"relu", [](ModelConfig& m) { m.activation = ActivationKind::relu; }},
    {"swiglu", [](ModelConfig& m) { m.activation = ActivationKind::swiglu; }},
    {"two kv heads", [](ModelConfig& m) { m.num_kv_heads = 2; }},
    {"one kv head", [](ModelConfig& m) { m.num_kv_heads = 1; }},
    {"untied", [](ModelConfig& m) { m.tie_embeddings = false; }},
    {"no padding", [](ModelConfig& m) { m.vocab_pad_multiple = 1; }},
    {"math", [](ModelConfig& m) { m.attention = AttentionKind::math; }},
    {"one layer", [](ModelConfig& m) { m.num_layers = 1; }},
    {"heads of 16", [](ModelConfig& m) { m.num_heads = m.num_kv_heads = 2; }},
    {"wide eps", [](ModelConfig& m) { m.norm_eps = 1e-2; }},
    {"everything", [](ModelConfig& m) {
       m.activation = ActivationKind::swiglu;
       m.num_kv_heads = 2;
       m.tie_embeddings = false;
       m.num_layers = 3;
     }}};

/// Logits after every token, the first `prompt` of them at once and the rest one by one.
at::Tensor cached_logits(Decoder& decoder,
                         std::span<const std::int64_t> tokens,
                         std::size_t prompt) {
  const std::int64_t slot = 0;
  std::vector<at::Tensor> rows;
  rows.push_back(decoder.prefill(slot, tokens.first(prompt)).unsqueeze(0));
  for (std::size_t i = prompt; i < tokens.size(); ++i) {
    rows.push_back(decoder.step({&slot, 1}, tokens.subspan(i, 1)));
  }
  return at::cat(rows, 0);
}

void require_equal_to_full_model(const Config& config, double tolerance) {
  const LocalModel model(config);
  Decoder decoder(config, 1);
  const std::vector<std::int64_t> tokens = tokens_like(12, config.model.vocab_size);
  const at::Tensor expected = full_logits(model, tokens);
  for (const std::size_t prompt : {1U, 5U, 12U}) {
    const auto first = static_cast<std::int64_t>(prompt) - 1;
    require_close(expected.narrow(0, first, 12 - first),
                  cached_logits(decoder, tokens, prompt),
                  tolerance,
                  fmt::format("logits after a prompt of {}", prompt));
  }
}

}  // namespace

TEST_CASE("cached logits equal those of the whole sequence for every option", "[decoder]") {
  const OneThread one_thread;
  for (const Variant& variant : kVariants) {
    INFO(variant.name);
    Config config = opinionated_gpt();
    variant.change(config.model);
    require_equal_to_full_model(config, 1e-12);
    config.train.precision = Precision::fp32;
    require_equal_to_full_model(config, 2e-5);
  }
}

TEST_CASE("a prompt of more rows than the small kernel takes", "[decoder]") {
  Config config = opinionated_gpt();
  config.model.max_seq_length = 40;
  const LocalModel model(config);
  Decoder decoder(config, 1);
  const std::vector<std::int64_t> tokens = tokens_like(40, 61);
  const at::Tensor expected = full_logits(model, tokens);
  const at::Tensor found = cached_logits(decoder, tokens, 30);
  require_close(expected.narrow(0, 29, 11), found, 1e-12, "logits");
}

TEST_CASE("logits of a sequence are bit-equal alone and beside others", "[decoder]") {
  Config config = opinionated_gpt();
  config.train.precision = Precision::fp32;
  Decoder together(config, 5);
  Decoder alone(config, 1);
  const std::vector<std::int64_t> slots = {3, 0, 4, 1};
  std::vector<std::int64_t> next;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto prompt = tokens_like(2 + 2 * static_cast<std::int64_t>(i), 61, 5 + unsigned(i));
    (void)together.prefill(slots[i], prompt);
    next.push_back(prompt.front());
  }
  const at::Tensor logits = together.step(slots, next);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto prompt = tokens_like(2 + 2 * static_cast<std::int64_t>(i), 61, 5 + unsigned(i));
    const std::int64_t slot = 0;
    (void)alone.prefill(slot, prompt);
    const at::Tensor own = alone.step({&slot, 1}, {&next[i], 1});
    REQUIRE(at::equal(own, logits.narrow(0, static_cast<std::int64_t>(i), 1)));
  }
}

TEST_CASE("padding of the vocabulary has no logits", "[decoder]") {
  Decoder decoder(opinionated_gpt(), 1);
  CHECK(decoder.vocabulary() == 61);
  CHECK(decoder.capacity() == 12);
  CHECK(decoder.prefill(0, tokens_like(3, 61)).sizes() == at::IntArrayRef({61}));
  CHECK(decoder.length(0) == 3);
}

TEST_CASE("no graph is built", "[decoder]") {
  Decoder decoder(opinionated_gpt(), 1);
  const at::Tensor logits = decoder.prefill(0, tokens_like(3, 61));
  CHECK_FALSE(logits.requires_grad());
  CHECK(logits.grad_fn() == nullptr);
}

TEST_CASE("the decoder refuses what it cannot run", "[decoder]") {
  require_error(
      ErrorKind::internal, "too-many-slots", [] { Decoder decoder(opinionated_gpt(), 17); });
  Config other = opinionated_gpt();
  other.model.type = ModelType::mlp;
  require_error(ErrorKind::config, "not-generative", [&] { Decoder decoder(other, 1); });
  Decoder decoder(opinionated_gpt(), 1);
  require_error(ErrorKind::data, "token-range", [&] {
    (void)decoder.prefill(0, std::vector<std::int64_t>{1, 61});
  });
  require_error(
      ErrorKind::data, "token-range", [&] { (void)decoder.prefill(0, tokens_like(13, 61)); });
}

}  // namespace colossal::test
