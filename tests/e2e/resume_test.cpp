// Does a continued run equal an unbroken one, and is every other continuation refused?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <signal.h>
#include <thread>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// Stops a run after step 6 the hard way a scheduler does: everything later is missing.
void run_half(const fs::path& run_dir, const Arguments& more = {}) {
  run_expecting(0, train_tiny(run_dir, more));
  fs::remove_all(checkpoint(run_dir, 12));
}

/// The largest difference of any tensor of two checkpoints; fails the test if they are not alike.
double largest_difference(const fs::path& a, const fs::path& b) {
  const Outcome outcome =
      run_expecting(0, {"inspect", a.string(), "--diff", b.string(), "--format", "json"});
  const Json diff = Json::parse(outcome.out).at("diff");
  REQUIRE(diff.at("only_here").empty());
  REQUIRE(diff.at("only_there").empty());
  REQUIRE(diff.at("shapes").empty());
  double largest = 0;
  for (const auto& [name, distance] : diff.at("max_difference").items()) {
    largest = std::max(largest, distance.get<double>());
  }
  return largest;
}

}  // namespace

TEST_CASE("lion and adafactor go on bit-equal, also from another layout", "[resume][optimizers]") {
  for (const std::string type : {"lion", "adafactor"}) {
    const TempDir folder;
    const fs::path whole = folder.path() / "whole";
    const fs::path halves = folder.path() / "halves";
    const fs::path moved = folder.path() / "moved";
    const Arguments own = {"--set", "optimizer={type: " + type + ", lr: 3e-3, weight_decay: 0.1}"};
    const Arguments sharded =
        joined({own, {"--nproc", "2", "--set", "parallel.zero={stage: 2, offload: optimizer}"}});
    run_expecting(0, train_tiny(whole, sharded));
    run_half(halves, sharded);
    run_expecting(0, train_tiny(halves, sharded));
    require_same_losses(whole, halves, 0);
    require_same_tensors(checkpoint(whole, 12), checkpoint(halves, 12));
    run_half(moved, sharded);
    run_expecting(0, train_tiny(moved, own));  // one process, nothing sharded
    require_same_losses(whole, moved, type == "lion" ? 1e-3 : 1e-5);  // it sees signs
    const Outcome shown =
        run_expecting(0, {"inspect", checkpoint(whole, 12).string(), "--tensors"});
    CHECK((count(shown.out, "optim/exp_avg/") > 3) == (type == "lion"));
    CHECK((count(shown.out, "optim/exp_avg_sq_row/") > 3) == (type == "adafactor"));
  }
}

TEST_CASE("a resumed run is bit-equal to an unbroken one", "[resume]") {
  const TempDir folder;
  const fs::path whole = folder.path() / "whole";
  const fs::path halves = folder.path() / "halves";
  run_expecting(0, train_tiny(whole, {"--nproc", "2"}));
  run_half(halves, {"--nproc", "2"});
  const Outcome second = run_expecting(0, train_tiny(halves, {"--nproc", "2"}));
  require_same_losses(whole, halves, 0);
  CHECK(largest_difference(checkpoint(whole, 12), checkpoint(halves, 12)) == 0);
  CHECK(records(halves).at(7).at("attempt") == 2);
  CHECK(records(halves, "resume").at(6).at("attempt") == 2);
  CHECK(count(second.err, "resume    step 7 from ") == 1);
  CHECK(count(second.err, "step-00000006: lr 8.7500e-03, epoch 0, sample 48 of 56") == 1);
}

TEST_CASE("a run continues on other numbers of processes", "[resume]") {
  const TempDir folder;
  const fs::path whole = folder.path() / "whole";
  const fs::path moved = folder.path() / "moved";
  const auto on = [](const fs::path& run_dir, const char* processes) {
    return train_tiny(run_dir,
                      {"--nproc",
                       processes,
                       "--set",
                       "checkpoint.every_steps=4",
                       "--set",
                       "train.precision=fp64"});
  };
  run_expecting(0, on(whole, "1"));
  run_expecting(0, on(moved, "2"));
  fs::remove_all(checkpoint(moved, 12));
  fs::remove_all(checkpoint(moved, 8));
  run_expecting(0, on(moved, "1"));  // from step 4
  fs::remove_all(checkpoint(moved, 12));
  const Outcome last = run_expecting(0, on(moved, "4"));  // from step 8
  require_same_losses(whole, moved, 1e-9);
  CHECK(largest_difference(checkpoint(whole, 12), checkpoint(moved, 12)) < 1e-9);
  CHECK(count(last.err, "parallel.data") == 1);  // the table of differences
}

