// Do abort.json and status.json tell the truth, whoever is left to write them?
#include "train/failure_record.hpp"

#include "core/system.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "train/environment.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace colossal::test {

using colossal::test::TempDir;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

const RunFailure kFailure{2, 7, "nonfinite-loss", "loss is nan", {"step 4", "step 4", "step 3"}};

Json read_json(const fs::path& file) {
  return Json::parse(read_text(file), nullptr, false);
}

/// A run whose owner has gone, with this state; `age` in seconds.
void leave_status(const fs::path& folder, const std::string& state, double age) {
  RunDir::open(folder, 0)->write(
      "status.json",
      fmt::format(R"({{"state":"{}","step":4,"total":9,"attempt":3,"time":{},"exit":null}})",
                  state,
                  unix_time() - age));
}

}  // namespace

TEST_CASE("abort.json names the root cause and every rank's last phase", "[failure]") {
  const Json json = Json::parse(abort_json(kFailure, 3));
  CHECK(json.at("rank") == 2);
  CHECK(json.at("code") == 7);
  CHECK(json.at("id") == "nonfinite-loss");
  CHECK(json.at("message") == "loss is nan");
  CHECK(json.at("attempt") == 3);
  CHECK(json.at("phases") == Json({{"0", "step 4"}, {"1", "step 4"}, {"2", "step 3"}}));
  CHECK(json.at("time").get<double>() > 1e9);
  RunFailure unknown = kFailure;
  unknown.rank = -1;
  unknown.message = "caf\xff";  // not UTF-8, as paths can be
  CHECK(Json::parse(abort_json(unknown, 1)).at("rank").is_null());
}

TEST_CASE("the owner writes both files under its lock", "[failure]") {
  const TempDir folder;
  FailureRecord record(folder.path());
  const auto run = RunDir::open(folder.path(), 0);
  record.own(run.get());
  record.write(kFailure);
  CHECK(read_json(folder.path() / "abort.json").at("rank") == 2);
  const Json status = read_json(folder.path() / "status.json");
  CHECK(status.at("state") == "failed");
  CHECK(status.at("exit") == 7);
  CHECK(status.at("step") == 0);
  CHECK(status.at("attempt") == 1);
}

TEST_CASE("a damaged status.json stops nobody from writing why a run ended", "[failure]") {
  for (const char* damaged : {R"({"state":7,"attempt":"x","time":"never"})",
                              R"({"attempt":1e300,"state":null})",
                              R"({"attempt":18446744073709551615})",
                              R"([1,2])",
                              R"("running")",
                              "null",
                              "{"}) {
    INFO(damaged);
    const TempDir folder;
    RunDir::open(folder.path(), 0)->write("status.json", damaged);
    CHECK(last_attempt(folder.path()) == 0);
    CHECK_NOTHROW(settle_run(folder.path(), {7, kFailure, unix_time(), true}));
    CHECK(read_json(folder.path() / "abort.json").at("code") == 7);
    FailureRecord record(folder.path());
    const auto run = RunDir::open(folder.path(), 0);
    record.own(run.get());
    CHECK_NOTHROW(record.write(kFailure));
    CHECK(read_json(folder.path() / "status.json").at("state") == "failed");
  }
}

TEST_CASE("a record whose folder becomes known later writes there", "[failure]") {
  const TempDir folder;
  leave_status(folder.path(), "running", 100);
  FailureRecord record("");
  record.write(kFailure);
  CHECK_FALSE(fs::exists(folder.path() / "abort.json"));
  record.move_to(folder.path());
  record.write(kFailure);
  CHECK(read_json(folder.path() / "abort.json").at("code") == 7);
}

TEST_CASE("the owner keeps the step of its own attempt only", "[failure]") {
  const TempDir folder;
  leave_status(folder.path(), "finished", 100);
  FailureRecord record(folder.path());
  const auto run = RunDir::open(folder.path(), 0);
  record.own(run.get());
  record.write(kFailure);
  CHECK(read_json(folder.path() / "status.json").at("step") == 0);
  CHECK(read_json(folder.path() / "status.json").at("attempt") == 4);
  run->write("status.json", fmt::format(R"({{"step":5,"attempt":4,"time":{}}})", unix_time()));
  record.write(kFailure);
  CHECK(read_json(folder.path() / "status.json").at("step") == 5);
}

