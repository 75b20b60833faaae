// Which groups does a run use, and in which order are they made?
#include "mesh/context.hpp"

#include "core/error.hpp"

namespace colossal {

namespace {

/// The set without axes of size 1: they change no group.
AxisSet used(const AxisSet& set, const Mesh& mesh) {
  AxisSet result;
  for (std::size_t a = 0; a < kNumAxes; ++a) {
    result[a] = set[a] && mesh.size(static_cast<Axis>(a)) > 1;
  }
  return result;
}

}  // namespace

MeshShape mesh_shape(const ParallelConfig& parallel) {
  return {.dp = parallel.data};
}

at::ScalarType dtype(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return at::kDouble;
    case Precision::fp32:
    case Precision::tf32:
      return at::kFloat;
    case Precision::bf16:
      return at::kBFloat16;
    case Precision::fp16:
      return at::kHalf;
  }
  return at::kFloat;
}

ParallelContext::ParallelContext(const Config& config, World& world)
    : mesh_(mesh_shape(config.parallel), world.rank()),
      device_(world.device()),
      dtype_(colossal::dtype(config.train.precision)),
      seed_(static_cast<std::uint64_t>(config.run.seed)) {
  check(mesh_.world_size() == world.size(),
        ErrorKind::internal,
        "mesh-world",
        "the mesh has {} ranks, the world {}",
        mesh_.world_size(),
        world.size());
  make_groups(world);
}

ParallelContext::ParallelContext(const Config& config, at::Device device)
    : mesh_(MeshShape{}, 0),
      device_(device),
      dtype_(colossal::dtype(config.train.precision)),
      seed_(static_cast<std::uint64_t>(config.run.seed)) {}

void ParallelContext::make_groups(World& world) {
  if (const AxisSet set = used(data_axes(), mesh_); set.any()) {
    groups_.emplace(set.to_ulong(), world.make_group("data", mesh_.peers(set)));
  }
}

const Comm& ParallelContext::comm(const AxisSet& set) const {
  const AxisSet key = used(set, mesh_);
  if (key.none()) {
    return self_;
  }
  const auto group = groups_.find(key.to_ulong());
  check(group != groups_.end(),
        ErrorKind::internal,
        "no-group",
        "no group was made for axes {} of the mesh",
        key.to_string());
  return group->second;
}

}  // namespace colossal
