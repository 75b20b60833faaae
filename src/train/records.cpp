// How do live shards become checkpoint records? Segments mapped through the layout's boxes.
#include "train/records.hpp"

#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>

namespace colossal {
namespace {

/// Row-major position of `offset` in a tensor of shape `local`.
std::int64_t flat_index(const Shape& offset, const Shape& local) {
  std::int64_t index = 0;
  for (std::size_t dim = 0; dim < local.size(); ++dim) {
    index = index * local[dim] + offset[dim];
  }
  return index;
}

/// True if the box's elements are neighbours in a row-major tensor of shape `local`.
bool is_contiguous(const Region& box, const Shape& local) {
  bool whole = true;  // all dims inside the current one are whole
  for (std::size_t dim = local.size(); dim-- > 0;) {
    if (!whole && box.extent[dim] != 1) {
      return false;
    }
    whole = whole && box.extent[dim] == local[dim];
  }
  return true;
}

/// Everything about one segment that its master and states have in common.
struct SegmentBoxes {
  const ParamSpec& spec;
  const Segment& segment;
  Shape local;
  std::vector<Region> boxes;
  bool owner;

  void append(const std::string& prefix,
              const at::Tensor& flat,
              std::vector<TensorRecord>& records) const {
    const std::string name = prefix + spec.name;
    if (segment.begin == 0 && segment.end == numel(local)) {
      records.push_back({name,
                         spec.shape,
                         flat.narrow(0, segment.offset, segment.end).view(local),
                         boxes,
                         owner});
      return;
    }
    for (const Region& box : boxes) {
      check(is_contiguous(box, local),
            ErrorKind::internal,
            "record-box",
            "a part of '{}' is not contiguous in its shard",
            spec.name);
      const std::int64_t at = segment.offset + flat_index(box.local_offset, local) - segment.begin;
      const Region moved{box.global_offset, Shape(local.size(), 0), box.extent};
      records.push_back({name,
                         spec.shape,
                         flat.narrow(0, at, numel(box.extent)).view(box.extent),
                         {moved},
                         owner});
    }
  }
};

SegmentBoxes boxes_of(const Segment& segment,
                      const ParamSpec& spec,
                      const AxisSet& cut,
                      const Mesh& mesh) {
  const Shape local = local_shape(spec.layout, spec.padded, mesh);
  const std::vector<Region> parts = logical_regions(spec, mesh);
  return {spec,
          segment,
          local,
          flat_range(parts, local, segment.begin, segment.end),
          is_owner(spec, mesh, cut)};
}

}  // namespace

std::vector<TensorRecord> make_records(std::span<const FlatShard> shards,
                                       std::span<Parameter* const> parameters,
                                       const Mesh& mesh) {
  std::vector<TensorRecord> records;
  const auto append = [&](const FlatShard& shard, const Segment& segment) {
    const ParamSpec& spec = parameters[static_cast<std::size_t>(segment.param)]->spec();
    const SegmentBoxes boxes = boxes_of(segment, spec, shard.shard_axes, mesh);
    boxes.append("model/", shard.master, records);
    const std::size_t masters = records.size();
    for (const auto& [state, tensor] : shard.state) {
      boxes.append("optim/" + state + "/", tensor, records);
    }
    for (TensorRecord& record : std::span(records).subspan(masters)) {
      record.bring = shard.bring_states;
      record.keep = shard.keep_states;
    }
  };
  for (const FlatShard& shard : shards) {
    for (const Segment& segment : shard.segments) {
      append(shard, segment);
    }
  }
  return records;
}

void append_records(std::span<const WholeState> states,
                    std::span<Parameter* const> parameters,
                    const Mesh& mesh,
                    std::vector<TensorRecord>& records) {
  for (const WholeState& state : states) {
    ParamSpec whole;  // in no axis' hands: the first rank of all axes but pp owns it
    whole.name = parameters[static_cast<std::size_t>(state.param)]->spec().name;
    whole.shape = state.values.sizes().vec();
    const Shape origin(whole.shape.size(), 0);
    records.push_back({fmt::format("optim/{}/{}", state.name, whole.name),
                       whole.shape,
                       state.values,
                       {{origin, origin, whole.shape}},
                       is_owner(whole, mesh)});
  }
}

}  // namespace colossal
