// How do live shards become checkpoint records? By name and box, whatever the memory plan.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "memory/chunk_store.hpp"
#include "mesh/layout.hpp"
#include "nn/parameter.hpp"

#include <span>
#include <vector>

namespace colossal {

/// Records "model/<name>" (masters) and "optim/<state>/<name>" of everything `shards` hold: views
/// of live memory, vocabulary padding left out; a segment that is only part of its parameter's
/// local tensor becomes a FlatPiece. `parameters` is indexed by Segment::param.
[[nodiscard]] std::vector<TensorRecord> make_records(std::span<const FlatShard> shards,
                                                     std::span<Parameter* const> parameters,
                                                     const Mesh& mesh);

}  // namespace colossal
