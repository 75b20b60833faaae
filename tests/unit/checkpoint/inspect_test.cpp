// Does inspect say what is in a checkpoint, that it is damaged, and how two differ?
#include "unit/checkpoint/fixture.hpp"

#include <limits>
#include <nlohmann/json.hpp>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

InspectOptions ask(bool tensors, bool verify) {
  InspectOptions options;
  options.tensors = tensors;
  options.verify = verify;
  return options;
}

InspectOptions against(const fs::path& other) {
  InspectOptions options;
  options.diff = other;
  return options;
}

nlohmann::json inspect_json(const fs::path& path, InspectOptions options) {
  options.json = true;
  return nlohmann::json::parse(inspect(path, options));
}

}  // namespace

TEST_CASE("inspect shows run state, sizes and tensors", "[inspect]") {
  const TempDir dir;
  const fs::path checkpoint = save_one(dir.path(), 40, small_model());
  const std::string brief = inspect(checkpoint, {});
  INFO(brief);
  CHECK(contains(brief, checkpoint.string()));
  CHECK(contains(brief, "40 (attempt 2), 1,280 samples consumed, 1 update skipped"));
  CHECK(contains(brief, "B, written by 1 rank\n"));
  CHECK(contains(brief, "2 model, 1 optim; 100 elements"));
  CHECK(contains(brief, "build-4567"));
  CHECK(contains(brief, "data-0123"));
  CHECK_FALSE(contains(brief, "head.weight"));
  const std::string table = inspect(checkpoint, ask(true, false));
  CHECK(contains(table, "model/head.weight"));
  CHECK(contains(table, "[5, 3, 2]"));
  CHECK(contains(table, "float32"));
}

TEST_CASE("inspect tells what was measured, and what cannot be verified", "[inspect]") {
  const TempDir dir;
  RunState state = state_at(6);
  state.metrics = {{"eval/loss", 2.5}, {"train/loss", 2.25}};
  save_checkpoint(dir.path(), state, small_model(), Comm(), {.checksum = false});
  const fs::path checkpoint = folder_of(dir.path(), 6);
  const std::string text = inspect(checkpoint, ask(false, true));
  INFO(text);
  CHECK(contains(text, "\nmetrics     eval/loss 2.5, train/loss 2.25\n"));
  CHECK(contains(text, "verified    3 boxes, 3 of them without a checksum: readable"));
  const nlohmann::json json = inspect_json(checkpoint, ask(false, true));
  CHECK(json.at("state").at("metrics").at("eval/loss") == 2.5);
  CHECK(json.at("unchecked_boxes") == 3);
  CHECK_FALSE(contains(inspect(save_one(dir.path(), 7, small_model()), {}), "metrics"));
}

TEST_CASE("inspect as JSON holds everything", "[inspect]") {
  const TempDir dir;
  const fs::path checkpoint = save_one(dir.path(), 40, small_model());
  const nlohmann::json json = inspect_json(checkpoint, ask(true, true));
  CHECK(json.at("state").at("step") == 40);
  CHECK(json.at("state").at("config_yaml") == state_at(40).config_yaml);
  CHECK(json.at("num_tensors") == 3);
  CHECK(json.at("world_size") == 1);
  CHECK(json.at("verified_boxes") == 3);
  CHECK(json.at("tensors").at(1).at("shape") == nlohmann::json({5, 3, 2}));
  CHECK_FALSE(inspect_json(checkpoint, {}).contains("tensors"));
}

