// What does manifest.json say? The commit record: run state, files with sizes, and where each box
// of each tensor is.
#include "checkpoint/detail/manifest.hpp"

#include "checkpoint/detail/hdf5.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <system_error>

namespace colossal::detail {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::uint32_t crc_of(const std::string& text) {
  return crc32c(std::as_bytes(std::span(text)));
}

RunState state_from_json(const Json& json) {
  RunState state;
  json.at("step").get_to(state.step);
  json.at("consumed").get_to(state.consumed);
  json.at("skipped").get_to(state.skipped);
  json.at("attempt").get_to(state.attempt);
  if (const auto scale = json.find("loss_scale"); scale != json.end()) {
    state.loss_scale = LossScale{scale->at("scale").get<double>(),
                                 scale->at("growth").get<std::int64_t>(),
                                 scale->at("hysteresis").get<std::int64_t>()};
  }
  state.recent_losses = json.value("recent_losses", std::vector<double>());
  state.weights_only = json.value("content", "full") == "weights";
  if (const auto metrics = json.find("metrics"); metrics != json.end()) {
    metrics->get_to(state.metrics);
  }
  json.at("data_fingerprint").get_to(state.data_fingerprint);
  json.at("build_id").get_to(state.build_id);
  json.at("config_yaml").get_to(state.config_yaml);
  return state;
}

Json to_json(const StoredBox& box) {
  Json json = {{"file", box.file},
               {"dataset", box.dataset},
               {"offset", box.box.offset},
               {"extent", box.box.extent}};
  if (box.crc) {
    json["crc32c"] = *box.crc;
  }
  return json;
}

StoredBox box_from_json(const Json& json) {
  StoredBox box;
  json.at("file").get_to(box.file);
  json.at("dataset").get_to(box.dataset);
  json.at("offset").get_to(box.box.offset);
  json.at("extent").get_to(box.box.extent);
  if (const auto crc = json.find("crc32c"); crc != json.end()) {
    box.crc = crc->get<std::uint32_t>();
  }
  return box;
}

std::string read_whole(const fs::path& file) {
  std::error_code failed;
  const std::optional<std::string> text = read_file(file, failed);
  require_readable(file, failed);
  check(text.has_value(),
        ErrorKind::checkpoint,
        "checkpoint-incomplete",
        "{} is incomplete: {} is missing (the save did not finish, or the file was removed)",
        file.parent_path().string(),
        file.filename().string());
  return *text;
}

Manifest manifest_from_json(const Json& json) {
  Manifest manifest;
  manifest.state = state_from_json(json.at("state"));
  json.at("world_size").get_to(manifest.world_size);
  for (const Json& file : json.at("files")) {
    manifest.files.push_back(
        {file.at("name").get<std::string>(), file.at("bytes").get<std::int64_t>()});
  }
  manifest.tensors = tensors_from_json(json.at("tensors"));
  return manifest;
}

/// Boxes that do not tile their tensor, or point at no file, cannot come from save_checkpoint().
/// Neither can boxes without a checksum under a version that has one for each.
void check_tensors(const fs::path& checkpoint, const Manifest& manifest, std::int64_t version) {
  check(version > 1 || count_unchecked(manifest) == 0,
        ErrorKind::checkpoint,
        "checkpoint-incomplete",
        "{} is damaged: {} boxes have no checksum",
        (checkpoint / kManifestName).string(),
        count_unchecked(manifest));
  const auto num_files = static_cast<std::int64_t>(manifest.files.size());
  for (const StoredTensor& tensor : manifest.tensors) {
    bool good = is_storable(tensor.dtype);
    std::vector<Box> boxes;
    for (const StoredBox& box : tensor.boxes) {
      good = good && box.file >= 0 && box.file < num_files;
      boxes.push_back(box.box);
    }
    check(good && tiles(boxes, tensor.global),
          ErrorKind::checkpoint,
          "checkpoint-incomplete",
          "{} is damaged: the boxes of tensor {} are not those of a {} tensor",
          (checkpoint / kManifestName).string(),
          tensor.name,
          detail::to_text(tensor.global));
  }
}

}  // namespace

void require_readable(const fs::path& file, const std::error_code& failed) {
  const bool gone = failed == std::errc::no_such_file_or_directory ||
                    failed == std::errc::not_a_directory || failed == std::errc::is_a_directory;
  check(
      !failed || gone,
      ErrorKind::checkpoint,
      "checkpoint-unreadable",
      "cannot read {}: {} (errno {}); it is not known to be damaged\n  fix   repair what keeps it "
      "from being read (rights, disk, limits) and start again",
      file.string(),
      failed.message(),
      failed.value());
}

