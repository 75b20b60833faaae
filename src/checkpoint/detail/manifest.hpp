// What does manifest.json say? The commit record: run state, files with sizes, and where each box
// of each tensor is.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/detail/boxes.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace colossal::detail {

/// A box as one dataset of one rank file.
struct StoredBox {
  std::int64_t file = 0;  ///< index into Manifest::files
  std::string dataset;    ///< absolute path in the file
  Box box;
  /// CRC-32C of the elements in row-major order, little-endian; unset: saved without.
  std::optional<std::uint32_t> crc = {};
};

struct StoredTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  Shape global;
  std::vector<StoredBox> boxes;
};

struct StoredFile {
  std::string name;
  std::int64_t bytes = 0;
};

struct Manifest {
  RunState state;
  std::int64_t world_size = 1;
  std::vector<StoredFile> files;      ///< rank files in order of rank, then index.h5
  std::vector<StoredTensor> tensors;  ///< by name
};

/// The newest version; what has checksums is still written as version 1.
inline constexpr std::int64_t kManifestVersion = 2;
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kIndexName = "index.h5";

/// Boxes without a checksum.
[[nodiscard]] std::size_t count_unchecked(const Manifest& manifest);

/// JSON of tensors, of the manifest and of one rank's part of it.
[[nodiscard]] nlohmann::ordered_json to_json(const std::vector<StoredTensor>& tensors);
[[nodiscard]] std::vector<StoredTensor> tensors_from_json(const nlohmann::ordered_json& json);
[[nodiscard]] nlohmann::ordered_json to_json(const RunState& state);

/// The file's text: the JSON object, its own CRC-32C last.
[[nodiscard]] std::string to_text(const Manifest& manifest);

/// What the system said of `file` is no damage: only a file that is missing, or of another kind,
/// is. Errors: checkpoint "checkpoint-unreadable" for everything else (rights, a broken disk,
/// limits).
void require_readable(const std::filesystem::path& file, const std::error_code& failed);

/// Reads and checks the manifest of a checkpoint folder. Errors: checkpoint "checkpoint-incomplete"
/// (missing, damaged), "checkpoint-version" (made by a newer program), "checkpoint-unreadable".
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& checkpoint);

/// Checks that every file is there with its size. Errors: checkpoint "checkpoint-incomplete" naming
/// the first bad one, "checkpoint-unreadable".
void check_files(const std::filesystem::path& checkpoint, const Manifest& manifest);

/// Sum of the file sizes, the manifest's included.
[[nodiscard]] std::int64_t total_bytes(const std::filesystem::path& checkpoint,
                                       const Manifest& manifest);

}  // namespace colossal::detail
