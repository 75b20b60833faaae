// How do live shards become checkpoint records? Segments mapped through the layout's boxes.
#include "train/records.hpp"

#include <string>

namespace colossal {
namespace {

/// The record of one segment, of which `flat` is the master or a state.
TensorRecord make_record(const std::string& prefix,
                         const at::Tensor& flat,
                         const Segment& segment,
                         const ParamSpec& spec,
                         const Mesh& mesh) {
  const Shape local = local_shape(spec.layout, spec.padded, mesh);
  TensorRecord record;
  record.name = prefix + spec.name;
  record.global = spec.shape;
  record.local = flat.narrow(0, segment.offset, segment.end - segment.begin);
  record.regions = flat_range(logical_regions(spec, mesh), local, segment.begin, segment.end);
  record.owner = is_owner(spec, mesh);
  if (segment.begin == 0 && segment.end == numel(local)) {
    record.local = record.local.view(local);
  } else {
    record.piece = FlatPiece{local, segment.begin};
  }
  return record;
}

}  // namespace

std::vector<TensorRecord> make_records(std::span<const FlatShard> shards,
                                       std::span<Parameter* const> parameters,
                                       const Mesh& mesh) {
  std::vector<TensorRecord> records;
  for (const FlatShard& shard : shards) {
    for (const Segment& segment : shard.segments) {
      const ParamSpec& spec = parameters[static_cast<std::size_t>(segment.param)]->spec();
      records.push_back(make_record("model/", shard.master, segment, spec, mesh));
      for (const auto& [state, tensor] : shard.state) {
        records.push_back(make_record("optim/" + state + "/", tensor, segment, spec, mesh));
      }
    }
  }
  return records;
}

}  // namespace colossal
