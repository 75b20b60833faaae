// Which part of a parameter does a rank hold, and how does it get memory and first values?
#include "nn/parameter.hpp"

#include "core/error.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>

namespace colossal {

namespace {

/// The part of `box` inside the first `shape` elements of each dim; false if there is none.
bool clip(Region& box, const Shape& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    box.extent[d] = std::min(box.extent[d], shape[d] - box.global_offset[d]);
    if (box.extent[d] <= 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

Parameter::Parameter(ParamSpec spec) : spec_(std::move(spec)) {
  if (spec_.padded.empty()) {
    spec_.padded = spec_.shape;
  }
}

const at::Tensor& Parameter::tensor() const {
  check(available_,
        ErrorKind::internal,
        "parameter-unavailable",
        "parameter {} is used while its owner has not acquired it",
        spec_.name);
  return leaf_;
}

void Parameter::attach(at::Tensor leaf) {
  leaf_ = std::move(leaf);
}

std::vector<Region> logical_regions(const ParamSpec& spec, const Mesh& mesh) {
  std::vector<Region> boxes = regions(spec.layout, spec.padded, mesh);
  std::erase_if(boxes, [&](Region& box) { return !clip(box, spec.shape); });
  return boxes;
}

bool is_owner(const ParamSpec& spec, const Mesh& mesh, const AxisSet& cut) {
  AxisSet others = ~(spec.layout.sharded() | cut);
  others.reset(static_cast<std::size_t>(Axis::pp));
  return mesh.index(others) == 0;
}

void initialize(at::Tensor& local, const ParamSpec& spec, const ParallelContext& context) {
  const std::vector<Region> parts = logical_regions(spec, context.mesh());
  initialize(local, spec.init, stream_key(context.seed(), spec.name), spec.shape, parts);
}

void materialize(std::span<Parameter* const> parameters, const ParallelContext& context) {
  std::map<std::string, at::Tensor, std::less<>> owned;
  for (Parameter* const parameter : parameters) {
    const ParamSpec& spec = parameter->spec();
    if (spec.tied_to.empty()) {
      const Shape shape = local_shape(spec.layout, spec.padded, context.mesh());
      at::Tensor leaf =
          at::empty(shape, at::TensorOptions(context.device()).dtype(context.dtype()));
      initialize(leaf, spec, context);
      leaf.set_requires_grad(true);
      owned.emplace(spec.name, leaf);
      parameter->attach(std::move(leaf));
      parameter->set_available(true);
    }
  }
  for (Parameter* const parameter : parameters) {
    const ParamSpec& spec = parameter->spec();
    if (!spec.tied_to.empty()) {
      const auto owner = owned.find(spec.tied_to);
      check(owner != owned.end(),
            ErrorKind::internal,
            "tied-owner",
            "parameter {} is tied to {}, which is not among the parameters",
            spec.name,
            spec.tied_to);
      parameter->attach(owner->second);
      parameter->set_available(true);
    }
  }
}

}  // namespace colossal
