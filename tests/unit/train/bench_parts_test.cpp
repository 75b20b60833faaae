// Does each part measure what a run of the configuration would do?
#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/tiny_models.hpp"
#include "train/bench/parts.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace colossal {
namespace {

/// One process that measures `config`, as `bench` would.
class Place {
 public:
  explicit Place(Config config, std::int64_t steps = 2)
      : config_(step_config(std::move(config), steps)),
        context_(config_),
        timer_(make_device_timer(at::kCPU)) {}

  [[nodiscard]] BenchPlace get(double copy_rate = 0) const {
    return {.config = config_,
            .context = context_,
            .comm = comm_,
            .timer = *timer_,
            .copy_rate = copy_rate,
            .sampling = {.sample_seconds = 1e-4, .total_seconds = 1e-3}};
  }

 private:
  Config config_;
  ParallelContext context_;
  Comm comm_;
  std::unique_ptr<DeviceTimer> timer_;
};

Config tiny_fp32() {
  Config config = test::tiny_gpt();
  config.train.precision = Precision::fp32;
  return config;
}

const BenchPart& part_named(std::string_view name) {
  for (const BenchPart& part : bench_parts()) {
    if (part.name == name) {
      return part;
    }
  }
  FAIL("no part " << name);
  throw;
}

Error refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  FAIL("nothing was refused");
  throw;
}

TEST_CASE("a step is measured on synthetic data, without schedule and evaluations", "[bench]") {
  Config config = test::tiny_gpt();
  config.data.type = DataType::text;
  config.data.train = {{"missing.txt"}};
  config.data.eval = {{"missing.txt"}};
  config.data.tokenizer.emplace();
  config.data.workers = 3;
  config.train.steps.reset();
  config.train.epochs = 2.5;
  config.eval.every_steps = 1;
  config.scheduler.warmup_steps = 1'000'000;
  const Config step = step_config(config, 10);
  CHECK(step.data.type == DataType::synthetic);
  CHECK(step.data.train.empty());
  CHECK_FALSE(step.data.tokenizer.has_value());
  CHECK(step.data.seq_length == config.data.seq_length);
  CHECK(step.data.workers == 3);
  CHECK(step.train.steps == 13);  // three of warm-up
  CHECK_FALSE(step.train.epochs.has_value());
  CHECK(step.data.num_samples == 13 * config.train.global_batch_size);
  CHECK_FALSE(step.eval.every_steps.has_value());
  CHECK(step.eval.at_end == false);
  CHECK_FALSE(step.scheduler.warmup_steps.has_value());
  CHECK(step.train.precision == config.train.precision);
  CHECK(step.optimizer.weight_decay == config.optimizer.weight_decay);
}

TEST_CASE("steps of a gpt and of a classifier are timed one by one", "[bench]") {
  const Place gpt(test::tiny_gpt(), 4);
  std::vector<BenchRow> rows = bench_step(gpt.get());
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].time.samples == 4);
  CHECK(rows[0].amount == 16 * 12);  // tokens of a step
  CHECK(rows[0].unit == BenchUnit::tokens);
  CHECK(rows[0].rate() > 0);
  CHECK(rows[0].name.starts_with("gpt of "));
  CHECK(rows[0].size == "16 x 12");
  const Place mlp(test::tiny_mlp(), 1);
  rows = bench_step(mlp.get());
  CHECK(rows[0].time.samples == 1);
  CHECK(rows[0].name.starts_with("mlp of "));
}

TEST_CASE("operations are measured at the sizes of the model and the micro-batch", "[bench]") {
  const Place place(tiny_fp32());
  const std::vector<BenchRow> gemm = part_named("gemm").measure(place.get());
  CHECK(gemm.size() == 15);
  CHECK(gemm[0].name == "qkv forward");
  CHECK(gemm[0].size == "192 x 16 x 48");
  CHECK(gemm.back().size == "64 x 192 x 16");  // the padded vocabulary
  for (const BenchRow& row : gemm) {
    INFO(row.name);
    CHECK(row.unit == BenchUnit::flops);
    CHECK(row.rate() > 0);
    CHECK_FALSE(row.of_copy.has_value());
  }
  const std::vector<BenchRow> attention = part_named("attention").measure(place.get());
  CHECK(attention.size() == 2);
  CHECK(attention[0].size == "16 x 2 heads of 12 x 8");
}

