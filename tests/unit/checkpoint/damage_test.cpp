// Is every kind of damage or mismatch found, and named?
#include "core/hash.hpp"
#include "unit/checkpoint/fixture.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

Failure load_failure(const fs::path& checkpoint, std::vector<TensorRecord> records) {
  return failure_of([&] { load_tensors(checkpoint, records, Comm()); });
}

void require_failure(const Failure& failure,
                     const std::string& id,
                     const std::vector<std::string>& parts) {
  INFO(failure.text);
  CHECK(failure.id == id);
  CHECK(failure.exit_code == 5);
  for (const std::string& part : parts) {
    INFO(part);
    CHECK(contains(failure.text, part));
  }
}

/// Changes the manifest and gives it a right checksum again, as a hand edit by a knowing person
/// would.
void edit_manifest(const fs::path& checkpoint,
                   const std::function<void(nlohmann::ordered_json&)>& edit) {
  auto json = nlohmann::ordered_json::parse(read_file(checkpoint / "manifest.json"));
  edit(json);
  json.erase("crc32c");
  const std::string text = json.dump();
  json["crc32c"] = crc32c(std::as_bytes(std::span(text)));
  write_file(checkpoint / "manifest.json", json.dump());
}

/// Where the bytes of a tensor are in a file.
std::size_t find_values(const std::string& file, const at::Tensor& tensor) {
  const std::string bytes(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  const std::size_t at = file.find(bytes);
  REQUIRE(at != std::string::npos);
  return at;
}

}  // namespace

TEST_CASE("a flipped bit is a checksum error naming tensor and file", "[damage]") {
  const TempDir dir;
  const std::vector<TensorRecord> records = small_model();
  const fs::path checkpoint = save_one(dir.path(), 1, records);
  const fs::path file = checkpoint / "rank-0000.h5";
  std::string bytes = read_file(file);
  bytes[find_values(bytes, records[1].local) + 17] ^= 4;
  write_file(file, bytes);
  require_failure(load_failure(checkpoint, blank(records)),
                  "checkpoint-checksum",
                  {"model/head.weight", file.string()});
  // File sizes are right: only reading finds it.
  CHECK(list_checkpoints(dir.path()).front().complete);
}

TEST_CASE("without checksums a flipped bit is not found, everything else is", "[damage]") {
  const TempDir dir;
  const std::vector<TensorRecord> records = small_model();
  const fs::path checkpoint = save_one(dir.path(), 1, records, {.checksum = false});
  require_loads(checkpoint, records);
  const auto json = nlohmann::json::parse(read_file(checkpoint / "manifest.json"));
  CHECK(json.at("version") == 2);  // older programs need checksums, and say so by the version
  CHECK_FALSE(json.at("tensors").at(0).at("boxes").at(0).contains("crc32c"));
  const fs::path file = checkpoint / "rank-0000.h5";
  std::string bytes = read_file(file);
  const std::size_t at = find_values(bytes, records[1].local);
  bytes[at + 17] ^= 4;
  write_file(file, bytes);
  std::vector<TensorRecord> loaded = blank(records);
  load_tensors(checkpoint, loaded, Comm());
  CHECK_FALSE(at::equal(loaded[1].local, records[1].local));
  fs::resize_file(file, bytes.size() - 1);
  require_failure(load_failure(checkpoint, blank(records)), "checkpoint-incomplete", {"rank-0000"});
}

TEST_CASE("a manifest that lost a checksum is damaged", "[damage]") {
  const TempDir dir;
  const fs::path checkpoint = save_one(dir.path(), 1, small_model());
  edit_manifest(checkpoint, [](auto& json) { json["tensors"][1]["boxes"][0].erase("crc32c"); });
  require_failure(load_failure(checkpoint, blank(small_model())),
                  "checkpoint-incomplete",
                  {"1 boxes have no checksum"});
}

TEST_CASE("a missing or shortened file is named", "[damage]") {
  const TempDir dir;
  const std::vector<TensorRecord> records = small_model();
  const fs::path checkpoint = save_one(dir.path(), 1, records);
  SECTION("rank file removed") {
    fs::remove(checkpoint / "rank-0000.h5");
    require_failure(load_failure(checkpoint, blank(records)),
                    "checkpoint-incomplete",
                    {checkpoint.string(), "rank-0000.h5 is missing"});
  }
  SECTION("rank file truncated") {
    const auto size = fs::file_size(checkpoint / "rank-0000.h5");
    fs::resize_file(checkpoint / "rank-0000.h5", size - 1);
    require_failure(load_failure(checkpoint, blank(records)),
                    "checkpoint-incomplete",
                    {"rank-0000.h5", std::to_string(size - 1), std::to_string(size)});
  }
  SECTION("index removed") {
    fs::remove(checkpoint / "index.h5");
    require_failure(
        load_failure(checkpoint, blank(records)), "checkpoint-incomplete", {"index.h5 is missing"});
  }
  SECTION("manifest renamed") {
    fs::rename(checkpoint / "manifest.json", checkpoint / "manifest.bak");
    require_failure(load_failure(checkpoint, blank(records)),
                    "checkpoint-incomplete",
                    {checkpoint.string(), "manifest.json is missing"});
    require_failure(failure_of([&] { static_cast<void>(read_state(checkpoint)); }),
                    "checkpoint-incomplete",
                    {"manifest.json"});
  }
  const std::vector<CheckpointInfo> found = list_checkpoints(dir.path());
  REQUIRE(found.size() == 1);
  CHECK_FALSE(found[0].complete);
  CHECK(contains(found[0].problem, checkpoint.string()));
}

