// Does Adafactor see whole rows and columns, however parameters are cut and padded?
#include "optim/adafactor.hpp"

#include "optim_helpers.hpp"
#include "support/catch.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>

namespace colossal {
namespace {

using test::noise;
using test::require_close;

ParamSpec spec_of(const Shape& shape, const Shape& padded = {}) {
  ParamSpec spec;
  spec.shape = shape;
  spec.padded = padded.empty() ? shape : padded;
  return spec;
}

/// Parameters one after the other in one flat array, which is cut into shards.
class AdafactorSubject {
 public:
  AdafactorSubject(const OptimizerConfig& config,
                   const std::vector<ParamSpec>& specs,
                   std::vector<std::int64_t> cuts = {},
                   at::ScalarType dtype = at::kDouble)
      : optimizer_(make_adafactor(config)), groups_(specs.size()) {
    for (const ParamSpec& spec : specs) {
      owned_.push_back(std::make_unique<Parameter>(spec));
      parameters_.push_back(owned_.back().get());
      size_ += numel(spec.padded);
    }
    cuts.insert(cuts.begin(), 0);
    cuts.push_back(size_);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      add_shard(specs, cuts[i], cuts[i + 1], dtype);
    }
    optimizer_->prepare(parameters_, context_.mesh());
  }

  void set_groups(const ParamGroup& group) { std::ranges::fill(groups_, group); }
  void set_weights(const at::Tensor& flat) { scatter(flat, &FlatShard::master); }
  [[nodiscard]] at::Tensor weights() const {
    std::vector<at::Tensor> parts;
    for (const FlatShard& shard : shards_) {
      parts.push_back(shard.master);
    }
    return at::cat(parts);
  }

  void step(const at::Tensor& grad, double lr, double factor = 1) {
    scatter(grad, &FlatShard::grad);
    apply_update(
        *optimizer_,
        [&](StateAccess access, const ShardCall& call) {
          CHECK(access == StateAccess::none);
          for (FlatShard& shard : shards_) {
            call({&shard, 1});
          }
        },
        groups_,
        {.step = steps_++, .lr = lr, .grad_factor = factor},
        parameters_,
        context_);
  }

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::vector<FlatShard>& shards() { return shards_; }
  [[nodiscard]] const Optimizer& optimizer() const { return *optimizer_; }

 private:
  void add_shard(const std::vector<ParamSpec>& specs,
                 std::int64_t begin,
                 std::int64_t end,
                 at::ScalarType dtype) {
    FlatShard shard = test::shard_of(at::zeros({end - begin}, dtype), {});
    shard.segments.clear();
    std::int64_t first = 0;
    for (int p = 0; p < std::ssize(specs); ++p) {
      const std::int64_t last = first + numel(specs[static_cast<std::size_t>(p)].padded);
      const std::int64_t from = std::max(first, begin);
      const std::int64_t to = std::min(last, end);
      if (from < to) {
        shard.segments.push_back(
            {.param = p, .begin = from - first, .end = to - first, .offset = from - begin});
      }
      first = last;
    }
    shards_.push_back(std::move(shard));
  }

  void scatter(const at::Tensor& flat, at::Tensor FlatShard::* member) {
    std::int64_t at = 0;
    for (FlatShard& shard : shards_) {
      (shard.*member).copy_(flat.narrow(0, at, shard.master.numel()));
      at += shard.master.numel();
    }
  }

  ParallelContext context_{Config{}};
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::unique_ptr<Parameter>> owned_;
  std::vector<Parameter*> parameters_;
  std::vector<ParamGroup> groups_;
  std::vector<FlatShard> shards_;
  std::int64_t size_ = 0;
  std::int64_t steps_ = 0;
};

OptimizerConfig config_of(bool scale_parameter, bool relative_step) {
  OptimizerConfig config;
  config.type = OptimizerType::adafactor;
  config.scale_parameter = scale_parameter;
  config.relative_step = relative_step;
  return config;
}

/// One parameter of B matrices [R, C], or a vector (R = 0), trained by the equations.
class AdafactorReference {
 public:
  AdafactorReference(const OptimizerConfig& config, std::int64_t b, std::int64_t r, std::int64_t c)
      : config_(config), r_(r), c_(c), rows_(b * r), cols_(b * c) {}

