// What does everything below the trainer know about the parallel world? One immutable object,
// passed by reference.
#pragma once

#include "comm/comm.hpp"
#include "comm/world.hpp"
#include "config/config.hpp"
#include "mesh/dtype.hpp"
#include "mesh/layout.hpp"

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace colossal {

/// Mesh sizes that a resolved configuration asks for.
[[nodiscard]] MeshShape mesh_shape(const ParallelConfig& parallel);

/// at dtype of train.precision.
[[nodiscard]] at::ScalarType dtype(Precision precision);

/// Mesh, groups, device, dtype and seed of this rank. Immutable after construction.
class ParallelContext {
 public:
  /// Makes one group per axis set in use, in a fixed order on all ranks (collective). Computes on
  /// the device of `world`.
  ParallelContext(const Config& config, World& world);
  /// A world of one process without groups: planning, tests, inspection.
  explicit ParallelContext(const Config& config, at::Device device = at::kCPU);

  /// This rank's place among all.
  [[nodiscard]] const Mesh& mesh() const noexcept { return mesh_; }
  /// Group of the ranks that differ from this one only in these axes. Errors: internal "no-group"
  /// for a set of more than one rank that was not made at construction.
  [[nodiscard]] const Comm& comm(const AxisSet& set) const;
  [[nodiscard]] at::Device device() const noexcept { return device_; }
  /// Dtype of computation, activations and working weights (train.precision).
  [[nodiscard]] at::ScalarType dtype() const noexcept { return dtype_; }
  /// Dtype of master weights: the wider of fp32 and dtype().
  [[nodiscard]] at::ScalarType master_dtype() const noexcept { return wide_dtype(dtype_); }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }

 private:
  void make_groups(World& world);

  Mesh mesh_;
  at::Device device_;
  at::ScalarType dtype_;
  std::uint64_t seed_;
  Comm self_;                             // of every set of one rank
  std::map<unsigned long, Comm> groups_;  // by AxisSet::to_ulong()
};

}  // namespace colossal