Json to_json(const RunState& state) {
  Json json = {{"step", state.step},
               {"consumed", state.consumed},
               {"skipped", state.skipped},
               {"attempt", state.attempt}};
  if (const std::optional<LossScale>& scale = state.loss_scale) {
    json["loss_scale"] = {
        {"scale", scale->scale}, {"growth", scale->growth}, {"hysteresis", scale->hysteresis}};
  }
  if (!state.recent_losses.empty()) {
    json["recent_losses"] = state.recent_losses;
  }
  if (state.weights_only) {
    json["content"] = "weights";
  }
  if (!state.metrics.empty()) {
    json["metrics"] = state.metrics;
  }
  json.update({{"data_fingerprint", state.data_fingerprint},
               {"build_id", state.build_id},
               {"config_sha256", sha256(state.config_yaml)},
               {"config_yaml", state.config_yaml}});
  return json;
}

std::size_t count_unchecked(const Manifest& manifest) {
  std::size_t count = 0;
  for (const StoredTensor& tensor : manifest.tensors) {
    count += static_cast<std::size_t>(std::ranges::count_if(
        tensor.boxes, [](const StoredBox& box) { return !box.crc.has_value(); }));
  }
  return count;
}

Json to_json(const std::vector<StoredTensor>& tensors) {
  Json list = Json::array();
  for (const StoredTensor& tensor : tensors) {
    Json boxes = Json::array();
    for (const StoredBox& box : tensor.boxes) {
      boxes.push_back(to_json(box));
    }
    list.push_back({{"name", tensor.name},
                    {"dtype", dtype_name(tensor.dtype)},
                    {"shape", tensor.global},
                    {"boxes", std::move(boxes)}});
  }
  return list;
}

std::vector<StoredTensor> tensors_from_json(const Json& json) {
  std::vector<StoredTensor> tensors;
  tensors.reserve(json.size());
  for (const Json& item : json) {
    StoredTensor& tensor = tensors.emplace_back();
    item.at("name").get_to(tensor.name);
    tensor.dtype = dtype_of(item.at("dtype").get<std::string>());
    item.at("shape").get_to(tensor.global);
    for (const Json& box : item.at("boxes")) {
      tensor.boxes.push_back(box_from_json(box));
    }
  }
  return tensors;
}

std::string to_text(const Manifest& manifest) {
  Json files = Json::array();
  for (const StoredFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  Json json = {{"format", "colossal-checkpoint"},
               {"version", count_unchecked(manifest) == 0 ? 1 : kManifestVersion},
               {"world_size", manifest.world_size},
               {"state", to_json(manifest.state)},
               {"files", std::move(files)},
               {"tensors", to_json(manifest.tensors)}};
  json["crc32c"] = crc_of(json.dump());
  return json.dump(1) + "\n";
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kManifestName;
  const std::string text = read_whole(file);
  try {
    Json json = Json::parse(text);
    const auto version = json.at("version").get<std::int64_t>();
    check(version <= kManifestVersion,
          ErrorKind::checkpoint,
          "checkpoint-version",
          "{} has version {}, this program reads up to {}: use the program that wrote it",
          file.string(),
          version,
          kManifestVersion);
    const auto stored = json.at("crc32c").get<std::uint32_t>();
    json.erase("crc32c");
    const std::uint32_t found = crc_of(json.dump());
    check(stored == found,
          ErrorKind::checkpoint,
          "checkpoint-incomplete",
          "{} is damaged: its checksum is {:08x}, the text gives {:08x}",
          file.string(),
          stored,
          found);
    Manifest manifest = manifest_from_json(json);
    check_tensors(checkpoint, manifest, version);
    return manifest;
  } catch (const Json::exception& error) {
    fail(ErrorKind::checkpoint,
         "checkpoint-incomplete",
         "{} is damaged: {}",
         file.string(),
         error.what());
  }
}

void check_files(const fs::path& checkpoint, const Manifest& manifest) {
  for (const StoredFile& file : manifest.files) {
    const fs::path path = checkpoint / file.name;
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    require_readable(path, error);
    check(!error,
          ErrorKind::checkpoint,
          "checkpoint-incomplete",
          "{} is incomplete: {} is missing ({})",
          checkpoint.string(),
          file.name,
          error.message());
    check(static_cast<std::int64_t>(size) == file.bytes,
          ErrorKind::checkpoint,
          "checkpoint-incomplete",
          "{} is incomplete: {} has {} bytes, {} were written",
          checkpoint.string(),
          file.name,
          size,
          file.bytes);
  }
}

std::int64_t total_bytes(const fs::path& checkpoint, const Manifest& manifest) {
  auto total = static_cast<std::int64_t>(fs::file_size(checkpoint / kManifestName));
  for (const StoredFile& file : manifest.files) {
    total += file.bytes;
  }
  return total;
}

}  // namespace colossal::detail
