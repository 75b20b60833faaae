// Which weights does a new run begin with (model.init_from)? Those of a checkpoint of ours or of a
// .safetensors file, whole or not at all.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "comm/comm.hpp"
#include "config/config.hpp"
#include "mesh/context.hpp"

#include <filesystem>
#include <span>

namespace colossal {

/// Compares what config.model.init_from holds with the model, without memory for either: names,
/// shapes, kinds of numbers and, where the file tells, the function that was trained. Errors: data
/// "file-not-found"; checkpoint "weights-mismatch" (the first ten differences), and those of
/// find_checkpoint() and WeightsFile. Returns what was compared: the file, or the checkpoint that
/// is the newest one now.
std::filesystem::path check_initial_weights(const Config& config);

/// The same where they are asked for and needed: a run that has chosen a checkpoint to go on from
/// leaves them alone (note "init-ignored"), and gets an empty path. For one rank, before anything
/// is built.
std::filesystem::path settle_initial_weights(const Config& config, const CheckpointChoice& chosen);

/// Fills the records "model/*" of `records` from what settle_initial_weights() returned, `from` of
/// all ranks; the others stay. Collective over `world`. Host memory grows by two copies of the
/// largest tensor. Errors: those of load_tensors() and WeightsFile.
void load_initial_weights(const std::filesystem::path& from,
                          const Config& config,
                          const ParallelContext& context,
                          std::span<const TensorRecord> records,
                          const Comm& world);

}  // namespace colossal
