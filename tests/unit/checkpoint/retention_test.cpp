// Which checkpoints are kept, and is one replaced without a moment in which none is there?
#include "checkpoint/detail/hdf5.hpp"
#include "unit/checkpoint/fixture.hpp"

#include <sys/resource.h>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> complete_steps(const fs::path& root) {
  std::vector<std::int64_t> steps;
  for (const CheckpointInfo& info : list_checkpoints(root)) {
    if (info.complete) {
      steps.push_back(info.step);
    }
  }
  return steps;
}

}  // namespace

TEST_CASE("steps are ordered as numbers, not as text", "[retention]") {
  const TempDir dir;
  for (const std::int64_t step : {900, 1000, 10000}) {
    save_one(dir.path(), step, small_model());
  }
  CHECK(complete_steps(dir.path()) == std::vector<std::int64_t>{1000, 10000});
  // Beyond eight digits the names are no longer equally long.
  save_one(dir.path(), 99'999'999, small_model());
  save_checkpoint(dir.path(), state_at(100'000'000), small_model(), Comm(), {});
  CHECK(complete_steps(dir.path()) == std::vector<std::int64_t>{99'999'999, 100'000'000});
  CHECK(read_file(dir.path() / "latest") == "100000000\n");
}

TEST_CASE("only complete checkpoints count, incomplete ones stay as evidence", "[retention]") {
  const TempDir dir;
  save_one(dir.path(), 1, small_model());
  save_one(dir.path(), 2, small_model());
  fs::remove(folder_of(dir.path(), 2) / "manifest.json");
  save_one(dir.path(), 3, small_model());
  CHECK(complete_steps(dir.path()) == std::vector<std::int64_t>{1, 3});
  save_one(dir.path(), 4, small_model());
  CHECK(complete_steps(dir.path()) == std::vector<std::int64_t>{3, 4});
  CHECK(fs::exists(folder_of(dir.path(), 2)));
}

TEST_CASE("what was just saved stays even if older attempts got further", "[retention]") {
  const TempDir dir;
  save_one(dir.path(), 30, small_model());
  save_one(dir.path(), 20, small_model(7), {.keep_last = 1});
  CHECK(complete_steps(dir.path()) == std::vector<std::int64_t>{20, 30});
  require_loads(folder_of(dir.path(), 20), small_model(7));
}

TEST_CASE("leftovers of interrupted saves go at the next good one", "[retention]") {
  const TempDir dir;
  fs::create_directories(dir.path() / "step-00000007.tmp-1");
  write_file(dir.path() / "step-00000007.tmp-1" / "rank-0000.h5", "half");
  fs::create_directories(dir.path() / "step-00000009.tmp-2");
  write_file(dir.path() / "step-00000009.tmp-2" / "rank-0005.h5", "of a larger world");
  save_one(dir.path(), 9, small_model(), {.keep_last = 2, .attempt = 2});
  CHECK(names_in(dir.path()) == std::vector<std::string>{"latest", "step-00000009"});
  CHECK(names_in(folder_of(dir.path(), 9)).size() == 3);
}

TEST_CASE("saving a step again replaces it", "[retention]") {
  const TempDir dir;
  save_one(dir.path(), 5, small_model(0));
  save_one(dir.path(), 5, small_model(40));
  require_loads(folder_of(dir.path(), 5), small_model(40));
  CHECK(names_in(dir.path()) == std::vector<std::string>{"latest", "step-00000005"});
}

TEST_CASE("a folder that cannot be read is not one without checkpoints", "[retention]") {
  // Permissions do not bind root, so other reasons stand for them here.
  const TempDir dir;
  write_file(dir.path() / "file", "no folder");
  fs::create_symlink(dir.path() / "loop", dir.path() / "loop");
  for (const char* name : {"file", "loop"}) {
    const fs::path root = dir.path() / name;
    for (const Failure& failure : {failure_of([&] { static_cast<void>(list_checkpoints(root)); }),
                                   failure_of([&] { static_cast<void>(choose_checkpoints(root)); }),
                                   failure_of([&] { static_cast<void>(find_checkpoint(root)); })}) {
      CHECK(failure.id == "checkpoint-unreadable");
      CHECK(failure.exit_code == 5);
      CHECK(contains(failure.text, root.string()));
    }
  }
  CHECK(contains(failure_of([&] { static_cast<void>(list_checkpoints(dir.path() / "loop")); }).text,
                 "symbolic links"));
  fs::create_directory(dir.path() / "run");
  fs::create_symlink("checkpoints", dir.path() / "run" / "checkpoints");
  CHECK(failure_of([&] { static_cast<void>(find_checkpoint(dir.path() / "run")); }).id ==
        "checkpoint-unreadable");
  CHECK(choose_checkpoints(dir.path() / "nowhere").candidates.empty());
}

