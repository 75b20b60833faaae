// How does a run survive? Per-rank HDF5 files under one manifest, any mesh into any mesh
// (architecture 5.9).
#pragma once

#include "comm/comm.hpp"
#include "mesh/layout.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// Boxes of one tensor that this rank holds, and the local memory they are part of. One tensor may
/// be spread over several records of its name.
struct TensorRecord {
  std::string name;  ///< "model/blocks.0.norm1.weight", "optim/exp_avg/blocks.0.norm1.weight"
  Shape global;      ///< logical shape: what readers see
  at::Tensor local;  ///< fp64, fp32, bf16, fp16 or int64; local_offset refers to its shape
  std::vector<Region> regions;
  bool owner = true;  ///< this rank writes the regions; ignored by loading
  /// For values that live elsewhere (on disk): makes `local` hold them, which other records may
  /// share.
  std::function<void()> bring = {};
  std::function<void()> keep = {};  ///< stores `local` after it was changed
};

/// Where the loss scale of an fp16 run stands.
struct LossScale {
  double scale = 0;
  std::int64_t growth = 0;      ///< clean steps since the last overflow or growth
  std::int64_t hysteresis = 0;  ///< overflows until the scale falls
  bool operator==(const LossScale&) const = default;
};

/// Everything besides tensors that a resume needs.
struct RunState {
  std::int64_t step = 0;                     ///< successful updates
  std::int64_t consumed = 0;                 ///< global samples
  std::int64_t skipped = 0;                  ///< skipped updates so far
  std::int64_t attempt = 1;                  ///< times this run directory was started
  std::optional<LossScale> loss_scale = {};  ///< fp16 only
  std::vector<double> recent_losses = {};    ///< of the last steps, with train.loss_spike
  std::string config_yaml;                   ///< resolved configuration
  std::string data_fingerprint;
  std::string build_id;
  bool weights_only = false;  ///< no optimizer state, nothing to go on from
  /// What was measured of exactly these weights: "eval/loss". Finite values only.
  std::map<std::string, double> metrics = {};
  bool operator==(const RunState&) const = default;
};

/// Which of all checkpoints is the best one.
struct BestRule {
  std::string metric;    ///< of RunState::metrics; checkpoints without it are no candidates
  bool highest = false;  ///< else the lowest value is best; of equal ones the newest
};

/// How a checkpoint is written, and which ones stay beside it.
struct SaveOptions {
  std::int64_t keep_last = 2;                   ///< newest complete ones
  std::int64_t attempt = 1;                     ///< suffix of the temporary folder
  std::optional<std::int64_t> keep_every = {};  ///< steps that it divides stay for good
  std::optional<BestRule> keep_best = {};       ///< the best one stays as well
  bool checksum = true;                         ///< a CRC-32C of every box
};

/// One save in three parts, so that the slow one can be done beside other work. Writes
/// step-XXXXXXXX under `root` atomically: temporary folder, rank files fsynced, then rank 0 writes
/// index.h5 and manifest.json, renames, replaces `latest` (or warns that it cannot), removes older
/// checkpoints and leftovers.
class CheckpointWriter {
 public:
  /// Makes the temporary folder. Collective over `world`. Errors (on every rank): checkpoint
  /// "checkpoint-write".
  CheckpointWriter(std::filesystem::path root, RunState state, Comm world, SaveOptions options);
  /// Without a commit() nothing stays behind.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Writes this rank's file and flushes it; host memory grows by at most one box. On any thread,
  /// but nothing else may use HDF5 meanwhile. What fails is thrown by commit().
  void write(std::span<const TensorRecord> tensors) noexcept;
  /// After write() has returned: collective over `world`, on the thread of its collectives. Returns
  /// the bytes of all files. Errors (on every rank): checkpoint "checkpoint-write" naming file and
  /// cause, the temporary folder is removed, older checkpoints stay; internal "checkpoint-record"
  /// or "checkpoint-coverage" if the records are not the boxes of whole tensors.
  std::int64_t commit();

  /// What the checkpoint will say of the run.
  [[nodiscard]] const RunState& state() const noexcept { return state_; }

 private:
  struct Temporary;

  std::filesystem::path root_;
  RunState state_;
  Comm world_;
  SaveOptions options_;
  std::unique_ptr<Temporary> temporary_;  ///< rank 0 only
  std::string table_;                     ///< what write() has written
  std::exception_ptr failure_;
};

