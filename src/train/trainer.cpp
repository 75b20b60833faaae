// What is a training run? The loop and one step of it.
#include "train/trainer.hpp"

#include "core/fault.hpp"
#include "core/log.hpp"
#include "core/trace.hpp"
#include "optim/norms.hpp"
#include "optim/update.hpp"
#include "train/device_batch.hpp"
#include "train/objective.hpp"
#include "train/records.hpp"

#include <ATen/ops/all.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace colossal {
namespace {

/// What all data coordinates read for one step.
struct StepTotals : StepLabels {
  std::int64_t samples = 0;
  std::uint64_t data_hash = 0;
};

/// Sums over the data axes, one all-reduce; the hash sum wraps mod 2^64 as its definition says.
StepTotals sum_over_data(const StepBatch& batch, const Comm& data) {
  const trace::Scope scope(trace::Phase::reduce);
  at::Tensor sums = at::empty({4}, at::kLong);
  auto* values = sums.mutable_data_ptr<std::int64_t>();
  values[0] = batch.labelled;
  values[1] = batch.samples;
  values[2] = std::bit_cast<std::int64_t>(batch.data_hash);
  values[3] = std::ssize(batch.labelled_each) - std::ranges::count(batch.labelled_each, 0);
  data.all_reduce(sums).wait();
  return {{values[0], values[3]}, values[1], std::bit_cast<std::uint64_t>(values[2])};
}

/// A step's loss, whether any rank has seen a gradient that is not finite, and what any is asked
/// to do next.
struct StepLoss {
  double sum = 0;
  bool overflow = false;
  Wishes wishes = {};
};

/// Sums over the data axes, one all-reduce for all: what decides about the step also decides on
/// every rank alike whether it was the last.
StepLoss sum_over_data(const StepLoss& mine, const Comm& data) {
  const trace::Scope scope(trace::Phase::reduce);
  at::Tensor sums = at::empty({5}, at::kDouble);
  auto* values = sums.mutable_data_ptr<double>();
  values[0] = mine.sum;
  values[1] = mine.overflow ? 1 : 0;
  values[2] = mine.wishes.stop == StopReason::signal ? 1 : 0;
  values[3] = mine.wishes.stop == StopReason::max_time ? 1 : 0;
  values[4] = mine.wishes.save ? 1 : 0;
  data.all_reduce(sums).wait();
  const StopReason late = values[3] > 0 ? StopReason::max_time : StopReason::none;
  return {values[0], values[1] > 0, {values[2] > 0 ? StopReason::signal : late, values[4] > 0}};
}

/// The loader's next batch; the scope is the time that the step waits for data.
StepBatch next_batch(Loader& loader) {
  const trace::Scope scope(trace::Phase::data);
  return loader.next();
}

/// Tells the micro-batches what they are for, and brings them to the device.
void prepare(StepBatch& batch, const TrainerParts& parts, double loss_factor, std::int64_t step) {
  for (std::size_t i = 0; i < batch.micro_batches.size(); ++i) {
    Batch& micro_batch = batch.micro_batches[i];
    micro_batch.loss = loss_rule(parts.config.train, loss_factor, batch.labelled_each[i]);
    micro_batch.step = step;
    micro_batch.training = true;
    micro_batch = to_device(std::move(micro_batch), parts.config.model, parts.context.device());
  }
}

/// NaNs lose their sign, which means nothing and would be printed.
double unsigned_nan(double x) {
  return std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x;
}

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

/// The first parameter (in forward order) with a NaN or infinity in `part` of its shard; kNone.
std::int64_t first_non_finite(std::span<const FlatShard> shards, at::Tensor FlatShard::* part) {
  std::int64_t first = kNone;
  for (const FlatShard& shard : shards) {
    for (const Segment& segment : shard.segments) {
      const at::Tensor values =
          (shard.*part).narrow(0, segment.offset, segment.end - segment.begin);
      const bool finite = at::isfinite(values).all().item<bool>();
      first = finite ? first : std::min<std::int64_t>(first, segment.param);
    }
  }
  return first;
}

/// Where the trouble starts, for messages: a weight if any is bad, else the first bad gradient. A
/// rank may hold only a part of each, so all ranks of `data` find it together: one all-reduce.
std::string describe_non_finite(ChunkStore& store, const Comm& data) {
  at::Tensor firsts = at::empty({2}, at::kLong);
  auto* const values = firsts.mutable_data_ptr<std::int64_t>();
  values[0] = first_non_finite(store.shards(), &FlatShard::master);
  values[1] = first_non_finite(store.shards(), &FlatShard::grad);
  data.all_reduce(firsts, ReduceOp::min).wait();
  const auto name = [&](std::int64_t param) -> const std::string& {
    return store.parameters()[static_cast<std::size_t>(param)]->spec().name;
  };
  if (values[0] != kNone) {
    return fmt::format("the weights of '{}' are not finite", name(values[0]));
  }
  if (values[1] != kNone) {
    return fmt::format("first non-finite gradient: '{}'", name(values[1]));
  }
  return "all weights and gradients are finite";
}

}  // namespace

