// Does every optimizer follow its equations for each combination of types: masters, gradients,
// states and working copies?
#include "config/load.hpp"
#include "optim/detail/flat_kernels.hpp"
#include "optim/detail/pieces.hpp"
#include "optim_helpers.hpp"
#include "reference.hpp"
#include "support/catch.hpp"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/isnan.h>

#include <limits>
#include <memory>

namespace colossal {
namespace {

using test::noise;
using test::Reference;
using test::require_close;

struct Types {
  at::ScalarType master;
  at::ScalarType grad;
  std::optional<at::ScalarType> working;
  at::ScalarType state;
};

std::vector<Types> all_types() {
  std::vector<Types> all;
  for (const at::ScalarType master : {at::kFloat, at::kDouble}) {
    for (const at::ScalarType grad : {master, at::kBFloat16, at::kHalf}) {
      for (const at::ScalarType state : {master, at::kBFloat16}) {
        all.push_back({master, grad, {}, state});
        all.push_back({master, grad, at::kBFloat16, state});
        all.push_back({master, grad, at::kHalf, state});
      }
    }
  }
  return all;
}

struct Subject {
  std::string name;
  OptimizerConfig config;
  std::unique_ptr<Optimizer> optimizer;
};

Subject make(OptimizerType type) {
  OptimizerConfig config;
  config.type = type;
  config.betas = {0.8, 0.95};
  config.eps = 1e-6;
  config.trust_coefficient = 0.02;
  if (type == OptimizerType::lamb) {
    config.bias_correction = BiasCorrection::moments;
  }
  Subject subject{.name = yaml_word(type), .config = config, .optimizer = nullptr};
  subject.optimizer = optimizers().make(subject.name, config);
  return subject;
}

std::vector<OptimizerType> all_optimizers() {
  return {OptimizerType::adamw,
          OptimizerType::adam,
          OptimizerType::sgd,
          OptimizerType::lamb,
          OptimizerType::lars,
          OptimizerType::lion};
}

FlatShard shard_of(const Subject& subject, const Types& types, std::int64_t count) {
  FlatShard shard = test::shard_of(noise(count, 1, types.master), {});
  for (const std::string_view name : subject.optimizer->states()) {
    shard.state.emplace(name, at::zeros_like(shard.master, types.state));
  }
  shard.grad = at::zeros_like(shard.master, types.grad);
  if (types.working) {
    shard.working = at::zeros_like(shard.master, *types.working);
  }
  return shard;
}

at::Tensor tensor_of(std::vector<double>& values) {
  return at::from_blob(values.data(), {std::ssize(values)}, at::kDouble);
}

/// The reference goes on from the states as they were stored: what it would have rounded is not its
/// business.
void take_states(Reference& reference, const Subject& subject, const FlatShard& shard) {
  const std::vector<std::string_view> names = subject.optimizer->states();
  reference.m = Reference::numbers(shard.state.find(names[0])->second);
  if (names.size() > 1) {
    reference.v = Reference::numbers(shard.state.find(names[1])->second);
  }
}

void check(const Subject& subject, const Types& types, std::int64_t count) {
  const ParamGroup group{.lr_scale = 0.5, .weight_decay = 0.2};
  std::vector<FlatShard> shards = {shard_of(subject, types, count)};
  FlatShard& shard = shards[0];
  const bool exact = types.master == at::kDouble;
  const bool half_state = types.state == at::kBFloat16;
  // Where g nearly cancels decay w, adam divides one small rounded number by another: 2e-5 for
  // floats. lamb reads its rounded states: a bf16 number has eight digits.
  const bool reads_rounded = half_state && subject.config.type == OptimizerType::lamb;
  const double tolerance = reads_rounded ? 2e-3 : exact ? 1e-13 : 2e-5;
  const double state_tolerance = half_state ? 0x1p-7 : exact ? 1e-13 : 2e-6;
  for (std::int64_t k = 0; k < 3; ++k) {
    Reference reference(subject.config, group, shard.master);
    take_states(reference, subject, shard);
    const StepInfo info = {.step = k, .lr = 0.02, .grad_factor = 0.37};
    shard.grad.copy_(noise(count, static_cast<int>(k) + 3, at::kDouble));
    test::step(*subject.optimizer, shards, std::vector{group}, info);
    reference.step(shard.grad, info);
    require_close(tensor_of(reference.w), shard.master, tolerance, "weights");
    const auto states = subject.optimizer->states();
    require_close(tensor_of(reference.m),
                  shard.state.find(states[0])->second,
                  state_tolerance,
                  std::string(states[0]));
    if (types.working) {
      CHECK(shard.working.equal(shard.master.to(at::kFloat).to(*types.working)));
    }
  }
}

TEST_CASE("every optimizer follows its equations in every combination of types", "[optim]") {
  for (const OptimizerType type : all_optimizers()) {
    const Subject subject = make(type);
    for (const Types& types : all_types()) {
      if (types.state != types.master && type != OptimizerType::adamw &&
          type != OptimizerType::adam && type != OptimizerType::lamb) {
        continue;  // state_dtype is theirs
      }
      INFO(subject.name << ": masters " << types.master << ", gradients " << types.grad
                        << ", states " << types.state << ", working "
                        << (types.working ? c10::toString(*types.working) : "none"));
      for (const std::int64_t count : {1, 7, 64, 1003, 5001}) {
        check(subject, types, count);
      }
    }
  }
}

TEST_CASE("a large working copy is that of the masters, at odd places too", "[optim]") {
  const Subject subject = make(OptimizerType::adamw);
  constexpr std::int64_t kCount = 3 * detail::kPiece + 70;
  const Types types{at::kFloat, at::kBFloat16, at::kBFloat16, at::kFloat};
  std::vector<FlatShard> shards = {shard_of(subject, types, kCount)};
  shards[0].segments = {
      {.param = 0, .begin = 0, .end = kCount - 3, .offset = 3}};  // at an odd place
  shards[0].grad.fill_(0.5);
  test::step(*subject.optimizer, shards, std::vector{ParamGroup{}}, {.step = 0, .lr = 0.01});
  const at::Tensor expected = shards[0].master.to(at::kBFloat16);
  CHECK(shards[0].working.narrow(0, 3, kCount - 3).equal(expected.narrow(0, 3, kCount - 3)));
  CHECK(shards[0].working.narrow(0, 0, 3).abs().max().item<double>() == 0);
}

TEST_CASE("the mixed kernel equals its three parts to the last bit", "[optim]") {
  detail::AdamFactors factors{.beta1 = 0.9, .beta2 = 0.99, .grad = 0.3, .step = 0.01, .eps = 1e-8};
  for (const bool l2 : {false, true}) {
    for (const int way : {0, 1, 2, 3}) {
      factors.l2 = l2 ? 0.1 : 0;
      factors.eps_inside_sqrt = way % 2 == 1;
      for (const std::int64_t count : {1, 63, 64, 65, 1003}) {
        const at::Tensor grad = noise(count, 5, at::kBFloat16);
        const at::Tensor wide = grad.to(at::kFloat);
        std::vector<at::Tensor> mixed = {noise(count, 1, at::kFloat),
                                         noise(count, 2, at::kFloat),
                                         noise(count, 3, at::kFloat).abs()};
        const std::vector<at::Tensor> parts = {
            mixed[0].clone(), mixed[1].clone(), mixed[2].clone()};
        const at::Tensor working = at::zeros_like(grad, at::kHalf);
        detail::adam_mixed({.param = mixed[0].data_ptr<float>(),
                            .exp_avg = mixed[1].data_ptr<float>(),
                            .exp_avg_sq = mixed[2].data_ptr<float>(),
                            .half_grad = static_cast<const std::uint16_t*>(grad.const_data_ptr()),
                            .working = static_cast<std::uint16_t*>(working.data_ptr()),
                            .working_format = detail::HalfFormat::fp16,
                            .streams = way >= 2},
                           count,
                           factors);
        detail::adam(parts[0].data_ptr<float>(),
                     parts[1].data_ptr<float>(),
                     parts[2].data_ptr<float>(),
                     wide.const_data_ptr<float>(),
                     count,
                     factors);
        for (std::size_t i = 0; i < parts.size(); ++i) {
          CHECK(mixed[i].equal(parts[i]));
        }
        CHECK(working.equal(parts[0].to(at::kHalf)));
      }
    }
  }
}

TEST_CASE("gradients of 16 bits are multiplied by the factor too", "[optim]") {
  // A forgotten divisor would make a loss scale of 1024 a step of plain sgd 1024 times too long.
  OptimizerConfig config;
  config.momentum = 0;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    std::vector<FlatShard> shards = {test::shard_of(noise(9, 1, at::kFloat).zero_(), {})};
    shards[0].grad = noise(9, 1, at::kFloat).fill_(1024).to(dtype);
    test::step(*optimizers().make("sgd", config),
               shards,
               std::vector{ParamGroup{}},
               {.step = 0, .lr = 1, .grad_factor = 1.0 / 1024});
    CHECK(shards[0].master.equal(noise(9, 1, at::kFloat).fill_(-1)));
  }
}

TEST_CASE("a bad gradient spoils its own element only, in Adam and SGD", "[optim]") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const OptimizerType type : {OptimizerType::adamw, OptimizerType::sgd}) {
    for (const at::ScalarType grad : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const double bad : {kInf, -kInf, std::nan("")}) {
        const Subject subject = make(type);
        std::vector<FlatShard> shards = {
            shard_of(subject, {at::kFloat, grad, at::kBFloat16, at::kFloat}, 101)};
        shards[0].grad.fill_(0.5);
        shards[0].grad[77] = bad;
        test::step(*subject.optimizer, shards, std::vector{ParamGroup{}}, {.step = 0, .lr = 0.01});
        const at::Tensor finite = shards[0].master.isfinite();
        CHECK(finite.sum().item<std::int64_t>() == 100);
        CHECK_FALSE(finite[77].item<bool>());
        CHECK(shards[0].working.isfinite().sum().item<std::int64_t>() == 100);
      }
    }
  }
}

