// How does a run survive? Per-rank HDF5 files under one manifest, any mesh into any mesh (architecture 5.9).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "mesh/layout.hpp"

namespace colossal {

/// One tensor as seen by this rank: boxes of the whole, and the local memory they are part of.
struct TensorRecord {
  std::string name;  ///< "model/blocks.0.norm1.weight", "optim/exp_avg/blocks.0.norm1.weight"
  Shape global;      ///< logical shape: what readers see
  at::Tensor local;  ///< contiguous; its shape is what local_offset refers to
  std::vector<Region> regions;
  bool owner = true;  ///< this rank writes the regions
};

/// Everything besides tensors that a resume needs.
struct RunState {
  std::int64_t step = 0;      ///< successful updates
  std::int64_t consumed = 0;  ///< global samples
  std::int64_t skipped = 0;   ///< skipped updates so far
  std::int64_t attempt = 1;   ///< times this run directory was started
  std::string config_yaml;    ///< resolved configuration
  std::string data_fingerprint;
  std::string build_id;
};

/// Where checkpoints of a run live: <run>/checkpoints/step-00001000, and `latest`.
struct SaveOptions {
  std::int64_t keep_last = 2;
  int attempt = 1;
};

/// Writes step-XXXXXXXX under `root` atomically: temporary folder, rank files fsynced, barrier, rank 0 writes index.h5 and
/// manifest.json, renames, replaces `latest`, applies retention. Collective over `world`.
/// Returns the bytes of all files. Errors: checkpoint "checkpoint-write" naming file and cause (the temporary folder is
/// removed, older checkpoints stay; every rank throws).
std::int64_t save_checkpoint(const std::filesystem::path& root,
                             const RunState& state,
                             std::span<const TensorRecord> tensors,
                             const Comm& world,
                             const SaveOptions& options);

/// Reads every region of every record from the rank files named in the manifest and checks checksums. Collective only in
/// the sense that every rank must call it. Errors: checkpoint "checkpoint-missing-tensor", "checkpoint-unexpected-tensor",
/// "checkpoint-shape" (first tensor, both shapes), "checkpoint-checksum", "checkpoint-incomplete" (file named).
void load_tensors(const std::filesystem::path& checkpoint, std::span<TensorRecord> into);

/// The manifest's run state, without touching tensors. Errors: checkpoint "checkpoint-incomplete".
[[nodiscard]] RunState read_state(const std::filesystem::path& checkpoint);

/// One checkpoint folder as found on disk.
struct CheckpointInfo {
  std::filesystem::path path;
  std::int64_t step = 0;
  bool complete = false;
  std::string problem;  ///< why it is not complete
};

/// All step-* folders under `root`, by step number, oldest first. Checks manifest and file sizes, not checksums.
[[nodiscard]] std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& root);

/// Tensor table, sizes, run state of a checkpoint or the newest one of a run directory, as text; `verify` reads every
/// byte. Errors: checkpoint (exit 5) when damaged.
struct InspectOptions {
  bool tensors = false;
  bool verify = false;
  bool json = false;
  std::optional<std::filesystem::path> diff;  ///< compare with another checkpoint: names, shapes, max|a-b|
};
[[nodiscard]] std::string inspect(const std::filesystem::path& checkpoint_or_run, const InspectOptions& options);

}  // namespace colossal
