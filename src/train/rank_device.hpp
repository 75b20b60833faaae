// How does a rank get the device that its configuration asks for?
#pragma once

#include "mesh/device.hpp"

namespace colossal {

/// The collective library that was asked for moves tensors of `device`. Errors: config "gpu-only",
/// "comm-backend".
void check_backend(CommBackend backend, const DeviceChoice& choice);

/// Only a GPU can record steps. Errors: config "gpu-only" for train.cuda_graph: true on a CPU.
void check_graph(CudaGraph wanted, const DeviceChoice& choice);

/// Only a GPU multiplies in tf32. Errors: config "gpu-only" for train.precision: tf32 on a CPU.
void check_precision(Precision wanted, const DeviceChoice& choice);

/// The device of this rank, made ready, its memory and the host's counted and limited as the
/// configuration says; people are told if it is not what they may expect. Errors:
/// those of choose_device(), use_device(), check_backend(), check_graph() and
/// check_precision().
[[nodiscard]] DeviceChoice take_device(const Config& config, const LaunchOptions& launch);

}  // namespace colossal