  void step(std::vector<double>& w, const std::vector<double>& g, double lr, double decay) {
    const double keep = 1 - std::pow(++t_, -0.8);
    const std::vector<double> v = second(g, keep);
    std::vector<double> u;
    for (std::size_t i = 0; i < g.size(); ++i) {
      u.push_back(g[i] / std::sqrt(v[i]));
    }
    const double clip = std::max(1.0, rms(u));
    lr = config_.relative_step ? std::min(lr, 1 / std::sqrt(t_)) : lr;
    const double rate = config_.scale_parameter ? lr * std::max(1e-3, rms(w)) : lr;
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] -= rate * (u[i] / clip + decay * w[i]);
    }
  }

 private:
  static double rms(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) {
      sum += value * value;
    }
    return std::sqrt(sum / static_cast<double>(values.size()));
  }

  std::vector<double> second(const std::vector<double>& g, double keep) {
    std::vector<double> row(rows_.size());
    std::vector<double> col(cols_.size());
    std::vector<double> v(g.size());
    const std::int64_t r = std::max<std::int64_t>(r_, 1);
    for (std::int64_t i = 0; i < std::ssize(g); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double s = g[at] * g[at] + 1e-30;
      if (r_ > 0) {
        row[static_cast<std::size_t>(i / c_)] += s / static_cast<double>(c_);
      }
      col[static_cast<std::size_t>(i / (r * c_) * c_ + i % c_)] += s / static_cast<double>(r);
    }
    mix(rows_, row, keep);
    mix(cols_, col, keep);
    for (std::int64_t i = 0; i < std::ssize(g); ++i) {
      const std::int64_t batch = i / (r * c_);
      double share = 1;
      if (r_ > 0) {
        double mean = 0;
        for (std::int64_t k = 0; k < r_; ++k) {
          mean += rows_[static_cast<std::size_t>(batch * r_ + k)] / static_cast<double>(r_);
        }
        share = rows_[static_cast<std::size_t>(i / c_)] / mean;
      }
      v[static_cast<std::size_t>(i)] = share * cols_[static_cast<std::size_t>(batch * c_ + i % c_)];
    }
    return v;
  }

  static void mix(std::vector<double>& state, const std::vector<double>& now, double keep) {
    for (std::size_t i = 0; i < state.size(); ++i) {
      state[i] = keep * state[i] + (1 - keep) * now[i];
    }
  }

  OptimizerConfig config_;
  std::int64_t r_, c_;
  std::vector<double> rows_, cols_;
  double t_ = 0;
};

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

TEST_CASE("Adafactor equals the golden table", "[optim]") {
  AdafactorSubject subject(config_of(true, false), {spec_of({2, 2})});
  subject.set_weights(at::tensor({0.5, -0.25, 1.0, 2.0}, at::kDouble));
  subject.step(at::tensor({.1, -.2, .3, .4}, at::kDouble), 0.01);
  require_close(at::tensor({.4910732145, -.2373756188, .9880234604, 1.9887084102}, at::kDouble),
                subject.weights(),
                1e-9,
                "after step 1");
  subject.step(at::tensor({.2, .1, -.3, 0.}, at::kDouble), 0.01);
  subject.step(at::tensor({-.1, .05, .2, .1}, at::kDouble), 0.01);
  require_close(at::tensor({.4853809111, -.2500210079, .9907677304, 1.9832954991}, at::kDouble),
                subject.weights(),
                1e-9,
                "after step 3");
}

