// Do the parts of a run fit their configuration?
#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/trainer.hpp"

#include <ATen/Parallel.h>

#include <thread>

namespace colossal::test {

TEST_CASE("all parts are built; groups follow no_decay", "[build]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  const TrainerParts parts = build(config, context, {});
  CHECK(parts.blocks.size() >= 3);
  CHECK(parts.total_steps == 6);
  CHECK(parts.eval_data == nullptr);
  const std::span<Parameter* const> parameters = parts.store->parameters();
  REQUIRE(parts.groups.size() == parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i]->spec().name;
    const bool decays = name.find("norm") == std::string::npos && !name.ends_with(".bias");
    INFO(name);
    CHECK(parts.groups[i].weight_decay == (decays ? 0.1 : 0.0));
  }
}

TEST_CASE("epochs become steps once the data is known", "[build]") {
  Config config = tiny_gpt();
  config.train.steps.reset();
  config.train.epochs = 2;
  const ParallelContext context(config);
  CHECK(build(config, context, {}).total_steps == 10);
}

TEST_CASE("the loader starts at the state's position", "[build]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  const TrainerParts whole = build(config, context, {});
  static_cast<void>(whole.loader->next());
  const TrainerParts resumed = build(config, context, state_at(1, 16));
  CHECK(resumed.loader->next().data_hash == whole.loader->next().data_hash);
}

TEST_CASE("missing data stops before any memory is taken", "[build]") {
  const TempDir folder;
  Config config = tiny_text_gpt(folder.path());
  config.data.train = {{.path = (folder.path() / "absent.txt").string()}};
  const ParallelContext context(config);
  try {
    static_cast<void>(build(config, context, {}));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
  }
}

TEST_CASE("threads are shared fairly unless given", "[build]") {
  RunConfig run;
  run.threads = 3;
  set_threads(run, 1);
  CHECK(at::get_num_threads() == 3);
  CHECK(at::get_num_interop_threads() == 1);
  run.threads.reset();
  set_threads(run, 1000);
  CHECK(at::get_num_threads() == 1);
  set_threads(run, 1);
  CHECK(at::get_num_threads() == static_cast<int>(std::thread::hardware_concurrency()));
  at::set_num_threads(1);  // for the tests that follow
}

}  // namespace colossal::test