TEST_CASE("a checkpoint that could not be read counted as damaged and was saved over",
          "[retention]") {
  // Permissions do not bind root: a link to itself and the limit of open files stand for them.
  const TempDir dir;
  const fs::path older = save_one(dir.path(), 1, small_model());
  const fs::path newer = save_one(dir.path(), 2, small_model());
  for (const char* name : {"manifest.json", "rank-0000.h5", "index.h5"}) {
    const fs::path file = newer / name;
    fs::rename(file, dir.path() / "away");
    fs::create_symlink(name, file);
    for (const Failure& failure :
         {failure_of([&] { static_cast<void>(choose_checkpoints(dir.path())); }),
          failure_of([&] { static_cast<void>(find_checkpoint(dir.path())); })}) {
      INFO(failure.text);
      CHECK(failure.id == "checkpoint-unreadable");
      CHECK(failure.exit_code == 5);
      CHECK(contains(failure.text, file.string()));
      CHECK(contains(failure.text, "errno 40"));
      CHECK(contains(failure.text, "\n  fix   "));
    }
    const std::vector<CheckpointInfo> found = list_checkpoints(dir.path());
    REQUIRE(found.size() == 2);
    CHECK(found[0].complete);
    CHECK(found[0].unreadable.empty());
    CHECK_FALSE(found[1].complete);
    CHECK(found[1].unreadable == "checkpoint-unreadable");
    fs::remove(file);
    // What is missing is damage: the older one takes its place.
    CHECK(choose_checkpoints(dir.path()).candidates.front().path == older);
    fs::rename(dir.path() / "away", file);
  }
  CHECK(choose_checkpoints(dir.path()).candidates.front().path == newer);
}

TEST_CASE("a checkpoint of a newer program counted as damaged and was saved over", "[retention]") {
  const TempDir dir;
  save_one(dir.path(), 1, small_model());
  const fs::path newer = save_one(dir.path(), 2, small_model());
  std::string manifest = read_file(newer / "manifest.json");
  const std::string version = "\"version\": ";
  const std::size_t at = manifest.find(version);
  REQUIRE(at != std::string::npos);
  manifest.insert(at + version.size(), "9");
  write_file(newer / "manifest.json", manifest);
  const Failure failure = failure_of([&] { static_cast<void>(choose_checkpoints(dir.path())); });
  CHECK(failure.id == "checkpoint-version");
  CHECK(failure.exit_code == 5);
  CHECK(contains(failure.text, "use the program that wrote it"));
  CHECK(list_checkpoints(dir.path()).back().unreadable == "checkpoint-version");
}

TEST_CASE("an unreadable checkpoint older than a readable one does not matter, and stays",
          "[retention]") {
  const TempDir dir;
  const fs::path older = save_one(dir.path(), 1, small_model());
  fs::rename(older / "manifest.json", dir.path() / "away");
  fs::create_symlink("manifest.json", older / "manifest.json");
  const fs::path newer = save_one(dir.path(), 2, small_model(), {.keep_last = 1});
  CHECK(choose_checkpoints(dir.path()).candidates.size() == 1);
  CHECK(find_checkpoint(dir.path()) == newer);
  CHECK(fs::exists(older / "rank-0000.h5"));
}

