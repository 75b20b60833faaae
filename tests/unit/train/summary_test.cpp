// What does the end of a run say to people, and what to programs?
#include "train/summary.hpp"

#include "support/catch.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace colossal {
namespace {

RunSummary finished() {
  RunSummary summary;
  summary.reason = "finished";
  summary.step = 1200;
  summary.total_steps = 1200;
  summary.loss = 1.25;
  summary.seconds = 61.25;
  summary.startup_seconds = 0.456;
  summary.hook_share = 0.00034;
  summary.output_dir = "runs/a";
  summary.checkpoint = "runs/a/checkpoints/step-00001200";
  return summary;
}

bool says(const RunSummary& summary, const std::string& part) {
  const std::string text = to_text(summary);
  INFO(text << "\nlacks " << part);
  return text.find(part) != std::string::npos;
}

TEST_CASE("the end says how far, how long and where", "[summary]") {
  const std::string text = to_text(finished());
  INFO(text);
  CHECK(text.starts_with("end       finished at step 1200 of 1200\n"));
  CHECK(says(finished(),
             "time      61.2 s in all, 0.46 s from process start to first step, 0.03% of the loop "
             "in hooks\n"));
  CHECK(says(finished(), "metrics   loss 1.2500\n"));
  CHECK(says(finished(), "saved     runs/a/checkpoints/step-00001200\n"));
  CHECK_FALSE(text.ends_with("\n"));
}

TEST_CASE("a model of text is judged by its perplexity, a classifier by its hits", "[summary]") {
  RunSummary summary = finished();
  summary.eval_loss = std::log(8.0);
  CHECK(says(summary, "loss 1.2500, validation loss 2.0794 (perplexity 8.00)\n"));
  CHECK_FALSE(nlohmann::json::parse(to_json_line(summary)).contains("eval_accuracy"));
  summary.eval_accuracy = 0.98765;
  CHECK(says(summary, "validation loss 2.0794 (accuracy 98.77%)\n"));
  CHECK(nlohmann::json::parse(to_json_line(summary)).at("eval_accuracy") == 0.98765);
  summary.loss.reset();  // an evaluation alone, as after a resume at the last step
  CHECK(says(summary, "metrics   validation loss 2.0794"));
}

TEST_CASE("what comes next can be copied into a shell, and only what works is offered",
          "[summary]") {
  RunSummary summary = finished();
  CHECK(says(summary, " eval --checkpoint runs/a "));
  CHECK(says(summary, " inspect runs/a --tensors "));
  CHECK_FALSE(says(summary, "generate"));
  summary.generates = true;
  CHECK(says(summary, " generate --checkpoint runs/a --prompt \"And \""));
  summary.checkpoint.clear();
  CHECK(says(summary, "saved     nothing\n"));
  CHECK(says(summary, "nothing to continue"));
  CHECK_FALSE(says(summary, "--checkpoint"));
}

TEST_CASE("numbers that are none are null in the JSON line", "[summary]") {
  RunSummary summary = finished();
  summary.loss = std::numeric_limits<double>::quiet_NaN();
  summary.eval_loss.reset();
  const std::string line = to_json_line(summary);
  CHECK(line.find('\n') == std::string::npos);
  const auto json = nlohmann::json::parse(line);
  CHECK(json.at("loss").is_null());
  CHECK(json.at("eval_loss").is_null());
  CHECK(json.at("step") == 1200);
  CHECK(json.at("checkpoint") == "runs/a/checkpoints/step-00001200");
  CHECK(json.at("seconds") == 61.25);
}

}  // namespace
}  // namespace colossal
