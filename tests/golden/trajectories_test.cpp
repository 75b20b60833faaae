// Do ten training steps of tiny models in flat chunks give PyTorch's losses, norms and final
// weights?
#include "golden/gpt_config.hpp"
#include "memory/chunk_store.hpp"
#include "optim/norms.hpp"
#include "optim/update.hpp"
#include "support/close.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {
namespace {

/// One recorded training of a fixture: its model, and the group that holds its optimizer.
struct Recorded {
  const Golden& golden;
  std::string variant;
  std::string optimizer;  ///< "adamw", "sgd"

  [[nodiscard]] std::string group() const { return variant + "/" + optimizer; }
};

/// The recorded settings of the optimizer on top of a model's configuration.
Config with_optimizer(Config config, const Recorded& recorded) {
  const auto number = [&](const char* name) {
    return recorded.golden.number(recorded.group(), name);
  };
  config.train.clip_grad_norm = number("clip");
  config.optimizer.lr = number("lr");
  config.optimizer.weight_decay = number("weight_decay");
  if (recorded.optimizer == "sgd") {
    config.optimizer.type = OptimizerType::sgd;
    config.optimizer.momentum = number("momentum");
    config.optimizer.nesterov = number("nesterov") != 0;
  } else {
    config.optimizer.betas = {number("beta1"), number("beta2")};
    config.optimizer.eps = number("eps");
  }
  return config;
}

/// A model of the fixture whose memory belongs to a store of several small chunks.
class Training {
 public:
  Training(const Recorded& recorded, const Config& config, std::int64_t chunk_items)
      : config_(config),
        model_(config),
        optimizer_(optimizers().make(recorded.optimizer, config.optimizer)) {
    std::vector<ChunkStore::Block> blocks;
    for (const auto& block : model_.blocks()) {
      blocks.push_back({"block " + std::to_string(blocks.size()), block->parameters()});
    }
    const std::int64_t item_bytes = config.train.precision == Precision::fp64 ? 8 : 4;
    const auto planner = chunk_planners().make(
        "0", {.chunk_bytes = chunk_items * item_bytes, .item_bytes = item_bytes});
    store_ = std::make_unique<ChunkStore>(
        blocks, *planner, optimizer_->states(), store_options(config), model_.context());
    std::vector<std::string> names;
    for (int block = 0; block < std::ssize(blocks); ++block) {
      store_->acquire(block, BlockUse::backward);
    }
    for (const Parameter* parameter : store_->parameters()) {
      load_golden_weight(recorded.golden, recorded.variant, *parameter, parameter->tensor());
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
        [&](StateAccess /*access*/, const ShardCall& call) { call(store_->shards()); },
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
void replay(Training& training, const Recorded& recorded, const Batch& batch, double tolerance) {
  REQUIRE(training.store().plan().chunks.size() > 3);
  const double labelled = batch.at("labels").ne(kIgnoreLabel).sum().item<double>();
  const at::Tensor losses = recorded.golden.tensor(recorded.group() + "/losses");
  const at::Tensor norms = recorded.golden.tensor(recorded.group() + "/grad_norms");
  REQUIRE(losses.numel() == 10);
  for (std::int64_t index = 0; index < losses.numel(); ++index) {
    INFO("step " << index);
    const Training::Step step = training.step(index, batch, labelled);
    require_relative(losses[index].item<double>(), step.loss, tolerance, "loss");
    require_relative(norms[index].item<double>(), step.norm, tolerance, "gradient norm");
  }
}

void require_final_weights(const Training& training, const Recorded& recorded, double tolerance) {
  for (const Parameter* parameter : training.store().parameters()) {
    const std::string& name = parameter->spec().name;
    const at::Tensor weight = LocalModel::logical(*parameter, parameter->tensor());
    require_close(
        recorded.golden.tensor(recorded.group() + "/weights/" + name), weight, tolerance, name);
  }
}

constexpr std::int64_t kGptChunk = 1024;
const std::vector<std::string> kVariants = {"default", "gqa_swiglu_untied_padded", "gelu", "relu"};

}  // namespace

TEST_CASE("ten AdamW steps of GPT equal PyTorch's in fp64", "[golden]") {
  const Golden golden(COLOSSAL_TEST_DATA "/fixtures/gpt.h5");
  for (const std::string& variant : kVariants) {
    INFO(variant);
    const Recorded recorded{golden, variant, "adamw"};
    Training training(
        recorded, with_optimizer(golden_config(golden, variant), recorded), kGptChunk);
    replay(training, recorded, golden_batch(golden, variant), 1e-9);
    require_final_weights(training, recorded, 1e-9);
  }
}

// Weights are not compared here: the true gradient of the attention's key bias is zero, and AdamW
// makes steps of full length out of its rounding.
TEST_CASE("losses and norms of ten GPT steps follow PyTorch's in fp32", "[golden]") {
  const Golden golden(COLOSSAL_TEST_DATA "/fixtures/gpt.h5");
  for (const std::string& variant : kVariants) {
    INFO(variant);
    const Recorded recorded{golden, variant, "adamw"};
    Config config = with_optimizer(golden_config(golden, variant), recorded);
    config.train.precision = Precision::fp32;
    Training training(recorded, config, kGptChunk);
    replay(training, recorded, golden_batch(golden, variant), 1e-5);
  }
}

TEST_CASE("vocabulary padding stays zero through training", "[golden]") {
  const Golden golden(COLOSSAL_TEST_DATA "/fixtures/gpt.h5");
  const Recorded recorded{golden, "gqa_swiglu_untied_padded", "adamw"};
  const Config config = with_optimizer(golden_config(golden, recorded.variant), recorded);
  Training training(recorded, config, kGptChunk);
  replay(training, recorded, golden_batch(golden, recorded.variant), 1e-9);
  for (const Parameter* parameter : training.store().parameters()) {
    const at::Tensor& stored = parameter->tensor();
    const std::int64_t rows = parameter->spec().shape[0];
    const at::Tensor padding = stored.narrow(0, rows, stored.size(0) - rows);
    CHECK(padding.abs().sum().item<double>() == 0);
  }
}

TEST_CASE("ten steps of the MLP with AdamW and SGD equal PyTorch's", "[golden]") {
  const Golden golden(COLOSSAL_TEST_DATA "/fixtures/mlp.h5");
  for (const char* variant : {"one", "two"}) {
    for (const char* optimizer : {"adamw", "sgd"}) {
      for (const auto& [precision, tolerance] :
           {std::pair(Precision::fp64, 1e-11), std::pair(Precision::fp32, 1e-5)}) {
        INFO(variant << " " << optimizer << " " << tolerance);
        const Recorded recorded{golden, variant, optimizer};
        Config config = with_optimizer(golden_mlp_config(golden, variant), recorded);
        config.train.precision = precision;
        Training training(recorded, config, 16);
        replay(training, recorded, golden_mlp_batch(golden, variant), tolerance);
        require_final_weights(training, recorded, tolerance);
      }
    }
  }
}

}  // namespace colossal::test