TEST_CASE("a limit of open files is no damage", "[retention]") {
  const TempDir dir;
  const fs::path checkpoint = save_one(dir.path(), 1, small_model());
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit nothing{0, before.rlim_max};
  std::vector<CheckpointInfo> found;
  ::setrlimit(RLIMIT_NOFILE, &nothing);
  const Failure state = failure_of([&] { static_cast<void>(read_state(checkpoint)); });
  const Failure list = failure_of([&] { found = list_checkpoints(dir.path()); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(state.id == "checkpoint-unreadable");
  CHECK(contains(state.text, "errno 24"));
  CHECK(list.id == "checkpoint-unreadable");
  CHECK(found.empty());
}

TEST_CASE("a file of tensors that cannot be opened is no damage, one that is none is",
          "[retention]") {
  const TempDir dir;
  const fs::path file = dir.path() / "rank-0000.h5";
  const auto failure = [&] {
    return failure_of([&] { const detail::H5File opened(file, detail::H5Access::read); });
  };
  CHECK(failure().id == "checkpoint-incomplete");
  write_file(file, "no tensors");
  CHECK(failure().id == "checkpoint-incomplete");
  fs::remove(file);
  fs::create_symlink("rank-0000.h5", file);
  CHECK(failure().id == "checkpoint-unreadable");
  CHECK(contains(failure().text, "errno 40"));
}

TEST_CASE("foreign folders and files are not checkpoints", "[retention]") {
  const TempDir dir;
  for (const char* name : {"step-", "step-12x", "step-00000001.old", "best", "step-3.tmp-1"}) {
    fs::create_directories(dir.path() / name);
  }
  CHECK(list_checkpoints(dir.path()).empty());
  CHECK(list_checkpoints(dir.path() / "nowhere").empty());
  save_one(dir.path(), 1, small_model());
  CHECK(fs::exists(dir.path() / "best"));
  CHECK(fs::exists(dir.path() / "step-12x"));
}

TEST_CASE("checkpoints of steps that keep_every divides are never removed", "[retention]") {
  const TempDir dir;
  for (const std::int64_t step : {2, 4, 6, 8, 10, 12, 14, 100, 1000}) {
    save_one(dir.path(), step, small_model(), {.keep_last = 2, .keep_every = 6});
  }
  CHECK(complete_steps(dir.path()) == std::vector<std::int64_t>{6, 12, 100, 1000});
  save_one(dir.path(), 1001, small_model(), {.keep_last = 1, .keep_every = 1});
  CHECK(complete_steps(dir.path()) == std::vector<std::int64_t>{6, 12, 100, 1000, 1001});
  save_one(dir.path(), 1002, small_model(), {.keep_last = 1});  // the rule of now holds
  CHECK(complete_steps(dir.path()) == std::vector<std::int64_t>{1002});
}

TEST_CASE("the best checkpoint stays beside the newest", "[retention]") {
  struct Row {
    bool highest;
    std::vector<std::int64_t> kept;
  };
  // Step 50 was not evaluated, 60 equals the best so far: the newer one of equals stays.
  const std::vector<std::pair<std::int64_t, std::optional<double>>> values = {
      {9, 3.0}, {10, 1.5}, {20, 2.0}, {30, 4.0}, {40, 2.5}, {50, std::nullopt}, {60, 1.5}, {70, 9}};
  for (const Row& row : {Row{false, {60, 80}}, Row{true, {70, 80}}}) {
    const TempDir dir;
    const auto save = [&](std::int64_t step, std::optional<double> value) {
      RunState state = state_at(step);
      state.metrics = {{"train/loss", static_cast<double>(-step)}};
      if (value) {
        state.metrics["eval/loss"] = *value;
      }
      save_checkpoint(dir.path(),
                      state,
                      small_model(),
                      Comm(),
                      {.keep_last = 1, .keep_best = BestRule{"eval/loss", row.highest}});
    };
    std::vector<std::int64_t> best_so_far;
    for (const auto& [step, value] : values) {
      save(step, value);
      CHECK(complete_steps(dir.path()).back() == step);
      best_so_far.push_back(complete_steps(dir.path()).front());
    }
    const std::vector<std::int64_t> lowest = {9, 10, 10, 10, 10, 10, 60, 60};
    const std::vector<std::int64_t> highest = {9, 9, 9, 30, 30, 30, 30, 70};
    CHECK(best_so_far == (row.highest ? highest : lowest));
    save(80, std::nullopt);
    CHECK(complete_steps(dir.path()) == row.kept);
  }
}

TEST_CASE("what was measured of a checkpoint is read back", "[retention]") {
  const TempDir dir;
  RunState state = state_at(5);
  state.metrics = {{"eval/loss", 1.0 / 3}, {"train/loss", -0.0}};
  save_checkpoint(dir.path(), state, small_model(), Comm(), {});
  CHECK(read_state(folder_of(dir.path(), 5)) == state);
  CHECK(read_state(save_one(dir.path(), 6, small_model())).metrics.empty());
}

TEST_CASE("a writer that does not commit leaves the older checkpoint and nothing else",
          "[retention]") {
  const TempDir dir;
  save_one(dir.path(), 1, small_model());
  {
    CheckpointWriter writer(dir.path(), state_at(2), Comm(), {.keep_last = 1});
    CHECK(names_in(dir.path()) ==
          std::vector<std::string>{"latest", "step-00000001", "step-00000002.tmp-1"});
    writer.write(small_model(3));
    // Written, but not committed: nothing of it can be seen yet.
    CHECK(complete_steps(dir.path()) == std::vector<std::int64_t>{1});
    CHECK(read_file(dir.path() / "latest") == "1\n");
  }
  CHECK(names_in(dir.path()) == std::vector<std::string>{"latest", "step-00000001"});
  require_loads(folder_of(dir.path(), 1), small_model());
}

}  // namespace colossal::test