TEST_CASE("a bad gradient spoils its layer in lamb and lars, and no other", "[optim]") {
  for (const OptimizerType type : {OptimizerType::lamb, OptimizerType::lars}) {
    const Subject subject = make(type);
    std::vector<FlatShard> shards = {
        shard_of(subject, {at::kFloat, at::kFloat, {}, at::kFloat}, 128)};
    shards[0].segments = {{.param = 0, .begin = 0, .end = 64, .offset = 0},
                          {.param = 1, .begin = 0, .end = 64, .offset = 64}};
    shards[0].grad.fill_(0.5);
    shards[0].grad[77] = std::nan("");
    test::step(*subject.optimizer, shards, std::vector<ParamGroup>(2), {.step = 0, .lr = 0.01});
    CHECK(shards[0].master.narrow(0, 0, 64).isfinite().all().item<bool>());
    CHECK(shards[0].master.narrow(0, 64, 64).isnan().all().item<bool>());
  }
}

TEST_CASE("padding stays zero in all arrays after a hundred steps", "[optim]") {
  for (const OptimizerType type : all_optimizers()) {
    Subject subject = make(type);
    const bool halves =
        type == OptimizerType::adamw || type == OptimizerType::adam || type == OptimizerType::lamb;
    const at::ScalarType state = halves ? at::kBFloat16 : at::kFloat;
    std::vector<FlatShard> shards = {
        shard_of(subject, {at::kFloat, at::kBFloat16, at::kHalf, state}, 192)};
    FlatShard& shard = shards[0];
    shard.segments = {{.param = 0, .begin = 5, .end = 50, .offset = 0},
                      {.param = 1, .begin = 0, .end = 77, .offset = 64}};
    std::vector<at::Tensor> gaps = {shard.master, shard.grad, shard.working};
    for (const auto& [name, tensor] : shard.state) {
      gaps.push_back(tensor);
    }
    shard.master.narrow(0, 45, 19).zero_();
    shard.master.narrow(0, 141, 51).zero_();
    for (std::int64_t k = 0; k < 100; ++k) {
      shard.grad.copy_(noise(192, static_cast<int>(k), at::kFloat));
      shard.grad.narrow(0, 45, 19).zero_();
      shard.grad.narrow(0, 141, 51).zero_();
      test::step(*subject.optimizer, shards, std::vector<ParamGroup>(2), {.step = k, .lr = 0.01});
    }
    for (const at::Tensor& tensor : gaps) {
      CHECK(tensor.narrow(0, 45, 19).abs().max().item<double>() == 0);
      CHECK(tensor.narrow(0, 141, 51).abs().max().item<double>() == 0);
      CHECK(tensor.narrow(0, 0, 45).abs().max().item<double>() > 0);
    }
  }
}

