// Do ten training steps of a tiny GPT in flat chunks give PyTorch's losses, norms and final
// weights?
#include "golden/gpt_config.hpp"
#include "memory/chunk_store.hpp"
#include "optim/norms.hpp"
#include "optim/update.hpp"
#include "support/close.hpp"

#include <memory>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

Config training_config(const Golden& golden, const std::string& variant) {
  Config config = golden_config(golden, variant);
  const std::string adamw = variant + "/adamw";
  config.train.clip_grad_norm = golden.number(adamw, "clip");
  config.optimizer.lr = golden.number(adamw, "lr");
  config.optimizer.weight_decay = golden.number(adamw, "weight_decay");
  config.optimizer.betas = {golden.number(adamw, "beta1"), golden.number(adamw, "beta2")};
  config.optimizer.eps = golden.number(adamw, "eps");
  return config;
}

/// A model of the fixture whose memory belongs to a store of several small chunks.
class Training {
 public:
  Training(const Golden& golden, const std::string& variant, const Config& config)
      : config_(config), model_(config), optimizer_(optimizers().make("adamw", config.optimizer)) {
    std::vector<ChunkStore::Block> blocks;
    for (const auto& block : model_.blocks()) {
      blocks.push_back({"block " + std::to_string(blocks.size()), block->parameters()});
    }
    const std::int64_t item_bytes = config.train.precision == Precision::fp64 ? 8 : 4;
    const auto planner =
        chunk_planners().make("0", {.chunk_bytes = 1024 * item_bytes, .item_bytes = item_bytes});
    store_ = std::make_unique<ChunkStore>(
        blocks, *planner, optimizer_->states(), store_options(config), model_.context());
    std::vector<std::string> names;
    for (int block = 0; block < std::ssize(blocks); ++block) {
      store_->acquire(block, BlockUse::backward);
    }
    for (const Parameter* parameter : store_->parameters()) {
      load_golden_weight(golden, variant, *parameter, parameter->tensor());
      names.push_back(parameter->spec().name);
    }
    groups_ = param_groups(config.optimizer, names);
  }

  Training(const Training&) = delete;  // the layers keep a reference to the model's context
  Training& operator=(const Training&) = delete;

  struct Step {
    double loss = 0;
    double norm = 0;
  };

  /// One step on the mean loss over `labelled` tokens.
  Step step(std::int64_t index, const Batch& batch, double labelled) {
    store_->begin_gradients();
    const at::Tensor loss = model_.forward(batch).loss_sum.div(labelled);
    loss.backward();
    for (auto block = static_cast<int>(model_.blocks().size()); block-- > 0;) {
      store_->gradients_ready(block, true);
    }
    store_->finish_gradients();
    const double norm = global_grad_norm(store_->shards(), store_->parameters(), model_.context());
    const double clip = clip_factor(norm, config_.train.clip_grad_norm);
    apply_update(
        *optimizer_,
        [&](const ShardCall& call) { call(store_->shards()); },
        groups_,
        {.step = index, .lr = config_.optimizer.lr, .grad_factor = clip},
        store_->parameters(),
        model_.context());
    store_->publish();
    return {loss.item<double>(), norm};
  }

  [[nodiscard]] const ChunkStore& store() const { return *store_; }

 private:
  Config config_;
  LocalModel model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<ChunkStore> store_;
  std::vector<ParamGroup> groups_;
};

/// Ten steps; losses and gradient norms must follow the recorded ones.
void replay(Training& training,
            const Golden& golden,
            const std::string& variant,
            double tolerance) {
  REQUIRE(training.store().plan().chunks.size() > 3);
  const Batch batch = golden_batch(golden, variant);
  const double labelled = batch.at("labels").ne(kIgnoreLabel).sum().item<double>();
  const at::Tensor losses = golden.tensor(variant + "/adamw/losses");
  const at::Tensor norms = golden.tensor(variant + "/adamw/grad_norms");
  REQUIRE(losses.numel() == 10);
  for (std::int64_t index = 0; index < losses.numel(); ++index) {
    INFO("step " << index);
    const Training::Step step = training.step(index, batch, labelled);
    require_relative(losses[index].item<double>(), step.loss, tolerance, "loss");
    require_relative(norms[index].item<double>(), step.norm, tolerance, "gradient norm");
  }
}

const std::vector<std::string> kVariants = {"default", "gqa_swiglu_untied_padded", "gelu", "relu"};

}  // namespace

TEST_CASE("ten AdamW steps of GPT equal PyTorch's in fp64", "[golden]") {
  const Golden golden(COLOSSAL_TEST_DATA "/fixtures/gpt.h5");
  for (const std::string& variant : kVariants) {
    INFO(variant);
    Training training(golden, variant, training_config(golden, variant));
    replay(training, golden, variant, 1e-9);
    for (const Parameter* parameter : training.store().parameters()) {
      const std::string& name = parameter->spec().name;
      const at::Tensor weight = LocalModel::logical(*parameter, parameter->tensor());
      require_close(golden.tensor(variant + "/adamw/weights/" + name), weight, 1e-9, name);
    }
  }
}

// Weights are not compared here: the true gradient of the attention's key bias is zero, and AdamW
// makes steps of full length out of its rounding.
TEST_CASE("losses and norms of ten GPT steps follow PyTorch's in fp32", "[golden]") {
  const Golden golden(COLOSSAL_TEST_DATA "/fixtures/gpt.h5");
  for (const std::string& variant : kVariants) {
    INFO(variant);
    Config config = training_config(golden, variant);
    config.train.precision = Precision::fp32;
    Training training(golden, variant, config);
    replay(training, golden, variant, 1e-5);
  }
}

TEST_CASE("vocabulary padding stays zero through training", "[golden]") {
  const Golden golden(COLOSSAL_TEST_DATA "/fixtures/gpt.h5");
  const std::string variant = "gqa_swiglu_untied_padded";
  Training training(golden, variant, training_config(golden, variant));
  replay(training, golden, variant, 1e-9);
  for (const Parameter* parameter : training.store().parameters()) {
    const at::Tensor& stored = parameter->tensor();
    const std::int64_t rows = parameter->spec().shape[0];
    const at::Tensor padding = stored.narrow(0, rows, stored.size(0) - rows);
    CHECK(padding.abs().sum().item<double>() == 0);
  }
}

}  // namespace colossal::test