TEST_CASE("Adafactor equals a reference for matrices, batches of them and vectors", "[optim]") {
  struct Case {
    Shape shape;
    std::int64_t b, r, c;
  };
  for (const Case& one : std::vector<Case>{{{70, 300}, 1, 70, 300},
                                           {{1, 9}, 1, 1, 9},
                                           {{5, 1}, 1, 5, 1},
                                           {{3, 4, 5}, 3, 4, 5},
                                           {{2, 3, 4, 5}, 6, 4, 5},
                                           {{37}, 1, 0, 37}}) {
    for (const int flags : {0, 1, 2, 3}) {
      INFO("dims " << one.shape.size() << ", rows " << one.r << ", flags " << flags);
      const OptimizerConfig config = config_of(flags % 2 == 1, flags / 2 == 1);
      AdafactorSubject subject(config, {spec_of(one.shape)});
      subject.set_groups({.lr_scale = 1, .weight_decay = 0.2});
      AdafactorReference reference(config, one.b, one.r, one.c);
      const at::Tensor start = noise(subject.size(), 1, at::kDouble);
      std::vector<double> expected = numbers(start);
      subject.set_weights(start);
      for (int k = 0; k < 4; ++k) {
        const at::Tensor grad = noise(subject.size(), 3 + k, at::kDouble);
        const double lr = k == 3 ? 10 : 0.3;  // above and below 1 / sqrt(t)
        subject.step(grad, lr, 0.7);
        reference.step(expected, numbers(grad * 0.7), lr, 0.2);
      }
      require_close(at::tensor(expected, at::kDouble), subject.weights(), 1e-11, "weights");
    }
  }
}

/// Weights after five steps of the same parameters.
at::Tensor train(AdafactorSubject& subject) {
  subject.set_groups({.lr_scale = 0.5, .weight_decay = 0.1});
  subject.set_weights(noise(subject.size(), 1, at::kDouble));
  for (int k = 0; k < 5; ++k) {
    subject.step(noise(subject.size(), 3 + k, at::kDouble), 0.1, 0.8);
  }
  return subject.weights();
}

TEST_CASE("rows and columns may be cut anywhere", "[optim]") {
  const std::vector<ParamSpec> specs = {spec_of({30, 20}), spec_of({11}), spec_of({4, 5, 6})};
  AdafactorSubject whole(config_of(true, false), specs);
  const at::Tensor expected = train(whole);
  for (const std::vector<std::int64_t>& cuts : std::vector<std::vector<std::int64_t>>{
           {300}, {1, 2, 19, 20, 21, 333}, {599, 605, 611, 640, 700}}) {
    AdafactorSubject parts(config_of(true, false), specs, cuts);
    require_close(expected, train(parts), 1e-12, "weights");
  }
  // Two layers instead of two shards are something else.
  AdafactorSubject layers(
      config_of(true, false),
      {spec_of({15, 20}), spec_of({15, 20}), spec_of({11}), spec_of({4, 5, 6})});
  CHECK(test::scaled_distance(expected, train(layers)) > 1e-4);
}

TEST_CASE("padding is no row", "[optim]") {
  // 7 rows of 5, of which a vocabulary padded to 9 makes 45 elements.
  AdafactorSubject plain(config_of(true, false), {spec_of({7, 5})});
  for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{}, {12, 34, 40}}) {
    AdafactorSubject padded(config_of(true, false), {spec_of({7, 5}, {9, 5})}, cuts);
    const auto with_padding = [&](const at::Tensor& flat) {
      return at::cat({flat, at::zeros({10}, at::kDouble)});
    };
    const at::Tensor start = noise(35, 1, at::kDouble);
    AdafactorSubject same(config_of(true, false), {spec_of({7, 5})});
    same.set_weights(start);
    padded.set_weights(with_padding(start));
    for (int k = 0; k < 3; ++k) {
      same.step(noise(35, 3 + k, at::kDouble), 0.1);
      padded.step(with_padding(noise(35, 3 + k, at::kDouble)), 0.1);
    }
    require_close(with_padding(same.weights()), padded.weights(), 1e-13, "weights");
    CHECK(padded.weights().narrow(0, 35, 10).abs().max().item<double>() == 0);
  }
}