TEST_CASE("a damaged manifest is never believed", "[damage]") {
  const TempDir dir;
  const fs::path checkpoint = save_one(dir.path(), 1234, small_model());
  const fs::path file = checkpoint / "manifest.json";
  const std::string text = read_file(file);
  const auto state_failure = [&](const std::string& changed) {
    write_file(file, changed);
    return failure_of([&] { static_cast<void>(read_state(checkpoint)); });
  };
  std::string wrong_step = text;
  wrong_step.replace(text.find("1234"), 4, "1235");
  require_failure(state_failure(wrong_step), "checkpoint-incomplete", {file.string(), "checksum"});
  require_failure(
      state_failure(text.substr(0, text.size() / 2)), "checkpoint-incomplete", {file.string()});
  require_failure(state_failure(""), "checkpoint-incomplete", {file.string()});
  require_failure(state_failure("{}"), "checkpoint-incomplete", {file.string()});
  require_failure(state_failure("[1, 2]"), "checkpoint-incomplete", {file.string()});
  CHECK(state_failure(text).id.empty());
}

TEST_CASE("a manifest without a key of the run's state is refused by that key", "[damage]") {
  for (const char* key : {"step", "consumed", "skipped", "config_yaml"}) {
    const TempDir dir;
    const fs::path checkpoint = save_one(dir.path(), 1, small_model());
    edit_manifest(checkpoint, [&](auto& json) { json["state"].erase(key); });
    const std::string quoted = std::string("'") + key + "'";
    require_failure(failure_of([&] { static_cast<void>(read_state(checkpoint)); }),
                    "checkpoint-incomplete",
                    {(checkpoint / "manifest.json").string(), quoted});
    CHECK_FALSE(list_checkpoints(dir.path()).front().complete);
  }
}

TEST_CASE("a manifest of a newer program is refused by version", "[damage]") {
  const TempDir dir;
  const fs::path checkpoint = save_one(dir.path(), 1, small_model());
  edit_manifest(checkpoint, [](auto& json) { json["version"] = 3; });
  require_failure(
      load_failure(checkpoint, small_model()), "checkpoint-version", {"version 3", "up to 2"});
}

TEST_CASE("a manifest whose boxes make no tensor is refused", "[damage]") {
  const TempDir dir;
  const fs::path checkpoint = save_one(dir.path(), 1, small_model());
  SECTION("box too small") {
    edit_manifest(checkpoint,
                  [](auto& json) { json["tensors"][0]["boxes"][0]["extent"] = {6, 5}; });
  }
  SECTION("file that is not listed") {
    edit_manifest(checkpoint, [](auto& json) { json["tensors"][0]["boxes"][0]["file"] = 9; });
  }
  SECTION("unknown type") {
    edit_manifest(checkpoint, [](auto& json) { json["tensors"][0]["dtype"] = "complex64"; });
  }
  require_failure(
      load_failure(checkpoint, small_model()), "checkpoint-incomplete", {"model/embed.weight"});
}

TEST_CASE("a rank file that is not what the manifest says is refused", "[damage]") {
  const TempDir dir;
  const std::vector<TensorRecord> records = small_model();
  const fs::path checkpoint = save_one(dir.path(), 1, records);
  const fs::path file = checkpoint / "rank-0000.h5";
  SECTION("not an HDF5 file") {
    write_file(file, std::string(fs::file_size(file), 'x'));
    require_failure(
        load_failure(checkpoint, blank(records)), "checkpoint-incomplete", {file.string(), "open"});
  }
  SECTION("dataset not there") {
    edit_manifest(checkpoint,
                  [](auto& json) { json["tensors"][1]["boxes"][0]["dataset"] = "/model/none#0"; });
    require_failure(load_failure(checkpoint, blank(records)),
                    "checkpoint-incomplete",
                    {file.string(), "/model/none#0"});
  }
  SECTION("dataset of another size") {
    edit_manifest(checkpoint, [](auto& json) {
      json["tensors"][1]["boxes"][0]["dataset"] = "/model/embed.weight#0";
    });
    require_failure(load_failure(checkpoint, blank(records)),
                    "checkpoint-incomplete",
                    {file.string(), "float32"});
  }
}

TEST_CASE("names and shapes are strict", "[damage]") {
  const TempDir dir;
  const std::vector<TensorRecord> records = small_model();
  const fs::path checkpoint = save_one(dir.path(), 1, records);

  std::vector<TensorRecord> more = records;
  for (int i = 0; i < 12; ++i) {
    more.push_back(whole(fmt::format("model/extra.{:02}", i), counting({2})));
  }
  const Failure missing = load_failure(checkpoint, more);
  require_failure(
      missing,
      "checkpoint-missing-tensor",
      {checkpoint.string(), "12 tensors", "model/extra.00", "model/extra.09", "and 2 more"});
  CHECK_FALSE(contains(missing.text, "model/extra.10"));

  require_failure(load_failure(checkpoint, {records[0], records[2]}),
                  "checkpoint-unexpected-tensor",
                  {checkpoint.string(), "model/head.weight"});

  std::vector<TensorRecord> wider = records;
  wider[0] = whole("model/embed.weight", counting({7, 6}));
  require_failure(load_failure(checkpoint, wider),
                  "checkpoint-shape",
                  {"model/embed.weight", "[7, 5]", "[7, 6]"});

  std::vector<TensorRecord> integer = records;
  integer[0] = whole("model/embed.weight", counting({7, 5}, at::kLong));
  require_failure(load_failure(checkpoint, integer),
                  "checkpoint-dtype",
                  {"model/embed.weight", "float32", "int64"});
}

TEST_CASE("a folder that does not exist is incomplete", "[damage]") {
  const TempDir dir;
  require_failure(load_failure(dir.path() / "step-00000009", small_model()),
                  "checkpoint-incomplete",
                  {"step-00000009"});
}

}  // namespace colossal::test
