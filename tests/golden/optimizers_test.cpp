// Do store, groups, schedule, norm, clipping and each optimizer together reproduce twelve steps of
// PyTorch, and those of an independent LAMB, LARS, Lion and Adafactor?
#include "memory/chunk_store.hpp"
#include "optim/norms.hpp"
#include "optim/scheduler.hpp"
#include "optim/update.hpp"
#include "support/close.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colossal {
namespace {

using Json = nlohmann::ordered_json;

Json fixture() {
  return Json::parse(std::ifstream(std::string(COLOSSAL_TEST_DATA) + "/fixtures/optimizers.json"));
}

at::Tensor tensor_of(const Json& values, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty({std::ssize(values)}, at::kDouble);
  for (std::size_t i = 0; i < values.size(); ++i) {
    tensor.data_ptr<double>()[i] = values[i].get<double>();
  }
  return tensor.view(shape);
}

/// Position of a recorded word in this list.
std::uint8_t index_of(const Json& word, std::initializer_list<const char*> words) {
  const auto* const found = std::find(words.begin(), words.end(), word.get<std::string>());
  REQUIRE(found != words.end());
  return static_cast<std::uint8_t>(found - words.begin());
}

/// The keys that only some types know.
void set_own_keys(OptimizerConfig& config, const Json& recorded) {
  config.momentum = recorded.value("momentum", config.momentum);
  config.nesterov = recorded.value("nesterov", false);
  config.betas = recorded.value("betas", config.betas);
  config.scale_parameter = recorded.value("scale_parameter", config.scale_parameter);
  config.relative_step = recorded.value("relative_step", config.relative_step);
  config.trust_coefficient = recorded.value("trust_coefficient", config.trust_coefficient);
  if (recorded.contains("eps")) {
    config.eps = recorded["eps"].get<double>();
  }
  if (recorded.contains("trust_clip")) {
    config.trust_clip = recorded["trust_clip"].get<double>();
  }
  if (!recorded.value("adapt_all", false)) {
    config.no_adapt = config.no_decay;
  }
  if (recorded["type"] == "lamb") {
    config.bias_correction = static_cast<BiasCorrection>(
        index_of(recorded["bias_correction"], {"true", "false", "moments", "lr", "none"}));
  }
  if (recorded["type"] == "lars") {
    config.momentum_mode = static_cast<MomentumMode>(
        index_of(recorded["momentum_mode"], {"scaled", "unscaled", "larc"}));
  }
}

/// Settings of one recorded run; `optimizer` holds what only its type knows.
Config config_of(const Json& recorded, const Json& optimizer, Precision precision) {
  Config config;
  config.train.precision = precision;
  config.train.clip_grad_norm = recorded["clip"];
  config.optimizer.lr = recorded["lr"];
  config.optimizer.weight_decay = recorded["weight_decay"];
  const Json& group = recorded["group"];
  config.optimizer.groups = {{.match = group["match"],
                              .lr_scale = group["lr_scale"],
                              .weight_decay = group["weight_decay"].get<double>()}};
  set_own_keys(config.optimizer, optimizer);
  config.scheduler.type = SchedulerType::cosine;
  config.scheduler.warmup_steps = recorded["warmup_steps"].get<std::int64_t>();
  config.scheduler.min_lr_ratio = recorded["min_lr_ratio"];
  return config;
}

/// The recorded parameters, one block each, in a store with small chunks.
struct Model {
  Model(const Json& recorded, const std::string& type, const Config& config)
      : context(config), optimizer(optimizers().make(type, config.optimizer)) {
    std::vector<ChunkStore::Block> blocks;
    for (const auto& [name, shape] : recorded["shapes"].items()) {
      ParamSpec spec;
      spec.name = name;
      spec.shape = spec.padded = shape.get<Shape>();
      parameters.push_back(std::make_unique<Parameter>(spec));
      blocks.push_back({name, {parameters.back().get()}});
    }
    const auto planner = chunk_planners().make("0", {.chunk_bytes = 1024, .item_bytes = 8});
    store = std::make_unique<ChunkStore>(
        blocks, *planner, optimizer->states(), store_options(config), context);
    for (int block = 0; block < std::ssize(blocks); ++block) {
      store->acquire(block, BlockUse::backward);
    }
    optimizer->prepare(store->parameters(), context.mesh());
    for (const Parameter* parameter : store->parameters()) {
      const at::Tensor& leaf = parameter->tensor();
      leaf.detach().copy_(tensor_of(recorded["start"][parameter->spec().name], leaf.sizes()));
    }
  }

  void set_gradients(const Json& grads) const {
    store->begin_gradients();
    for (int block = static_cast<int>(parameters.size()) - 1; block >= 0; --block) {
      const Parameter& parameter = *parameters[static_cast<std::size_t>(block)];
      const at::Tensor& leaf = parameter.tensor();
      leaf.grad().copy_(tensor_of(grads[parameter.spec().name], leaf.sizes()));
      store->gradients_ready(block, true);
    }
    store->finish_gradients();
  }

  ParallelContext context;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::unique_ptr<ChunkStore> store;
};

void replay(const Json& recorded, const Json& wanted, Precision precision, double tolerance) {
  INFO(wanted["name"].get<std::string>());
  const Json& rule = wanted["optimizer"];
  const Config config = config_of(recorded["config"], rule, precision);
  const Model model(recorded, rule["type"], config);
  std::vector<std::string> names;
  for (const Parameter* parameter : model.store->parameters()) {
    names.push_back(parameter->spec().name);
  }
  const std::vector<ParamGroup> groups = param_groups(config.optimizer, names);
  const Scheduler scheduler(config.scheduler, config.optimizer.lr, std::ssize(recorded["lr"]));
  REQUIRE(wanted["steps"].size() == 12);
  for (std::size_t k = 0; k < wanted["steps"].size(); ++k) {
    INFO("step " << k);
    const Json& expected = wanted["steps"][k];
    const auto step = static_cast<std::int64_t>(k);
    model.set_gradients(recorded["grads"][k]);
    const double norm =
        global_grad_norm(model.store->shards(), model.store->parameters(), model.context);
    test::require_relative(expected["norm"], norm, tolerance, "norm");
    test::require_relative(recorded["lr"][k], scheduler.lr(step), 1e-12, "learning rate");
    const double clip = clip_factor(norm, config.train.clip_grad_norm);
    apply_update(
        *model.optimizer,
        [&](StateAccess /*access*/, const ShardCall& call) { call(model.store->shards()); },
        groups,
        {.step = step, .lr = scheduler.lr(step), .grad_factor = clip},
        model.store->parameters(),
        model.context);
    model.store->publish();
    for (const Parameter* parameter : model.store->parameters()) {
      const at::Tensor& leaf = parameter->tensor();
      const Json& weights = expected["weights"][parameter->spec().name];
      test::require_close(
          tensor_of(weights, leaf.sizes()), leaf, tolerance, parameter->spec().name);
    }
  }
}

void replay_all(Precision precision, double tolerance) {
  const Json recorded = fixture();
  REQUIRE(recorded["cases"].size() == 17);
  for (const Json& wanted : recorded["cases"]) {
    replay(recorded, wanted, precision, tolerance);
  }
}

TEST_CASE("twelve steps of every optimizer equal the recorded ones in fp64", "[golden]") {
  replay_all(Precision::fp64, 1e-9);
}

TEST_CASE("twelve steps of every optimizer equal the recorded ones in fp32", "[golden]") {
  replay_all(Precision::fp32, 1e-6);
}

}  // namespace
}  // namespace colossal
