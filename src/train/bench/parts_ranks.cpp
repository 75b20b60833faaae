// What can be measured of several ranks: their collectives, and whole training steps?
#include "core/error.hpp"
#include "models/zoo.hpp"
#include "train/bench/parts.hpp"
#include "train/human.hpp"
#include "train/stopwatch.hpp"
#include "train/trainer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <memory>
#include <utility>

namespace colossal {
namespace {

constexpr std::int64_t kWarmupSteps = 3;

/// One collective on a message of some bytes: what it is called, and what the busiest link of a
/// ring carries of it, as a share of the message.
struct Collective {
  const char* name;
  double share;
  std::function<void()> call;
};

/// The collectives of training on messages of `numel` fp32 numbers, the whole of a gather or
/// scatter.
std::vector<Collective> collectives_of(const Comm& comm, std::int64_t numel, at::Device device) {
  const auto ranks = static_cast<double>(comm.size());
  const double ring = (ranks - 1) / ranks;
  const auto options = at::TensorOptions(at::kFloat).device(device);
  at::Tensor whole = at::ones({numel}, options);
  at::Tensor part = at::ones({numel / comm.size()}, options);
  return {
      {"all-reduce", 2 * ring, [&comm, whole]() mutable { comm.all_reduce(whole).wait(); }},
      {"all-gather", ring, [&comm, whole, part]() mutable { comm.all_gather(whole, part).wait(); }},
      {"reduce-scatter",
       ring,
       [&comm, whole, part]() mutable { comm.reduce_scatter(part, whole).wait(); }},
      {"broadcast", 1, [&comm, whole]() mutable { comm.broadcast(whole, 0).wait(); }}};
}

/// The longest of what the ranks have seen, so that all of them repeat equally often.
double longest(const Comm& comm, double seconds) {
  at::Tensor most = at::empty({1}, at::kDouble);
  *most.mutable_data_ptr<double>() = seconds;
  comm.all_reduce(most, ReduceOp::max).wait();
  return *most.const_data_ptr<double>();
}

/// Seconds between the ends of steps.
class StepClock : public Hook {
 public:
  explicit StepClock(std::vector<double>& seconds, std::int64_t& tokens)
      : seconds_(seconds), tokens_(tokens) {}

  void on_start(Trainer& /*trainer*/) override { last_ = watch_.seconds(); }
  void on_step(Trainer& /*trainer*/, const StepReport& report) override {
    const double now = watch_.seconds();
    if (report.step > kWarmupSteps) {
      seconds_.push_back(now - last_);
    }
    tokens_ = report.tokens;
    last_ = now;
  }

 private:
  std::vector<double>& seconds_;
  std::int64_t& tokens_;
  Stopwatch watch_;
  double last_ = 0;
};

}  // namespace

std::vector<BenchRow> bench_collectives(const BenchPlace& place) {
  check(place.comm.size() > 1,
        ErrorKind::usage,
        "bench-one-process",
        "bench collectives measures what processes say to each other, and there is one\n  fix   "
        "add --nproc 2");
  std::vector<std::int64_t> sizes = {4 * 1024, 256 * 1024, 4 * kMiB, 64 * kMiB};
  if (place.context.device().is_cuda()) {
    sizes.push_back(512 * kMiB);
  }
  Sampling sampling = place.sampling;
  sampling.agree = [&](double seconds) { return longest(place.comm, seconds); };
  std::vector<BenchRow> rows;
  for (const std::int64_t bytes : sizes) {
    // A multiple of the ranks, so that all of them hold equal parts.
    const std::int64_t numel = bytes / 4 / place.comm.size() * place.comm.size();
    const auto moved = static_cast<double>(4 * numel);
    for (const Collective& collective : collectives_of(place.comm, numel, place.context.device())) {
      place.comm.barrier();
      rows.push_back({.part = "collectives",
                      .name = collective.name,
                      .size = human_binary(moved),
                      .time = measure(place.timer, collective.call, sampling),
                      .amount = collective.share * moved});
    }
  }
  return rows;
}

Config step_config(Config config, std::int64_t steps) {
  const std::int64_t total = steps + kWarmupSteps;
  DataConfig data;
  data.type = DataType::synthetic;
  data.seq_length = config.data.seq_length;
  data.workers = config.data.workers;
  data.prefetch = config.data.prefetch;
  data.num_samples = config.train.global_batch_size * total;
  config.data = std::move(data);
  config.train.steps = total;
  config.train.epochs.reset();
  config.train.tokens.reset();
  config.train.samples.reset();
  config.scheduler = {};
  config.eval = {};
  config.eval.at_end = false;
  return config;
}

std::vector<BenchRow> bench_step(const BenchPlace& place) {
  std::vector<double> seconds;
  std::int64_t tokens = 0;
  Trainer trainer(build(place.config, place.context, RunState{}), RunState{});
  trainer.add_hook(std::make_unique<StepClock>(seconds, tokens));
  trainer.run();
  const Config& config = place.config;
  const std::string parameters =
      human_count(static_cast<double>(num_parameters(trainer.parts().blocks)));
  return {{.part = "step",
           .name = fmt::format("{} of {} parameters", yaml_word(config.model.type), parameters),
           .size = fmt::format("{} x {}", config.train.global_batch_size, config.data.seq_length),
           .time = summarize(seconds),
           .amount = static_cast<double>(tokens),
           .unit = BenchUnit::tokens}};
}

}  // namespace colossal
