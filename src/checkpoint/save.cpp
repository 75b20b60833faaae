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
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kWrite = "checkpoint-write";

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    detail::fail_write(path, error.value(), error.message());
  }
}

fs::path temporary_path(const fs::path& root, const RunState& state, const SaveOptions& options) {
  return root / detail::temporary_name(state.step, options.attempt);
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
void point_latest(const fs::path& root, const fs::path& checkpoint, std::int64_t step) {
  try {
    detail::write_text(root / "latest", fmt::format("{}\n", step));
  } catch (const Error& error) {
    log::warn("[checkpoint] {} is complete, but `latest` does not name it: {}",
              checkpoint.string(),
              error.what());
  }
}

/// Index, manifest, rename, `latest`, retention: rank 0, after every rank file is on disk.
std::int64_t publish(const fs::path& root, detail::Manifest manifest, const SaveOptions& options) {
  const std::int64_t step = manifest.state.step;
  const fs::path temporary = temporary_path(root, manifest.state, options);
  const fs::path final = root / detail::folder_name(step);
  manifest.files.push_back(detail::write_index(temporary, manifest));
  detail::write_text(temporary / detail::kManifestName, detail::to_text(manifest));
  detail::sync_to_disk(temporary);
  detail::move_into_place(temporary, final);
  detail::sync_to_disk(root);
  point_latest(root, final, step);
  detail::remove_old(root, step, options);
  return detail::total_bytes(final, manifest);
}

}  // namespace

/// Removes whatever is at the temporary path in the end: a failed save, or the replaced checkpoint
/// after a good one.
struct CheckpointWriter::Temporary {
  explicit Temporary(fs::path folder) : path(std::move(folder)) {}
  ~Temporary() { detail::remove_folder(path); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  fs::path path;
};

CheckpointWriter::CheckpointWriter(fs::path root, RunState state, Comm world, SaveOptions options)
    : root_(std::move(root)),
      state_(std::move(state)),
      world_(std::move(world)),
      options_(std::move(options)) {
  static_cast<void>(detail::agree(world_, kWrite, [&] {
    if (world_.rank() == 0) {
      const fs::path folder = temporary_path(root_, state_, options_);
      temporary_ = std::make_unique<Temporary>(folder);
      make_folder(root_);
      detail::remove_folder(folder);
      make_folder(folder);
    }
    return std::string();
  }));
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::write(std::span<const TensorRecord> tensors) noexcept {
  try {
    detail::check_records(tensors);
    table_ = table_text(detail::write_rank_file(
        temporary_path(root_, state_, options_), world_.rank(), tensors, options_.checksum));
  } catch (...) {
    failure_ = std::current_exception();
  }
}

std::int64_t CheckpointWriter::commit() {
  const std::vector<std::string> tables = detail::agree(world_, kWrite, [&] {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    return table_;
  });
  const std::vector<std::string> bytes = detail::agree(world_, kWrite, [&] {
    return world_.rank() == 0
               ? std::to_string(publish(root_, make_manifest(state_, tables), options_))
               : std::string();
  });
  temporary_.reset();
  return std::stoll(bytes.front());
}

std::int64_t save_checkpoint(const fs::path& root,
                             const RunState& state,
                             std::span<const TensorRecord> tensors,
                             const Comm& world,
                             const SaveOptions& options) {
  CheckpointWriter writer(root, state, world, options);
  writer.write(tensors);
  return writer.commit();
}

}  // namespace colossal
