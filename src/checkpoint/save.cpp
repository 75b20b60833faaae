// How does a checkpoint come into being, all or nothing?
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/detail/agree.hpp"
#include "checkpoint/detail/boxes.hpp"
#include "checkpoint/detail/durable.hpp"
#include "checkpoint/detail/folders.hpp"
#include "checkpoint/detail/hdf5.hpp"
#include "checkpoint/detail/index_file.hpp"
#include "checkpoint/detail/manifest.hpp"
#include "checkpoint/detail/rank_file.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

#include <fmt/format.h>

#include <map>
#include <system_error>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kWrite = "checkpoint-write";

struct Paths {
  fs::path root;
  fs::path temporary;
  fs::path final;
};

/// Removes whatever is at the temporary path in the end: a failed save, or the replaced checkpoint
/// after a good one.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& path) : path_(path) {}
  ~TemporaryFolder() { detail::remove_folder(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

 private:
  const fs::path& path_;
};

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    detail::fail_write(path, error.value(), error.message());
  }
}

std::string table_text(const detail::RankTable& table) {
  const Json json = {
      {"file", table.file.name}, {"bytes", table.file.bytes}, {"tensors", to_json(table.tensors)}};
  return json.dump();
}

/// Adds one rank's view of a tensor to the table of all.
void merge(std::map<std::string, detail::StoredTensor>& all,
           detail::StoredTensor&& part,
           std::int64_t file) {
  for (detail::StoredBox& box : part.boxes) {
    box.file = file;
  }
  detail::StoredTensor& tensor = all[part.name];
  if (tensor.name.empty()) {
    tensor = std::move(part);
    return;
  }
  check(tensor.global == part.global && tensor.dtype == part.dtype,
        ErrorKind::internal,
        "checkpoint-record",
        "ranks disagree about record {}: {} {} and {} {}",
        part.name,
        detail::dtype_name(tensor.dtype),
        detail::to_text(tensor.global),
        detail::dtype_name(part.dtype),
        detail::to_text(part.global));
  tensor.boxes.insert(tensor.boxes.end(), part.boxes.begin(), part.boxes.end());
}

detail::Manifest make_manifest(const RunState& state, const std::vector<std::string>& tables) {
  detail::Manifest manifest;
  manifest.state = state;
  manifest.world_size = static_cast<std::int64_t>(tables.size());
  std::map<std::string, detail::StoredTensor> tensors;
  for (const std::string& text : tables) {
    const Json table = Json::parse(text);
    const auto file = static_cast<std::int64_t>(manifest.files.size());
    if (auto name = table.at("file").get<std::string>(); !name.empty()) {
      manifest.files.push_back({std::move(name), table.at("bytes").get<std::int64_t>()});
    }
    for (detail::StoredTensor& part : detail::tensors_from_json(table.at("tensors"))) {
      merge(tensors, std::move(part), file);
    }
  }
  for (auto& [name, tensor] : tensors) {
    std::vector<detail::Box> boxes;
    boxes.reserve(tensor.boxes.size());
    for (const detail::StoredBox& box : tensor.boxes) {
      boxes.push_back(box.box);
    }
    check(detail::tiles(std::move(boxes), tensor.global),
          ErrorKind::internal,
          "checkpoint-coverage",
          "the {} boxes that ranks own of {} do not hold each element of {} exactly once",
          tensor.boxes.size(),
          name,
          detail::to_text(tensor.global));
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

/// Makes `latest` name a checkpoint that is complete and durable already. Nothing is loaded by that
/// file, so a failure must not turn a good save into a failed one.
void point_latest(const Paths& paths, std::int64_t step) {
  try {
    detail::write_text(paths.root / "latest", fmt::format("{}\n", step));
  } catch (const Error& error) {
    log::warn("[checkpoint] {} is complete, but `latest` does not name it: {}",
              paths.final.string(),
              error.what());
  }
}

/// Index, manifest, rename, `latest`, retention: rank 0, after every rank file is on disk.
std::int64_t commit(const Paths& paths, detail::Manifest manifest, const SaveOptions& options) {
  manifest.files.push_back(detail::write_index(paths.temporary, manifest));
  detail::write_text(paths.temporary / detail::kManifestName, detail::to_text(manifest));
  detail::sync_to_disk(paths.temporary);
  detail::move_into_place(paths.temporary, paths.final);
  detail::sync_to_disk(paths.root);
  point_latest(paths, manifest.state.step);
  detail::remove_old(paths.root, manifest.state.step, options.keep_last);
  return detail::total_bytes(paths.final, manifest);
}

}  // namespace

std::int64_t save_checkpoint(const fs::path& root,
                             const RunState& state,
                             std::span<const TensorRecord> tensors,
                             const Comm& world,
                             const SaveOptions& options) {
  detail::check_records(tensors);
  const bool leader = world.rank() == 0;
  const Paths paths{root,
                    root / detail::temporary_name(state.step, options.attempt),
                    root / detail::folder_name(state.step)};
  std::optional<TemporaryFolder> temporary;
  static_cast<void>(detail::agree(world, kWrite, [&] {
    if (leader) {
      temporary.emplace(paths.temporary);
      make_folder(root);
      detail::remove_folder(paths.temporary);
      make_folder(paths.temporary);
    }
    return std::string();
  }));
  const std::vector<std::string> tables = detail::agree(world, kWrite, [&] {
    return table_text(detail::write_rank_file(paths.temporary, world.rank(), tensors));
  });
  const std::vector<std::string> bytes = detail::agree(world, kWrite, [&] {
    return leader ? std::to_string(commit(paths, make_manifest(state, tables), options))
                  : std::string();
  });
  return std::stoll(bytes.front());
}

}  // namespace colossal
