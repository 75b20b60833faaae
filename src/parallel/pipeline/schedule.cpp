// How is a schedule executed, and what may it not ask for?
#include "parallel/pipeline/schedule.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <ranges>

namespace colossal {
namespace {

enum class Progress : std::uint8_t { waiting, forward_done, backward_done };

/// Each micro-batch may go forward once, and backward once after that.
void check_order(const std::vector<Action>& actions, std::size_t num_micro_batches) {
  std::vector<Progress> progress(num_micro_batches, Progress::waiting);
  for (const Action& action : actions) {
    const auto index = static_cast<std::size_t>(action.micro_batch);
    check(action.micro_batch >= 0 && index < num_micro_batches,
          ErrorKind::internal,
          "schedule-order",
          "the schedule names micro-batch {} of {}",
          action.micro_batch,
          num_micro_batches);
    const bool forward = action.op == Action::Op::forward;
    check(progress[index] == (forward ? Progress::waiting : Progress::forward_done),
          ErrorKind::internal,
          "schedule-order",
          "the schedule asks for {} of micro-batch {} at the wrong time",
          forward ? "forward" : "backward",
          action.micro_batch);
    progress[index] = forward ? Progress::forward_done : Progress::backward_done;
  }
}

bool is_backward(const Action& action) {
  return action.op == Action::Op::backward;
}

}  // namespace

std::vector<Action> one_stage_schedule(int micro_batches) {
  std::vector<Action> actions;
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    actions.push_back({Action::Op::forward, micro_batch});
    actions.push_back({Action::Op::backward, micro_batch});
  }
  return actions;
}

at::Tensor run_schedule(const std::vector<Action>& actions,
                        const std::vector<Batch>& micro_batches,
                        StageRunner& stage) {
  check_order(actions, micro_batches.size());
  auto backwards_left = std::ranges::count_if(actions, is_backward);
  at::Tensor total;
  for (const Action& action : actions) {
    if (is_backward(action)) {
      stage.backward(action.micro_batch, --backwards_left == 0);
      continue;
    }
    const Batch& batch = micro_batches[static_cast<std::size_t>(action.micro_batch)];
    const at::Tensor loss = stage.forward(action.micro_batch, batch).loss_sum;
    if (loss.defined()) {
      const at::Tensor part =
          batch.loss.weight == 1 ? loss.detach() : loss.detach().mul(batch.loss.weight);
      total = total.defined() ? total.add(part) : part;
    }
  }
  return total;
}

}  // namespace colossal