TEST_CASE("a run killed at any moment continues to the same end", "[resume]") {
  const TempDir folder;
  const fs::path whole = folder.path() / "whole";
  const fs::path killed = folder.path() / "killed";
  const Arguments more = {"--nproc", "2", "--set", "checkpoint.every_steps=2"};
  run_expecting(0, train_tiny(whole, more));
  for (const char* moment : {"step  3/12", "step  7/12"}) {
    Program program(train_tiny(killed, more));
    program.await_stderr(moment);
    program.send(SIGKILL);
    program.wait();
  }
  run_expecting(0, train_tiny(killed, more));
  require_same_losses(whole, killed, 0);
  CHECK(largest_difference(checkpoint(whole, 12), checkpoint(killed, 12)) == 0);
}

TEST_CASE("a finished run has nothing to do", "[resume]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path()));
  const std::string metrics = read_file(folder.path() / "metrics.jsonl");
  for (const char* mode : {"auto", "require"}) {
    const Outcome again = run_expecting(0, train_tiny(folder.path(), {"--resume", mode}));
    CHECK(count(again.err, "nothing to do") == 1);
    CHECK(count(again.err, "[output-finished]") == 1);
  }
  CHECK(read_file(folder.path() / "metrics.jsonl") == metrics);
  const Outcome longer =
      run_expecting(0, train_tiny(folder.path(), {"--set", "train.steps=14", "--nproc", "2"}));
  CHECK(last_line(longer).at("step") == 14);
}

TEST_CASE("a new learning rate acts on the first resumed step", "[resume]") {
  const TempDir folder;
  const Arguments constant = {"--set", "scheduler={type: constant}"};
  run_half(folder.path(), constant);
  Arguments changed = constant;
  changed.insert(changed.end(),
                 {"--set", "optimizer.lr=5e-4", "--set", "optimizer.weight_decay=0"});
  const Outcome outcome = run_expecting(0, train_tiny(folder.path(), changed));
  CHECK(records(folder.path()).at(6).at("lr") == 1e-2);
  CHECK(records(folder.path()).at(7).at("lr") == 5e-4);
  CHECK(count(outcome.err, "optimizer.lr") == 1);
  CHECK(count(outcome.err, "optimizer.weight_decay") == 1);
  CHECK(count(outcome.err, "key ") >= 1);
}

TEST_CASE("another model is refused by name", "[resume]") {
  const TempDir folder;
  run_half(folder.path());
  for (const char* processes : {"1", "2"}) {
    const Outcome outcome = run_expecting(
        5, train_tiny(folder.path(), {"--nproc", processes, "--set", "model.hidden_size=48"}));
    CHECK(times_told(outcome, "[resume-mismatch]") == 1);
    CHECK(count(outcome.err, "model.hidden_size") >= 1);
    CHECK(count(outcome.err, "48") >= 1);
  }
}

TEST_CASE("another batch needs --allow", "[resume]") {
  const TempDir folder;
  run_half(folder.path());
  const Arguments batch = {"--set", "train.global_batch_size=4"};
  const Outcome refused = run_expecting(5, train_tiny(folder.path(), batch));
  CHECK(count(refused.err, "[resume-needs-allow]") == 1);
  CHECK(count(refused.err, "--allow train.global_batch_size") == 1);
  Arguments allowed = batch;
  allowed.insert(allowed.end(), {"--allow", "train.global_batch_size"});
  run_expecting(0, train_tiny(folder.path(), allowed));
}

TEST_CASE("data that moved are the same data", "[resume]") {
  const TempDir folder;
  const fs::path config = folder.path() / "text.yaml";
  write_file(config, read_file(data_file("text.yaml")));
  write_file(folder.path() / "train.txt", std::string(500, 'a') + std::string(500, 'b'));
  Arguments train = {"train",
                     config.string(),
                     "--output-dir",
                     (folder.path() / "run").string(),
                     "--set",
                     "checkpoint.every_steps=1"};
  run_expecting(0, train);
  fs::remove_all(checkpoint(folder.path() / "run", 2));
  const fs::path moved = folder.path() / "elsewhere" / "other-name.txt";
  fs::create_directories(moved.parent_path());
  fs::rename(folder.path() / "train.txt", moved);
  train.insert(train.end(), {"--set", "data.train=[" + moved.string() + "]"});
  const Outcome outcome = run_expecting(0, train);
  CHECK(last_line(outcome).at("step") == 2);
  CHECK(count(outcome.err, "data.train") == 1);  // in the table of differences
  CHECK(count(outcome.err, "free to change") == 1);
  CHECK(count(outcome.err, "data.fingerprint") == 0);
}