Trainer::Trainer(TrainerParts parts, RunState state)
    : parts_(std::move(parts)),
      state_(std::move(state)),
      scaler_(parts_.config.train, state_.loss_scale),
      gradients_(parts_.config, parts_.context, parts_.store->plan()) {
  state_.loss_scale = scaler_.state();
  if (!parts_.config.train.loss_spike) {
    state_.recent_losses.clear();  // nobody goes on with them
  }
  if (state_.data_fingerprint.empty()) {
    state_.data_fingerprint = parts_.train_data->fingerprint();
  }
}

void Trainer::add_hook(std::unique_ptr<Hook> hook) {
  hooks_.push_back(std::move(hook));
}

RunState Trainer::run() {
  const Stopwatch loop;
  const double side_before = side_seconds_;
  const auto measure = [&] { loop_seconds_ = loop.seconds() - (side_seconds_ - side_before); };
  run_hooks([&](Hook& hook) { hook.on_start(*this); });
  stopped_ = StopReason::none;
  while (state_.step < parts_.total_steps && stopped_ == StopReason::none) {
    const StepReport report = step();
    run_hooks([&](Hook& hook) { hook.on_step(*this, report); });
    measure();
    ++num_steps_;
    stopped_ = report.stop;
  }
  const bool whole = stopped_ == StopReason::none;
  run_hooks([&](Hook& hook) { whole ? hook.on_end(*this) : hook.on_stop(*this); });
  measure();
  return state_;
}

void Trainer::add_save(double seconds, double blocked_seconds) noexcept {
  ++num_saves_;
  save_seconds_ += seconds;
  side_seconds_ += blocked_seconds;
}

double Trainer::mean_save_seconds() const noexcept {
  return num_saves_ == 0 ? 0 : save_seconds_ / static_cast<double>(num_saves_);
}

void Trainer::run_hooks(const std::function<void(Hook&)>& call) {
  const std::unique_lock running = parts_.hooks_running == nullptr
                                       ? std::unique_lock<std::timed_mutex>()
                                       : std::unique_lock(*parts_.hooks_running);
  const Stopwatch watch;
  const double side_before = side_seconds_;
  tell("hooks");
  for (const std::unique_ptr<Hook>& hook : hooks_) {
    const trace::Scope scope(trace::Phase::hooks);
    call(*hook);
  }
  hook_seconds_ += watch.seconds() - (side_seconds_ - side_before);
}

void Trainer::tell(std::string_view phase) const {
  if (parts_.phase) {
    parts_.phase(fmt::format("step {} {}", state_.step + 1, phase));
  }
}

StepReport Trainer::step() {
  const trace::Scope whole(trace::Phase::step);
  const Stopwatch watch;
  const Comm& data = parts_.context.comm(data_axes());
  // captured here: gradients are divided by the scale that they were multiplied by
  StepReport report{.step = state_.step + 1,
                    .loss_scale = scaler_.scale(),
                    .lr = parts_.scheduler->lr(state_.step)};

  const fault::Poison poison = fault::at_step(parts_.context.mesh().rank(), report.step);

  tell("data");
  StepBatch batch = next_batch(*parts_.loader);
  report.data_seconds = watch.seconds();
  const StepTotals totals = sum_over_data(batch, data);
  check(totals.labelled > 0,
        ErrorKind::data,
        "no-labels",
        "step {}: none of the {} samples has a label to learn from",
        report.step,
        totals.samples);
  const double divisor = loss_divisor(parts_.config.train.loss_reduction, totals);
  const double loss_factor = poison == fault::Poison::gradient
                                 ? std::numeric_limits<double>::infinity()
                                 : report.loss_scale / divisor;
  prepare(batch, parts_, loss_factor, state_.step);

  tell("forward and backward");
  StepSums sums = gradients_.run(parts_, batch.micro_batches);
  if (poison == fault::Poison::loss) {
    sums.loss = at::full_like(sums.loss, std::nan(""));
  }

  tell("update");
  report.tokens = totals.labelled;
  report.samples = totals.samples;
  report.data_hash = totals.data_hash;
  report.epoch = parts_.loader->epoch();
  const double waited = judge(report, sums, divisor, watch);
  const trace::Scope optimizer(trace::Phase::optimizer);
  update(report);
  report.recorded = gradients_.replayed();
  report.step_seconds = watch.seconds();
  report.host_seconds = report.step_seconds - report.data_seconds - waited;
  gradients_.observe(report.step_seconds, report.host_seconds);
  return report;
}

Wishes Trainer::wishes(double seconds) const {
  return parts_.wishes
             ? parts_.wishes((loop_seconds_ + seconds) / static_cast<double>(num_steps_ + 1))
             : Wishes{};
}

