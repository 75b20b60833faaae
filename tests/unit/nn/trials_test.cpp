// Can every operation of a layer be repeated alone, and is what it counts what the formulas say?
#include "nn/trials.hpp"

#include "support/catch.hpp"

#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>

namespace colossal {
namespace {

/// Odd sizes everywhere, grouped-query attention, a vocabulary of no round number.
TrialSizes odd_sizes() {
  return {.batch = 3,
          .sequence = 13,
          .hidden = 24,
          .num_heads = 4,
          .num_kv_heads = 2,
          .ffn = 50,
          .vocabulary = 37};
}

std::vector<Trial> all_trials(const TrialSizes& sizes) {
  std::vector<Trial> all = product_trials(sizes);
  for (const auto& more : {attention_trials(sizes), kernel_trials(sizes)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::map<std::string, PreparedTrial> prepared(const std::vector<Trial>& trials) {
  std::map<std::string, PreparedTrial> found;
  for (const Trial& trial : trials) {
    found.emplace(trial.name, trial.prepare());
  }
  return found;
}

double total_flops(const std::vector<Trial>& trials) {
  return std::accumulate(trials.begin(), trials.end(), 0.0, [](double sum, const Trial& trial) {
    return sum + trial.prepare().flops;
  });
}

TEST_CASE("every operation can be repeated in every dtype and at odd sizes", "[nn][trials]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const ActivationKind kind : {ActivationKind::gelu,
                                      ActivationKind::gelu_tanh,
                                      ActivationKind::relu,
                                      ActivationKind::swiglu}) {
      TrialSizes sizes = odd_sizes();
      sizes.dtype = dtype;
      sizes.activation = kind;
      for (const Trial& trial : all_trials(sizes)) {
        INFO(trial.name << " of " << c10::toString(dtype));
        const PreparedTrial ready = trial.prepare();
        for (int i = 0; i < 3; ++i) {
          CHECK_NOTHROW(ready.call());
        }
      }
    }
  }
}

TEST_CASE("an operation is bound by memory or by arithmetic, never both", "[nn][trials]") {
  std::set<std::string> names;
  for (const Trial& trial : all_trials(odd_sizes())) {
    INFO(trial.name);
    const PreparedTrial ready = trial.prepare();
    CHECK((ready.bytes > 0) != (ready.flops > 0));
    CHECK(names.insert(trial.name).second);
    CHECK_FALSE(trial.size.empty());
  }
}

TEST_CASE("products of a GPT-2 layer are 24 n C^2 forward and twice that backward",
          "[nn][trials]") {
  const double n = 2 * 8;
  const double c = 32;
  const double v = 128;
  const TrialSizes sizes{.batch = 2,
                         .sequence = 8,
                         .hidden = 32,
                         .num_heads = 4,
                         .num_kv_heads = 4,
                         .ffn = 128,
                         .vocabulary = 128};
  CHECK(total_flops(product_trials(sizes)) == 3 * (24 * n * c * c + 2 * n * c * v));
}

TEST_CASE("grouped queries shrink the product of q, k and v only", "[nn][trials]") {
  const TrialSizes sizes = odd_sizes();
  CHECK(sizes.qkv() == 24 + 2 * 2 * 6);
  auto trials = prepared(product_trials(sizes));
  CHECK(trials.at("qkv forward").flops == 2.0 * 39 * 24 * 48);
  CHECK(trials.at("qkv weight gradient").flops == trials.at("qkv forward").flops);
  CHECK(trials.at("attention out forward").flops == 2.0 * 39 * 24 * 24);
}

TEST_CASE("causal attention counts the half of the scores that it needs", "[nn][trials]") {
  auto trials = prepared(attention_trials(odd_sizes()));
  const double forward = 2.0 * 39 * 13 * 24;  // 2 n T C
  CHECK(trials.at("causal forward").flops == forward);
  CHECK(trials.at("causal backward").flops == 2.5 * forward);
}

TEST_CASE("kernels count the passes that they cannot do without", "[nn][trials]") {
  TrialSizes sizes = odd_sizes();
  sizes.dtype = at::kBFloat16;
  auto trials = prepared(kernel_trials(sizes));
  const double hidden = 2.0 * 39 * 24;  // bytes of one pass over the residual stream
  const double wide = 2.0 * 39 * 50;    // and over the feed-forward layer
  CHECK(trials.at("layer norm").bytes == 2 * hidden);
  CHECK(trials.at("layer norm backward, residual").bytes == 4 * hidden);
  CHECK(trials.at("dropout and residual").bytes == 3 * hidden);
  CHECK(trials.at("bias and activation").bytes == 2 * wide);
  CHECK(trials.at("bias and activation backward").bytes == 3 * wide);
  CHECK(trials.at("sums of columns").bytes == wide);
  CHECK(trials.at("embedding").bytes == 2 * hidden);
  CHECK(trials.at("embedding backward").bytes >= hidden + 2.0 * 37 * 24);
  CHECK(trials.at("loss and its gradient").bytes == 2 * 2.0 * 39 * 37);
}

TEST_CASE("swiglu has kernels of its own", "[nn][trials]") {
  TrialSizes sizes = odd_sizes();
  sizes.activation = ActivationKind::swiglu;
  auto trials = prepared(kernel_trials(sizes));
  CHECK(trials.at("swiglu").bytes == 3 * 4.0 * 39 * 50);
  CHECK(trials.at("swiglu backward").bytes == 5 * 4.0 * 39 * 50);
  CHECK(trials.count("bias and activation") == 0);
}

}  // namespace
}  // namespace colossal