TEST_CASE("data that changed under a run need --allow", "[resume]") {
  const TempDir folder;
  write_file(folder.path() / "text.yaml", read_file(data_file("text.yaml")));
  write_file(folder.path() / "train.txt", std::string(1000, 'a'));
  Arguments train = {"train",
                     (folder.path() / "text.yaml").string(),
                     "--output-dir",
                     (folder.path() / "run").string(),
                     "--set",
                     "checkpoint.every_steps=1"};
  run_expecting(0, train);
  fs::remove_all(checkpoint(folder.path() / "run", 2));
  write_file(folder.path() / "train.txt", std::string(1000, 'b'));
  const Outcome refused = run_expecting(5, train);
  CHECK(count(refused.err, "[resume-needs-allow]") == 1);
  train.insert(train.end(), {"--allow", "data.fingerprint"});
  run_expecting(0, train);
}

TEST_CASE("a damaged checkpoint is never skipped in silence", "[resume]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir, {"--nproc", "2"}));

  SECTION("one manifest is gone: the older one serves, the loss is named") {
    fs::rename(checkpoint(run_dir, 12) / "manifest.json", checkpoint(run_dir, 12) / "lost");
    const Outcome outcome = run_expecting(0, train_tiny(run_dir, {"--nproc", "2"}));
    CHECK(count(outcome.err, "steps 7 to 12 are lost") == 1);
    CHECK(last_line(outcome).at("step") == 12);
  }
  SECTION("a flipped byte is found while reading") {
    flip_bytes(checkpoint(run_dir, 12) / "rank-0000.h5");
    const Outcome outcome =
        run_expecting(0, train_tiny(run_dir, {"--nproc", "2", "--set", "train.steps=13"}));
    CHECK(count(outcome.err, "passed over") >= 1);
    CHECK(last_line(outcome).at("step") == 13);
  }
  SECTION("all manifests are gone") {
    for (const int step : {6, 12}) {
      fs::rename(checkpoint(run_dir, step) / "manifest.json", checkpoint(run_dir, step) / "lost");
    }
    for (const char* mode : {"auto", "require"}) {
      const Outcome outcome =
          run_expecting(5, train_tiny(run_dir, {"--nproc", "2", "--resume", mode}));
      CHECK(times_told(outcome, "[checkpoint-damaged]") == 1);
      CHECK(count(outcome.err, "step-00000006") >= 1);
      CHECK(count(outcome.err, "step-00000012") >= 1);
    }
  }
  SECTION("a rank file is gone from all") {
    for (const int step : {6, 12}) {
      fs::remove(checkpoint(run_dir, step) / "rank-0000.h5");
    }
    const Outcome outcome = run_expecting(5, train_tiny(run_dir, {"--nproc", "2"}));
    CHECK(count(outcome.err, "rank-0000.h5") >= 1);
  }
  SECTION("every checkpoint has a flipped byte") {
    for (const int step : {6, 12}) {
      flip_bytes(checkpoint(run_dir, step) / "rank-0000.h5");
    }
    const Outcome outcome =
        run_expecting(5, train_tiny(run_dir, {"--nproc", "2", "--set", "train.steps=13"}));
    CHECK(times_told(outcome, "[checkpoint-damaged]") == 1);
  }
}

TEST_CASE("a part that one rank wrote is missing: no rank goes on without it", "[resume]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const auto train = [&](const char* steps) {
    return train_tiny(run_dir,
                      {"--nproc",
                       "2",
                       "--set",
                       "parallel.zero.stage=1",
                       "--set",
                       std::string("train.steps=") + steps});
  };
  run_expecting(0, train("12"));
  fs::remove(checkpoint(run_dir, 12) / "rank-0001.h5");

  SECTION("of the newest checkpoint: the older one serves") {
    const Outcome outcome = run_expecting(0, train("12"));
    INFO(outcome.err);
    CHECK(count(outcome.err, "rank-0001.h5 is missing") == 1);
    CHECK(count(outcome.err, "steps 7 to 12 are lost") == 1);
    CHECK(last_line(outcome).at("step") == 12);
    CHECK(fs::exists(checkpoint(run_dir, 12) / "rank-0001.h5"));
  }
  SECTION("of all: exit code 5 soon, told once") {
    fs::remove(checkpoint(run_dir, 6) / "rank-0001.h5");
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = run_expecting(5, train("13"));
    INFO(outcome.err);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
    CHECK(times_told(outcome, "[checkpoint-damaged]") == 1);
    CHECK(times_told(outcome, "rank-0001.h5 is missing") == 2);  // in each of the two
    CHECK(Json::parse(read_file(run_dir / "status.json")).at("exit") == 5);
  }
}