double Trainer::judge(StepReport& report,
                      const StepSums& sums,
                      double divisor,
                      const Stopwatch& watch) {
  const Stopwatch waiting;
  const double my_loss = sums.loss.item<double>();  // everything before it has been given to a GPU
  const double waited = parts_.context.device().is_cuda() ? waiting.seconds() : 0;
  const double scaled_norm = global_grad_norm(
      parts_.store->shards(), parts_.store->parameters(), parts_.context, sums.grad_squares);
  const StepLoss all =
      sum_over_data({my_loss, !std::isfinite(scaled_norm), wishes(watch.seconds())},
                    parts_.context.comm(data_axes()));
  report.loss = unsigned_nan(all.sum / divisor);
  report.grad_norm = unsigned_nan(scaled_norm / report.loss_scale);
  report.skipped = all.overflow || !std::isfinite(report.loss);
  stop_at_spike(report);
  const bool last = !report.skipped && report.step == parts_.total_steps;
  report.stop = last ? StopReason::none : all.wishes.stop;
  report.save = all.wishes.save;
  return waited;
}

void Trainer::stop_at_spike(const StepReport& report) const {
  const std::optional<double>& limit = parts_.config.train.loss_spike;
  if (!limit || report.skipped || !is_spike(state_.recent_losses, report.loss, *limit)) {
    return;
  }
  fail(
      ErrorKind::numerics,
      "loss-spike",
      "step {}: the loss {} is more than train.loss_spike {} times {}, the mean of the last {} "
      "steps. The update was not applied. Continue from a checkpoint with a lower optimizer.lr, or "
      "raise train.loss_spike",
      report.step,
      report.loss,
      *limit,
      mean_loss(state_.recent_losses),
      kSpikeWindow);
}

void Trainer::update(StepReport& report) {
  if (report.skipped) {
    skip_or_stop(report);
  } else {
    const double factor = clip_factor(report.grad_norm, parts_.config.train.clip_grad_norm);
    report.clipped = factor < 1;
    apply_update(
        *parts_.optimizer,
        [&](StateAccess access, const ShardCall& call) { parts_.store->visit(access, call); },
        parts_.groups,
        {.step = state_.step,
         .lr = report.lr,
         .grad_factor = factor / report.loss_scale,
         .momentum = parts_.scheduler->momentum(state_.step)},
        parts_.store->parameters(),
        parts_.context);
    parts_.store->publish();
    ++state_.step;
    skipped_in_a_row_ = 0;
    if (parts_.config.train.loss_spike) {
      remember_loss(state_.recent_losses, report.loss);
    }
  }
  if (scaler_.update(report.skipped)) {
    log::warn("[loss-scale-min] step {}: gradients overflow at the lowest loss scale, {}",
              report.step,
              report.loss_scale);
  }
  state_.loss_scale = scaler_.state();
  state_.consumed = parts_.loader->state().consumed;
}

void Trainer::skip_or_stop(const StepReport& report) {
  const bool bad_loss = !std::isfinite(report.loss);
  if (!scaler_.active() && parts_.config.train.nonfinite == NonFinite::stop) {
    fail(ErrorKind::numerics,
         bad_loss ? "nonfinite-loss" : "nonfinite-gradient",
         "step {}: loss {}, gradient norm {}; {}. The update was not applied. Lower optimizer.lr, "
         "set train.clip_grad_norm, or go on with train.nonfinite: skip",
         report.step,
         report.loss,
         report.grad_norm,
         describe_non_finite(*parts_.store, parts_.context.comm(data_axes())));
  }
  ++state_.skipped;
  ++skipped_in_a_row_;
  if (skipped_in_a_row_ > parts_.config.train.max_skipped_steps) {
    fail(ErrorKind::numerics,
         "too-many-skipped",
         "step {}: {} updates in a row were skipped and train.max_skipped_steps is {}; {}{}",
         report.step,
         skipped_in_a_row_,
         parts_.config.train.max_skipped_steps,
         scaler_.active() ? fmt::format("loss scale {}; ", report.loss_scale) : "",
         describe_non_finite(*parts_.store, parts_.context.comm(data_axes())));
  }
}

EvalReport Trainer::evaluate() {
  check(parts_.eval_data != nullptr,
        ErrorKind::internal,
        "no-eval-data",
        "evaluation was asked for without data.eval");
  tell("evaluation");
  const trace::Scope scope(trace::Phase::eval);
  const EvalReport report = colossal::evaluate(
      *parts_.stage, *parts_.eval_data, parts_.config, parts_.context, state_.step);
  side_seconds_ += report.seconds;
  for (const std::unique_ptr<Hook>& hook : hooks_) {
    hook->on_eval(*this, report);
  }
  return report;
}

std::vector<TensorRecord> Trainer::records() {
  const std::span<Parameter* const> parameters = parts_.store->parameters();
  const Mesh& mesh = parts_.context.mesh();
  std::vector<TensorRecord> records = make_records(parts_.store->shards(), parameters, mesh);
  append_records(parts_.optimizer->whole_states(), parameters, mesh, records);
  return records;
}

}  // namespace colossal