/// All parts of a CheckpointWriter at once; its errors. Collective over `world`.
std::int64_t save_checkpoint(const std::filesystem::path& root,
                             const RunState& state,
                             std::span<const TensorRecord> tensors,
                             const Comm& world,
                             const SaveOptions& options);

/// Reads every region of every record from the rank files named in the manifest, checking
/// checksums where there are any; floating point types are converted. A stored tensor is unexpected
/// if no rank asks for it although some rank asks for another one of its top-level group ("model",
/// "optim"). Collective over `world`: if one rank fails, all throw. Host memory grows by the boxes
/// of one tensor. Errors: checkpoint "checkpoint-missing-tensor", "checkpoint-unexpected-tensor"
/// (first ten names), "checkpoint-shape" (first tensor, both shapes), "checkpoint-dtype" (integer
/// against floating point), "checkpoint-checksum" (tensor and file), "checkpoint-incomplete"
/// (file), "checkpoint-version".
void load_tensors(const std::filesystem::path& checkpoint,
                  std::span<TensorRecord> into,
                  const Comm& world);

/// The manifest's run state, without touching tensors. Errors: checkpoint "checkpoint-incomplete",
/// "checkpoint-version".
[[nodiscard]] RunState read_state(const std::filesystem::path& checkpoint);

/// A tensor of a checkpoint.
struct TensorInfo {
  std::string name;
  Shape global;
  at::ScalarType dtype = at::kFloat;
};

/// What a checkpoint holds, by name. Errors: those of read_state().
[[nodiscard]] std::vector<TensorInfo> list_tensors(const std::filesystem::path& checkpoint);

/// One checkpoint folder as found on disk.
struct CheckpointInfo {
  std::filesystem::path path;
  std::int64_t step = 0;
  bool complete = false;
  std::string problem = {};     ///< why it is not complete
  std::string unreadable = {};  ///< id of the error that kept us from judging it: it may be whole
};

/// All step-* folders under `root`, by step number, oldest first; none if `root` does not exist.
/// Checks manifest and file sizes, not checksums. Errors: checkpoint "checkpoint-unreadable" if
/// `root` is no folder or cannot be read.
[[nodiscard]] std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& root);

/// The checkpoints of a folder as a reader takes them.
struct CheckpointChoice {
  /// Complete ones, best (newest) first; a later one is used only if a damage of the earlier ones
  /// shows while reading.
  std::vector<CheckpointInfo> candidates;
  std::vector<CheckpointInfo> damaged;  ///< newer than the first candidate and passed over
};

/// Sorts the checkpoints under `root`; both lists are empty if there are none. Errors: checkpoint
/// "checkpoint-damaged" if there are only damaged ones, each listed with its reason; `advice` is
/// what the user can do then; "checkpoint-unreadable" if the newest one that is not damaged cannot
/// be read now; and those of list_checkpoints().
[[nodiscard]] CheckpointChoice choose_checkpoints(
    const std::filesystem::path& root, std::string_view advice = "restore one of them from a copy");

/// The checkpoint that `path` means: itself, or the newest one among its step-* folders or those of
/// its `checkpoints` folder. Errors: checkpoint "checkpoint-none" if there is none,
/// "checkpoint-incomplete" if the newest is damaged (names the newest complete one), and those of
/// choose_checkpoints().
[[nodiscard]] std::filesystem::path find_checkpoint(const std::filesystem::path& path);

/// What inspect() shows besides run state and sizes.
struct InspectOptions {
  bool tensors = false;  ///< the table of tensors
  bool verify = false;   ///< read every byte and check it
  bool json = false;     ///< one JSON object instead of text
  std::optional<std::filesystem::path>
      diff;  ///< compare with another checkpoint: names, shapes, max|a-b|
};

/// Describes a checkpoint, or the newest one of a run directory, as text or JSON ending in a
/// newline. Errors: those of find_checkpoint(); checkpoint "checkpoint-incomplete",
/// "checkpoint-checksum" or "checkpoint-version" if it is damaged.
[[nodiscard]] std::string inspect(const std::filesystem::path& checkpoint_or_run,
                                  const InspectOptions& options);

}  // namespace colossal