TEST_CASE("the number of threads does not change a bit of Adafactor", "[optim]") {
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    AdafactorSubject subject(
        config_of(true, true), {spec_of({520, 301}), spec_of({40'000})}, {77'777});
    results.push_back(train(subject));
  }
  at::set_num_threads(threads);
  CHECK(results[0].equal(results[1]));
  CHECK(results[0].equal(results[2]));
}

TEST_CASE("Adafactor takes 16-bit gradients and writes 16-bit weights", "[optim]") {
  for (const at::ScalarType half : {at::kBFloat16, at::kHalf}) {
    const std::vector<ParamSpec> specs = {spec_of({30, 20}), spec_of({11})};
    AdafactorSubject wide(config_of(true, false), specs);
    AdafactorSubject mixed(config_of(true, false), specs, {333}, at::kFloat);
    for (FlatShard& shard : mixed.shards()) {
      shard.grad = shard.grad.to(half);
      shard.working = shard.master.to(half);
    }
    const at::Tensor start = noise(611, 1, at::kFloat);
    wide.set_weights(start);
    mixed.set_weights(start);
    for (int k = 0; k < 3; ++k) {
      const at::Tensor grad = noise(611, 3 + k, half);
      wide.step(grad.to(at::kDouble), 0.1);
      mixed.step(grad, 0.1);
    }
    require_close(wide.weights(), mixed.weights(), 1e-6, "weights");
    for (const FlatShard& shard : mixed.shards()) {
      CHECK(shard.working.equal(shard.master.to(half)));
    }
  }
}

TEST_CASE("no step of Adafactor is longer than its rate, and none needs a size of gradients",
          "[optim]") {
  for (const double size : {1e-12, 1.0, 1e12}) {
    INFO(size);
    AdafactorSubject subject(config_of(true, false), {spec_of({30, 20})});
    subject.set_weights(noise(600, 1, at::kDouble));
    for (int k = 0; k < 3; ++k) {
      const at::Tensor before = subject.weights();
      const double rms = before.norm().item<double>() / std::sqrt(600);
      // The third gradient is a hundred times larger than what the states have seen.
      subject.step(noise(600, 3 + k, at::kDouble) * size * (k == 2 ? 100 : 1), 0.01);
      const double way = (subject.weights() - before).norm().item<double>() / std::sqrt(600);
      CHECK(way <= 0.01 * rms * (1 + 1e-12));
      CHECK(way > 0.005 * rms);
    }
  }
}

TEST_CASE("Adafactor takes six arrays of fp64 of a GPU, of at most four million elements",
          "[optim]") {
  const AdafactorSubject small(config_of(true, false), {spec_of({30, 20}), spec_of({11})});
  CHECK(small.optimizer().gpu_scratch_bytes() == 6 * 8 * 600);
  const AdafactorSubject padded(config_of(true, false), {spec_of({30, 20}, {32, 20})});
  CHECK(padded.optimizer().gpu_scratch_bytes() == 6 * 8 * 640);
  const AdafactorSubject large(config_of(true, false), {spec_of({5000, 1000})});
  CHECK(large.optimizer().gpu_scratch_bytes() == std::int64_t{192} << 20U);
}

TEST_CASE("Adafactor keeps a number per row and column, and must know them", "[optim]") {
  const AdafactorSubject subject(config_of(true, false), {spec_of({30, 20}), spec_of({11})});
  CHECK(subject.optimizer().states().empty());
  const auto states = subject.optimizer().whole_states();
  REQUIRE(states.size() == 3);
  CHECK(states[0].name == "exp_avg_sq_row");
  CHECK(states[0].values.numel() == 30);
  CHECK(states[1].name == "exp_avg_sq_col");
  CHECK(states[1].values.numel() == 20);
  CHECK((states[2].param == 1 && states[2].name == "exp_avg_sq"));
  CHECK(states[2].values.numel() == 11);
  std::vector<FlatShard> shards = {test::shard_of(noise(8, 1, at::kFloat), {})};
  CHECK_THROWS_WITH(test::step(*make_adafactor(config_of(true, false)),
                               shards,
                               std::vector{ParamGroup{}},
                               {.step = 0, .lr = 1}),
                    "adafactor is prepared for 0 parameters and was given 1");
}

}  // namespace
}  // namespace colossal
