// Do LAMB and LARS take each layer as a whole, however it is cut, and nothing more than a layer?
#include "optim/lamb.hpp"
#include "optim/lars.hpp"
#include "optim_helpers.hpp"
#include "reference.hpp"
#include "support/catch.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include <memory>

namespace colossal {
namespace {

using test::noise;
using test::Reference;
using test::require_close;

OptimizerConfig lamb_config(BiasCorrection correction) {
  OptimizerConfig config;
  config.type = OptimizerType::lamb;
  config.eps = 1e-6;
  config.bias_correction = correction;
  return config;
}

OptimizerConfig lars_config(MomentumMode mode, double eps = 0) {
  OptimizerConfig config;
  config.type = OptimizerType::lars;
  config.momentum_mode = mode;
  config.eps = eps;
  return config;
}

std::unique_ptr<Optimizer> make(const OptimizerConfig& config) {
  return config.type == OptimizerType::lamb ? make_lamb(config) : make_lars(config);
}

std::vector<std::string> states_of(const Optimizer& optimizer) {
  const std::vector<std::string_view> names = optimizer.states();
  return {names.begin(), names.end()};
}

TEST_CASE("LAMB equals the golden table in its three corrections", "[optim]") {
  test::check_golden(*make(lamb_config(BiasCorrection::moments)),
                     {.4889573144, -.2392201855, .9884313972, 1.9873796940},
                     {.4617518753, -.2325069854, .9803169636, 1.9540970048});
  test::check_golden(*make(lamb_config(BiasCorrection::lr)),
                     {.4964059326, -.2464333533, .9963492267, 1.9962372132},
                     {.4898372706, -.2448912103, .9950986892, 1.9893580544});
  test::check_golden(*make(lamb_config(BiasCorrection::none)),
                     {.4886345608, -.2387212727, .9884552410, 1.9881010235},
                     {.4593274209, -.2319722484, .9822494457, 1.9565091084});
}

TEST_CASE("LARS equals the golden table in its three modes of momentum", "[optim]") {
  const std::vector<double> after_1 = {.4995557338, -.2493336007, .9988152901, 1.9982229352};
  test::check_golden(*make(lars_config(MomentumMode::unscaled)),
                     after_1,
                     {.4966697084, -.2484189548, .9960802729, 1.9907791437},
                     1);
  for (const MomentumMode mode : {MomentumMode::scaled, MomentumMode::larc}) {
    test::check_golden(*make(lars_config(mode)),
                       after_1,
                       {.4972272387, -.2488576780, .9968011161, 1.9923022140},
                       1);
  }
}

std::vector<OptimizerConfig> all_variants() {
  std::vector<OptimizerConfig> all;
  for (const BiasCorrection correction :
       {BiasCorrection::moments, BiasCorrection::lr, BiasCorrection::none}) {
    for (const bool inside : {false, true}) {
      all.push_back(lamb_config(correction));
      all.back().eps_inside_sqrt = inside;
      all.back().trust_clip = inside ? std::optional(0.7) : std::nullopt;
    }
  }
  for (const MomentumMode mode :
       {MomentumMode::scaled, MomentumMode::unscaled, MomentumMode::larc}) {
    for (const bool nesterov : {false, true}) {
      all.push_back(lars_config(mode, 1e-3));
      all.back().nesterov = nesterov;
      all.back().trust_clip = nesterov ? std::optional(1e-4) : std::nullopt;
    }
  }
  return all;
}

TEST_CASE("LAMB and LARS equal a reference in every variant, with a falling rate", "[optim]") {
  for (const OptimizerConfig& config : all_variants()) {
    for (const bool adapt : {true, false}) {
      const auto optimizer = make(config);
      const ParamGroup group{.lr_scale = 0.5, .weight_decay = 0.2, .adapt = adapt};
      const at::Tensor start = noise(40'001, 1, at::kDouble);
      std::vector<FlatShard> shards = {test::shard_of(start, states_of(*optimizer))};
      Reference reference(config, group, start);
      for (std::int64_t k = 0; k < 5; ++k) {
        const StepInfo info = {
            .step = k, .lr = 0.1 / static_cast<double>(k + 1), .grad_factor = 0.7};
        shards[0].grad.copy_(noise(40'001, static_cast<int>(k) + 3, at::kDouble));
        test::step(*optimizer, shards, std::vector{group}, info);
        reference.step(shards[0].grad, info);
      }
      require_close(at::from_blob(reference.w.data(), {40'001}, at::kDouble),
                    shards[0].master,
                    1e-12,
                    "weights");
    }
  }
}

TEST_CASE("LARS without momentum keeps no state", "[optim]") {
  OptimizerConfig config = lars_config(MomentumMode::scaled);
  config.momentum = 0;
  const auto optimizer = make_lars(config);
  CHECK(optimizer->states().empty());
  std::vector<FlatShard> shards = {test::shard_of(noise(100, 1, at::kDouble), {})};
  Reference reference(config, {}, shards[0].master);
  shards[0].grad.copy_(noise(100, 2, at::kDouble));
  test::step(*optimizer, shards, std::vector{ParamGroup{}}, {.step = 0, .lr = 2});
  reference.step(shards[0].grad, {.step = 0, .lr = 2});
  require_close(
      at::from_blob(reference.w.data(), {100}, at::kDouble), shards[0].master, 1e-13, "weights");
}

TEST_CASE("a layer of zeros, or with a gradient of zeros, has rate 1", "[optim]") {
  for (const OptimizerConfig& config :
       {lamb_config(BiasCorrection::moments), lars_config(MomentumMode::scaled, 1e-9)}) {
    const auto optimizer = make(config);
    std::vector<FlatShard> shards = {
        test::shard_of(noise(10, 1, at::kDouble).zero_(), states_of(*optimizer)),
        test::shard_of(noise(10, 1, at::kDouble), states_of(*optimizer))};
    shards[1].segments[0].param = 1;
    const at::Tensor before = shards[1].master.clone();
    shards[0].grad.fill_(0.5);
    test::step(*optimizer, shards, std::vector<ParamGroup>(2), {.step = 0, .lr = 0.1});
    const double moved = config.type == OptimizerType::lamb ? 0.1 * 0.5 / (0.5 + 1e-6) : 0.1 * 0.5;
    CHECK(shards[0].master[3].item<double>() == Approx(-moved).epsilon(1e-12));
    CHECK(shards[1].master.equal(before));
  }
}

/// Weights after five steps of one parameter of 300 elements that is cut at these places, into
/// shards of one layer or into layers of their own.
at::Tensor train(const OptimizerConfig& config,
                 const std::vector<std::int64_t>& cuts,
                 bool as_layers,
                 double grad_scale = 1) {
  const auto optimizer = make(config);
  std::vector<FlatShard> shards;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const std::int64_t count = cuts[i + 1] - cuts[i];
    shards.push_back(test::shard_of(noise(300, 1, at::kDouble).narrow(0, cuts[i], count),
                                    states_of(*optimizer)));
    shards.back().segments = {{.param = as_layers ? static_cast<int>(i) : 0,
                               .begin = as_layers ? 0 : cuts[i],
                               .end = as_layers ? count : cuts[i + 1],
                               .offset = 0}};
  }
  const std::vector<ParamGroup> groups(as_layers ? shards.size() : 1);
  std::vector<at::Tensor> weights;
  for (std::int64_t k = 0; k < 5; ++k) {
    const at::Tensor grad = noise(300, static_cast<int>(k) + 3, at::kDouble) * grad_scale;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      shards[i].grad.copy_(grad.narrow(0, cuts[i], cuts[i + 1] - cuts[i]));
    }
    test::step(*optimizer, shards, groups, {.step = k, .lr = 0.1}, k % 2 == 0);
  }
  for (const FlatShard& shard : shards) {
    weights.push_back(shard.master);
  }
  return at::cat(weights);
}

TEST_CASE("two shards of a layer change nothing, two layers do", "[optim]") {
  for (OptimizerConfig config :
       {lamb_config(BiasCorrection::moments), lars_config(MomentumMode::scaled)}) {
    config.trust_coefficient = 0.1;
    const at::Tensor whole = train(config, {0, 300}, false);
    for (const std::vector<std::int64_t>& cuts :
         {std::vector<std::int64_t>{0, 117, 300}, {0, 1, 2, 63, 64, 65, 299, 300}}) {
      require_close(whole, train(config, cuts, false), 1e-13, "shards");
      CHECK(test::scaled_distance(whole, train(config, cuts, true)) > 1e-4);
    }
  }
}

TEST_CASE("without decay, gradients a thousand times larger give the same weights", "[optim]") {
  const OptimizerConfig lars = lars_config(MomentumMode::scaled);
  require_close(train(lars, {0, 300}, false), train(lars, {0, 300}, false, 1000), 1e-12, "lars");
  const OptimizerConfig lamb = lamb_config(BiasCorrection::moments);
  require_close(train(lamb, {0, 300}, false), train(lamb, {0, 300}, false, 1000), 1e-4, "lamb");
  OptimizerConfig sgd;
  sgd.type = OptimizerType::lars;
  sgd.trust_clip = 1e-9;  // a rate that the norms do not set is not invariant
  CHECK(test::scaled_distance(train(sgd, {0, 300}, false), train(sgd, {0, 300}, false, 1000)) >
        1e-8);
}

TEST_CASE("parameters in no_adapt are not decayed by lars, and by lamb they are", "[optim]") {
  const ParamGroup group{.lr_scale = 1, .weight_decay = 0.5, .adapt = false};
  for (const OptimizerConfig& config :
       {lamb_config(BiasCorrection::moments), lars_config(MomentumMode::scaled)}) {
    const auto optimizer = make(config);
    std::vector<FlatShard> shards = {
        test::shard_of(noise(10, 1, at::kDouble).fill_(2), states_of(*optimizer))};
    test::step(*optimizer, shards, std::vector{group}, {.step = 0, .lr = 0.1});
    const double expected = config.type == OptimizerType::lamb ? 2 - 0.1 * 0.5 * 2 : 2;
    CHECK(shards[0].master[4].item<double>() == Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("lamb needs two betas, and both sweeps the state of each shard", "[optim]") {
  OptimizerConfig config = lamb_config(BiasCorrection::moments);
  CHECK(make_lamb(config)->sweeps() == 2);
  CHECK(make_lamb(config)->states() == std::vector<std::string_view>({"exp_avg", "exp_avg_sq"}));
  config.betas = {0.9};
  CHECK_THROWS_WITH(make_lamb(config), "optimizer.betas needs 2 numbers for lamb, it has 1");
  std::vector<FlatShard> shards = {test::shard_of(noise(8, 1, at::kFloat), {})};
  CHECK_THROWS_WITH(test::step(*make_lars(lars_config(MomentumMode::larc)),
                               shards,
                               std::vector{ParamGroup{}},
                               {.step = 0, .lr = 1}),
                    "a shard of 8 elements has no state 'momentum_buffer' of its length");
}

}  // namespace
}  // namespace colossal