TEST_CASE("16 bits halve what kernels move, and the model's own activation is tried", "[bench]") {
  Config config = tiny_fp32();
  const std::vector<BenchRow> wide = part_named("kernels").measure(Place(config).get());
  config.train.precision = Precision::bf16;
  const std::vector<BenchRow> narrow = part_named("kernels").measure(Place(config).get());
  REQUIRE(wide.size() == narrow.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    INFO(wide[i].name);
    CHECK(narrow[i].name == wide[i].name);
    CHECK(narrow[i].amount < wide[i].amount);
    CHECK(narrow[i].amount >= wide[i].amount / 2);
  }
  config.model.activation = ActivationKind::swiglu;
  const std::vector<BenchRow> gated = part_named("kernels").measure(Place(config).get());
  CHECK(std::ranges::any_of(gated, [](const BenchRow& row) { return row.name == "swiglu"; }));
}

TEST_CASE("parts have names of their own, a copy comes first and steps last", "[bench]") {
  std::set<std::string_view> names;
  for (const BenchPart& part : bench_parts()) {
    CHECK(names.insert(part.name).second);
  }
  CHECK(names.size() == 7);
  CHECK(bench_parts().front().name == "copy");
  CHECK(bench_parts().back().name == "step");
}

TEST_CASE("kernels are compared with a copy", "[bench]") {
  const Place place(tiny_fp32());
  for (const BenchRow& row : part_named("kernels").measure(place.get(1e9))) {
    INFO(row.name);
    CHECK(row.unit == BenchUnit::bytes);
    REQUIRE(row.of_copy.has_value());
    CHECK(*row.of_copy == Approx(row.rate() / 1e9));
  }
  for (const BenchRow& row : part_named("kernels").measure(place.get())) {
    CHECK_FALSE(row.of_copy.has_value());  // no copy was measured
  }
}

TEST_CASE("a classifier has no layers to try alone", "[bench]") {
  const Place place(test::tiny_mlp());
  for (const char* part : {"gemm", "attention", "kernels"}) {
    const Error error = refusal([&] { part_named(part).measure(place.get()); });
    CHECK(error.id() == "bench-model");
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()).find(std::string("bench ") + part) != std::string::npos);
    CHECK(std::string(error.what()).find("mlp") != std::string::npos);
  }
}

TEST_CASE("one process has nobody to exchange tensors with", "[bench]") {
  const Place place(test::tiny_gpt());
  const Error error = refusal([&] { static_cast<void>(bench_collectives(place.get())); });
  CHECK(error.id() == "bench-one-process");
  CHECK(std::string(error.what()).find("--nproc 2") != std::string::npos);
}

TEST_CASE("a copy reads and writes its bytes once", "[bench]") {
  const Place place(test::tiny_gpt());
  const std::vector<BenchRow> rows = bench_copy(place.get());
  REQUIRE(rows.size() == 1);  // no GPU
  CHECK(rows[0].amount == 2 * 128.0 * 1024 * 1024);
  CHECK(rows[0].size == "128.0 MiB");
  CHECK(rows[0].rate() > 1e8);
}

TEST_CASE("an update counts every array it must touch", "[bench]") {
  const double numel = 32 * 1024 * 1024;
  Config config = tiny_fp32();
  std::vector<BenchRow> rows = bench_adam(Place(config).get(1e9));
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].amount == numel);
  CHECK(rows[0].unit == BenchUnit::elements);
  CHECK(rows[0].name == "adamw on the cpu");
  CHECK(rows[1].amount == 28 * numel);  // weight, two moments in and out, gradient in
  CHECK(rows[1].time.median == rows[0].time.median);
  CHECK(*rows[1].of_copy == Approx(rows[1].rate() / 1e9));
  config.train.precision = Precision::bf16;
  CHECK(bench_adam(Place(config).get())[1].amount == 28 * numel);  // 2 less in, 2 more out
  config.train.precision = Precision::fp32;
  config.optimizer.type = OptimizerType::sgd;
  config.optimizer.momentum = 0;
  rows = bench_adam(Place(config).get());
  CHECK(rows[1].amount == 12 * numel);
  CHECK(rows[0].name == "sgd on the cpu");
}

}  // namespace
}  // namespace colossal
