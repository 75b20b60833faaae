// Where does a run continue, and may it? The tables of config-and-cli 6.4.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "config/config.hpp"
#include "config/load.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace colossal {

/// What checkpoint.resume asks of an output folder.
struct ResumeRequest {
  std::string mode;                   ///< auto, never, require, or a checkpoint or run folder
  std::filesystem::path checkpoints;  ///< <output_dir>/checkpoints
};

/// Reads the folders, changes nothing. A path to weights alone (RunState::weights_only) is where a
/// run begins: checkpoints of its own come first, so that the same command can be given again
/// (note "init-ignored"). Errors: checkpoint "checkpoint-required" (require without
/// one), "checkpoint-damaged" (only damaged ones, each listed with its reason), those of
/// find_checkpoint() for a given path; config "output-exists" (never, or a path that is not the
/// newest of the output folder, while complete ones exist).
[[nodiscard]] CheckpointChoice choose_resume(const ResumeRequest& request);

/// Facts of a checkpoint and of this start that must agree.
struct ResumeFacts {
  const Config& saved;
  const Config& now;
  std::string saved_fingerprint;
  std::string now_fingerprint;
  bool weights_only = false;  ///< only the function that the model computes must be the same
  /// The checkpoint lies inside an epoch: another order of its samples would show some of them
  /// twice and others never, so run.seed and data.shuffle need --allow.
  bool inside_epoch = false;
};

/// Whether a run that stands at `state` is inside an epoch of `epoch_samples`. Files that are drawn
/// by weight have epochs of their own, which end at other samples: always then.
[[nodiscard]] bool lies_inside_epoch(const RunState& state,
                                     std::int64_t epoch_samples,
                                     const DataConfig& data);

/// Compares them and returns the table `key | checkpoint | now | effect`, empty without
/// differences. `allow`: key paths the user accepts (--allow). Errors, each with the table:
/// checkpoint "resume-mismatch" for keys that must match, "resume-needs-allow" for keys that
/// --allow would accept.
[[nodiscard]] std::string compare_for_resume(const ResumeFacts& facts,
                                             const std::vector<std::string>& allow);

}  // namespace colossal
