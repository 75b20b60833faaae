// Does the engine run a schedule as written, and refuse one that cannot run?
#include "parallel/pipeline/schedule.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

#include <ATen/ops/full.h>

#include <string>
#include <vector>

namespace colossal {
namespace {

/// Writes down what it is asked for; the loss of micro-batch i is the batch's first_row.
class RecordingStage : public StageRunner {
 public:
  explicit RecordingStage(bool has_loss = true) : has_loss_(has_loss) {}
  Activation forward(int index, const Batch& batch) override {
    log += "F" + std::to_string(index) + " ";
    Activation out;
    if (has_loss_) {
      out.loss_sum =
          at::full({}, static_cast<double>(batch.first_row), at::kDouble).requires_grad_(true);
    }
    return out;
  }
  void backward(int index, bool last) override {
    log += "B" + std::to_string(index) + (last ? "! " : " ");
  }

  std::string log;

 private:
  bool has_loss_;
};

std::vector<Batch> batches(int count) {
  std::vector<Batch> list(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    list[static_cast<std::size_t>(i)].first_row = 10 + i;
  }
  return list;
}

std::string id_of(const std::vector<Action>& actions) {
  RecordingStage stage;
  try {
    (void)run_schedule(actions, batches(2), stage);
  } catch (const Error& error) {
    CHECK(stage.log.empty());  // refused before anything runs
    return std::string(error.id());
  }
  return "";
}

constexpr Action::Op kForward = Action::Op::forward;
constexpr Action::Op kBackward = Action::Op::backward;

TEST_CASE("one stage runs each micro-batch forward and back, in order", "[parallel]") {
  RecordingStage stage;
  const at::Tensor loss = run_schedule(one_stage_schedule(3), batches(3), stage);
  CHECK(stage.log == "F0 B0 F1 B1 F2 B2! ");
  CHECK(loss.item<double>() == 10 + 11 + 12);
  CHECK_FALSE(loss.requires_grad());
}

TEST_CASE("one micro-batch is the last at once, none is no work", "[parallel]") {
  RecordingStage stage;
  CHECK(run_schedule(one_stage_schedule(1), batches(1), stage).item<double>() == 10);
  CHECK(stage.log == "F0 B0! ");
  CHECK_FALSE(run_schedule(one_stage_schedule(0), {}, stage).defined());
}

TEST_CASE("any order with forward before backward runs; the last backward is told", "[parallel]") {
  RecordingStage stage;
  const std::vector<Action> gpipe = {{kForward, 0}, {kForward, 1}, {kBackward, 1}, {kBackward, 0}};
  CHECK(run_schedule(gpipe, batches(2), stage).item<double>() == 21);
  CHECK(stage.log == "F0 F1 B1 B0! ");
}

TEST_CASE("a stage without loss gives no loss", "[parallel]") {
  RecordingStage stage(false);
  CHECK_FALSE(run_schedule(one_stage_schedule(2), batches(2), stage).defined());
}

TEST_CASE("impossible schedules are refused before they start", "[parallel]") {
  CHECK(id_of({{kForward, 0}, {kBackward, 0}}).empty());
  CHECK(id_of({{kForward, 2}}) == "schedule-order");
  CHECK(id_of({{kForward, -1}}) == "schedule-order");
  CHECK(id_of({{kBackward, 0}}) == "schedule-order");
  CHECK(id_of({{kForward, 0}, {kForward, 0}}) == "schedule-order");
  CHECK(id_of({{kForward, 0}, {kBackward, 0}, {kBackward, 0}}) == "schedule-order");
}

}  // namespace
}  // namespace colossal
