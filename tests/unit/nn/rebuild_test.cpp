// Are results that backward computes again the same, bit for bit, and is their memory gone in
// between?
#include "nn/functions.hpp"
#include "support/catch.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/equal.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>

namespace colossal::test {
namespace {

/// Watches tensors without holding them.
class Watch {
 public:
  void add(const at::Tensor& x) { impls_.emplace_back(x.storage().getWeakStorageImpl()); }
  [[nodiscard]] int alive() const {
    int count = 0;
    for (const auto& impl : impls_) {
      count += impl.expired() ? 0 : 1;
    }
    return count;
  }

 private:
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> impls_;
};

using Inputs = std::vector<at::Tensor>;
/// A function of `inputs` that computes results again as asked and shows those that it may drop.
using Layers = std::function<at::Tensor(const Inputs&, bool again, Watch& watch)>;

struct Outcome {
  at::Tensor y;
  std::vector<at::Tensor> grads;
  int alive = 0;  ///< watched results between forward and backward
};

Outcome run(const Layers& layers, const Inputs& leaves, bool again) {
  Inputs inputs;
  for (const at::Tensor& leaf : leaves) {
    inputs.push_back(leaf.detach().clone().set_requires_grad(true));
  }
  Watch watch;
  Outcome outcome;
  outcome.y = layers(inputs, again, watch);
  outcome.alive = watch.alive();
  outcome.y.mul(outcome.y.detach()).sum().backward();
  for (const at::Tensor& input : inputs) {
    outcome.grads.push_back(input.grad());
  }
  return outcome;
}

/// `watched`: results that layers() shows; all of them are dropped if they are computed again.
void require_same(const Layers& layers, const Inputs& leaves, int watched) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    INFO(c10::toString(dtype));
    Inputs inputs;
    for (const at::Tensor& leaf : leaves) {
      inputs.push_back(leaf.to(dtype));
    }
    const Outcome kept = run(layers, inputs, false);
    const Outcome again = run(layers, inputs, true);
    CHECK(kept.alive == watched);
    CHECK(again.alive == 0);
    REQUIRE(at::equal(kept.y, again.y));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      INFO("gradient of input " << i);
      REQUIRE(at::equal(kept.grads[i], again.grads[i]));
    }
  }
}

Rebuild when(bool again, Rebuild rebuild) {
  return again ? rebuild : Rebuild::nothing;
}

const Inputs kMlp = {normal_tensor({2, 9, 5}, "x"),
                     normal_tensor({7, 5}, "up"),
                     normal_tensor({7}, "bias"),
                     normal_tensor({5, 7}, "down")};

}  // namespace

TEST_CASE("an activation is computed again for the next layer", "[rebuild]") {
  for (const ActivationKind kind :
       {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu}) {
    require_same(
        [&](const Inputs& in, bool again, Watch& watch) {
          const at::Tensor up = linear(in[0], in[1], in[2], kind, when(again, Rebuild::output));
          watch.add(up);
          return linear(up, in[3], at::Tensor{});
        },
        kMlp,
        1);
  }
}

TEST_CASE("a product, its norm and its activation are computed again", "[rebuild]") {
  Inputs leaves = kMlp;
  leaves.push_back(normal_tensor({5}, "weight"));
  leaves.push_back(normal_tensor({5}, "norm bias"));
  require_same(
      [](const Inputs& in, bool again, Watch& watch) {
        const auto [normed, x] =
            layer_norm_fork(in[0], in[4], in[5], 1e-5, when(again, Rebuild::output));
        watch.add(normed);
        const at::Tensor up =
            linear(normed, in[1], in[2], ActivationKind::gelu_tanh, when(again, Rebuild::product));
        watch.add(up);
        return linear(up, in[3], at::Tensor{}).add(x);
      },
      leaves,
      2);
}

TEST_CASE("a gated feed-forward network is computed again from its input", "[rebuild]") {
  Inputs leaves = kMlp;
  leaves.push_back(normal_tensor({7, 5}, "gate"));
  require_same(
      [](const Inputs& in, bool again, Watch& watch) {
        const Rebuild product = when(again, Rebuild::product);
        const at::Tensor gate = linear(in[0], in[4], {}, std::nullopt, product);
        const at::Tensor up = linear(in[0], in[1], in[2], std::nullopt, product);
        const at::Tensor both = swiglu(gate, up, when(again, Rebuild::output));
        watch.add(gate);
        watch.add(up);
        watch.add(both);
        return linear(both, in[3], at::Tensor{});
      },
      leaves,
      3);
}

TEST_CASE("attention is computed again, also for documents", "[rebuild]") {
  const at::Tensor starts = at::Tensor(at::empty({2, 9}, at::kLong)).zero_();
  starts.narrow(1, 4, 5).fill_(4);
  for (const std::int64_t head_dim : {16, 3}) {
    for (const at::Tensor& documents : {at::Tensor(), starts}) {
      const kernels::AttentionShape shape{2, 1, head_dim, true};
      require_same(
          [&](const Inputs& in, bool again, Watch& watch) {
            const at::Tensor context =
                attention(in[0], shape, documents, when(again, Rebuild::output));
            watch.add(context);
            return linear(context, in[1], at::Tensor{});
          },
          {normal_tensor({2, 9, 4 * head_dim}, "qkv"), normal_tensor({5, 2 * head_dim}, "out")},
          1);
    }
  }
}

TEST_CASE("a result that two layers use is computed for both", "[rebuild]") {
  require_same(
      [](const Inputs& in, bool again, Watch& watch) {
        const at::Tensor up =
            linear(in[0], in[1], in[2], ActivationKind::gelu, when(again, Rebuild::output));
        watch.add(up);
        return linear(up, in[3], at::Tensor{}).add(linear(up, in[3], {}, std::nullopt).mul(2));
      },
      kMlp,
      1);
}

}  // namespace colossal::test