TEST_CASE("states of bf16 follow those of fp32 on average", "[optim]") {
  // Rounded to nearest, a second moment could never fall: 0.1 % less of it is no bf16 number.
  const auto second_moment = [](at::ScalarType state) {
    OptimizerConfig config;
    const auto optimizer = optimizers().make("adamw", config);
    Subject subject{.name = "adamw", .config = config, .optimizer = nullptr};
    subject.optimizer = optimizers().make("adamw", config);
    std::vector<FlatShard> shards = {shard_of(subject, {at::kFloat, at::kFloat, {}, state}, 4096)};
    for (std::int64_t k = 0; k < 1500; ++k) {
      shards[0].grad.fill_(k < 10 ? 1.0 : 0.0);
      test::step(*subject.optimizer, shards, std::vector{ParamGroup{}}, {.step = k, .lr = 1e-3});
    }
    return shards[0].state["exp_avg_sq"].to(at::kDouble).mean().item<double>();
  };
  const double exact = second_moment(at::kFloat);
  CHECK(exact < 0.003);
  CHECK(second_moment(at::kBFloat16) == Approx(exact).epsilon(0.01));
}

TEST_CASE("an array of a foreign type is refused", "[optim]") {
  const Subject subject = make(OptimizerType::adamw);
  std::vector<FlatShard> shards = {shard_of(subject, {at::kFloat, at::kDouble, {}, at::kFloat}, 8)};
  const auto update = [&] {
    test::step(*subject.optimizer, shards, std::vector{ParamGroup{}}, {.step = 0, .lr = 0.01});
  };
  CHECK_THROWS_WITH(update(),
                    "an array of a shard has type Double; masters of Float allow Float, BFloat16 "
                    "and Half");
  CHECK_THROWS_MATCHES(update(), Error, Catch::Matchers::Predicate<Error>([](const Error& error) {
                         return error.id() == "optimizer-dtype";
                       }));
}

}  // namespace
}  // namespace colossal