TEST_CASE("inspect finds the newest checkpoint of a run", "[inspect]") {
  const TempDir dir;
  const fs::path root = dir.path() / "checkpoints";
  const Failure none = failure_of([&] { static_cast<void>(inspect(dir.path(), {})); });
  CHECK(none.id == "checkpoint-none");
  CHECK(none.exit_code == 5);
  CHECK(contains(none.text, dir.path().string()));
  save_one(root, 900, small_model());
  save_one(root, 1000, small_model());
  CHECK(inspect_json(dir.path(), {}).at("state").at("step") == 1000);
  CHECK(inspect_json(root, {}).at("state").at("step") == 1000);

  fs::remove(folder_of(root, 1000) / "rank-0000.h5");
  const Failure damaged = failure_of([&] { static_cast<void>(inspect(dir.path(), {})); });
  CHECK(damaged.id == "checkpoint-incomplete");
  CHECK(contains(damaged.text, "rank-0000.h5"));
  CHECK(contains(damaged.text, folder_of(root, 900).string()));
  CHECK(failure_of([&] { static_cast<void>(inspect(folder_of(root, 1000) / "", {})); }).id ==
        "checkpoint-incomplete");
  fs::remove(folder_of(root, 900) / "manifest.json");
  const Failure hopeless = failure_of([&] { static_cast<void>(inspect(dir.path(), {})); });
  CHECK(hopeless.id == "checkpoint-damaged");
  CHECK(contains(hopeless.text, folder_of(root, 900).string() + ": "));
  CHECK(contains(hopeless.text, folder_of(root, 1000).string() + ": "));
}

TEST_CASE("verify reads every byte", "[inspect]") {
  const TempDir dir;
  const std::vector<TensorRecord> records = small_model();
  const fs::path checkpoint = save_one(dir.path(), 1, records);
  CHECK(contains(inspect(checkpoint, ask(false, true)), "3 boxes, every checksum is right"));
  std::string bytes = read_file(checkpoint / "rank-0000.h5");
  const std::string values(static_cast<const char*>(records[2].local.const_data_ptr()),
                           records[2].local.nbytes());
  bytes[bytes.find(values)] ^= 1;
  write_file(checkpoint / "rank-0000.h5", bytes);
  CHECK_NOTHROW(inspect(checkpoint, {}));
  const Failure failure =
      failure_of([&] { static_cast<void>(inspect(checkpoint, ask(false, true))); });
  CHECK(failure.id == "checkpoint-checksum");
  CHECK(contains(failure.text, "optim/exp_avg/embed.weight"));
}

TEST_CASE("diff of equal checkpoints says so", "[inspect]") {
  const TempDir dir;
  const fs::path a = save_one(dir.path() / "a", 1, small_model());
  const fs::path b = save_one(dir.path() / "b", 1, small_model());
  CHECK(contains(inspect(a, against(b)), "equal: all 3 tensors have equal values"));
  CHECK(inspect_json(a, against(b)).at("diff").at("equal") == true);
}

TEST_CASE("diff names tensors, shapes and the largest distance", "[inspect]") {
  const TempDir dir;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  at::Tensor changed = counting({3, 4});
  changed[1][2] += 0.25;
  at::Tensor with_nan = counting({2});
  with_nan[0] = nan;
  TensorRecord split = whole("model/same", counting({4, 2}));
  split.regions = {{{2, 0}, {2, 0}, {2, 2}}, {{0, 0}, {0, 0}, {2, 2}}};
  const fs::path a = save_one(dir.path() / "a",
                              1,
                              {whole("model/changed", counting({3, 4})),
                               whole("model/nan", counting({2})),
                               whole("model/both-nan", with_nan),
                               whole("model/same", counting({4, 2})),
                               whole("model/shape", counting({2, 2})),
                               whole("model/left", counting({1}))});
  const fs::path b = save_one(dir.path() / "b",
                              2,
                              {whole("model/changed", changed),
                               whole("model/nan", with_nan),
                               whole("model/both-nan", with_nan.clone()),
                               split,
                               whole("model/shape", counting({4})),
                               whole("model/right", counting({1}))});
  const nlohmann::json diff = inspect_json(a, against(b)).at("diff");
  CHECK(diff.at("equal") == false);
  CHECK(diff.at("only_here") == nlohmann::json({"model/left"}));
  CHECK(diff.at("only_there") == nlohmann::json({"model/right"}));
  CHECK(contains(diff.at("shapes").at(0), "model/shape: [2, 2] here, [4] there"));
  CHECK(diff.at("max_difference").size() == 2);
  CHECK(diff.at("max_difference").at("model/changed") == 0.25);
  CHECK(diff.at("max_difference").at("model/nan").is_null());
  const std::string text = inspect(a, against(b));
  INFO(text);
  CHECK(contains(text, "only here   model/left"));
  CHECK(contains(text, "only there  model/right"));
  CHECK(contains(text, "0.25"));
  CHECK(contains(text, "2 tensors have equal values"));
}

}  // namespace colossal::test