TEST_CASE("a rank that owns nothing writes when the owner has died", "[failure]") {
  const TempDir folder;
  leave_status(folder.path(), "running", 0);
  const FailureRecord record(folder.path());
  record.write(kFailure);
  CHECK(read_json(folder.path() / "abort.json").at("attempt") == 3);
  const Json status = read_json(folder.path() / "status.json");
  CHECK(status.at("state") == "failed");
  CHECK(status.at("exit") == 7);
  CHECK(status.at("step") == 4);
  RunFailure later = kFailure;
  later.rank = 0;
  record.write(later);  // another rank's story of the same failure
  CHECK(read_json(folder.path() / "abort.json").at("rank") == 2);
}

TEST_CASE("nothing is written for a folder in use, missing or not wanted", "[failure]") {
  const TempDir folder;
  const auto other = RunDir::open(folder.path(), 0);
  FailureRecord(folder.path()).write(kFailure);
  FailureRecord("").write(kFailure);
  FailureRecord(folder.path() / "none").write(kFailure);
  CHECK_FALSE(fs::exists(folder.path() / "abort.json"));
  CHECK_FALSE(fs::exists(folder.path() / "none"));
}

TEST_CASE("the launcher corrects what a rank believed", "[failure]") {
  const TempDir folder;
  const double since = unix_time() - 10;
  leave_status(folder.path(), "failed", 1);
  const FailureRecord record(folder.path());
  record.write({3, 8, "peer-lost", "rank 3 died without a message", {}});
  settle_run(folder.path(), {137, RunFailure{3, 137, "peer-lost", "killed", {}}, since, true});
  CHECK(read_json(folder.path() / "abort.json").at("code") == 137);
  CHECK(read_json(folder.path() / "status.json").at("exit") == 137);
}

TEST_CASE("an attempt that came to nothing leaves the status of the one before", "[failure]") {
  const TempDir folder;
  leave_status(folder.path(), "finished", 100);
  settle_run(folder.path(), {8, kFailure, unix_time() - 1, true});
  CHECK(read_json(folder.path() / "abort.json").at("attempt") == 4);
  CHECK(read_json(folder.path() / "status.json").at("state") == "finished");
}

TEST_CASE("a run that a signal stopped has not failed", "[failure]") {
  const TempDir folder;
  leave_status(folder.path(), "running", 1);
  settle_run(folder.path(), {143, std::nullopt, unix_time() - 10, true});
  CHECK_FALSE(fs::exists(folder.path() / "abort.json"));
  CHECK(read_json(folder.path() / "status.json").at("state") == "interrupted");
  CHECK(read_json(folder.path() / "status.json").at("exit") == 143);
}

TEST_CASE("a rank that the signal reached last took its peers' end for a failure", "[failure]") {
  const TempDir folder;
  leave_status(folder.path(), "running", 1);
  const RunFailure lost{1, 8, "peer-lost", "rank 1 died without a message", {}};
  settle_run(folder.path(), {8, lost, unix_time() - 10, false});
  REQUIRE(fs::exists(folder.path() / "abort.json"));
  // A failure of an attempt before this one was one.
  settle_run(folder.path(), {143, std::nullopt, unix_time() + 10, true});
  CHECK(fs::exists(folder.path() / "abort.json"));
  settle_run(folder.path(), {143, std::nullopt, unix_time() - 10, true});
  CHECK_FALSE(fs::exists(folder.path() / "abort.json"));
  CHECK(read_json(folder.path() / "status.json").at("state") == "interrupted");
}

TEST_CASE("what a rank failed with by itself stays when a signal ends the run", "[failure]") {
  const TempDir folder;
  leave_status(folder.path(), "running", 1);
  settle_run(folder.path(), {7, kFailure, unix_time() - 10, false});
  settle_run(folder.path(), {143, std::nullopt, unix_time() - 10, true});
  CHECK(read_json(folder.path() / "abort.json").at("id") == "nonfinite-loss");
}

}  // namespace colossal::test