TEST_CASE("a run that is stopped again and again keeps no more checkpoints than it may",
          "[resume]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const Arguments more = {"--set",
                          "checkpoint={every_steps: 50, keep_last: 2}",
                          "--set",
                          "scheduler={type: constant}",
                          "--set",
                          "logging.every_steps=50"};
  const auto with = [&](const std::string& steps) {
    Arguments arguments = more;
    arguments.insert(arguments.end(), {"--set", "train.steps=" + steps});
    return train_tiny(run_dir, arguments);
  };
  std::vector<std::string> seen;
  for (int start = 0; start < 5; ++start) {
    Program program(with("1M"));
    program.await_stderr("-> checkpoints/step-");
    program.send(SIGTERM);
    const Outcome outcome = program.wait();
    INFO(outcome.err);
    CHECK(outcome.code == 75);
    CHECK(count(outcome.err, "resume    step ") == (start == 0 ? 0 : 1));
    const std::vector<std::string> kept = stored(run_dir);
    CHECK(kept.size() <= 2);
    REQUIRE_FALSE(kept.empty());
    CHECK((seen.empty() || kept.back() > seen.back()));  // each start has saved anew
    seen = kept;
  }
  const int last = std::stoi(seen.back().substr(5));
  run_expecting(0, with(std::to_string(last + 50)));
  CHECK(stored(run_dir).size() == 2);
  CHECK(stored(run_dir, "").size() == 3);  // and `latest`: a save that was cut off leaves nothing
}

TEST_CASE("resume modes decide as their table says", "[resume]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const Outcome missing = run_expecting(5, train_tiny(run_dir, {"--resume", "require"}));
  CHECK(count(missing.err, "[checkpoint-required]") == 1);
  run_half(run_dir, {"--resume", "never"});
  const Outcome exists = run_expecting(3, train_tiny(run_dir, {"--resume", "never"}));
  CHECK(count(exists.err, "[output-exists]") == 1);

  const fs::path other = folder.path() / "other";
  run_expecting(0, train_tiny(other, {"--resume", checkpoint(run_dir, 6).string()}));
  CHECK(records(other).begin()->first == 7);
  const Outcome mixed =
      run_expecting(3, train_tiny(other, {"--resume", checkpoint(run_dir, 6).string()}));
  CHECK(count(mixed.err, "[output-exists]") == 1);
  const Outcome nowhere = run_expecting(
      5, train_tiny(folder.path() / "new", {"--resume", (folder.path() / "nowhere").string()}));
  CHECK(count(nowhere.err, "[checkpoint-none]") == 1);
}

TEST_CASE("--overwrite starts anew and keeps the old run aside", "[resume]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir));
  run_expecting(0, train_tiny(run_dir, {"--overwrite", "--nproc", "2"}));
  CHECK(records(run_dir).begin()->first == 1);
  CHECK(records(run_dir).at(1).at("attempt") == 1);
  CHECK(records(fs::path(run_dir.string() + ".old-1")).size() == 12);
  run_expecting(0, train_tiny(run_dir, {"--overwrite"}));
  CHECK(fs::exists(run_dir.string() + ".old-2"));

  const fs::path foreign = folder.path() / "foreign";
  fs::create_directories(foreign);
  write_file(foreign / "thesis.txt", "four years");
  for (int again = 0; again < 2; ++again) {  // the first refusal must leave nothing of a run behind
    const Outcome refused = run_expecting(3, train_tiny(foreign, {"--overwrite"}));
    CHECK(count(refused.err, "[overwrite-not-a-run]") == 1);
    CHECK(std::distance(fs::directory_iterator(foreign), fs::directory_iterator()) == 1);
    CHECK(fs::exists(foreign / "thesis.txt"));
  }
}

TEST_CASE("a partial last line of the metrics is repaired", "[resume]") {
  const TempDir folder;
  run_half(folder.path());
  const std::string metrics = read_file(folder.path() / "metrics.jsonl");
  write_file(folder.path() / "metrics.jsonl", metrics + "{\"t\": 17");
  run_expecting(0, train_tiny(folder.path()));
  CHECK(records(folder.path()).size() == 12);  // records() parses every line
  CHECK(read_file(folder.path() / "metrics.jsonl").starts_with(metrics));
}
