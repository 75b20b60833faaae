// How do live shards become checkpoint records? By name and box, whatever the memory plan.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "memory/chunk_store.hpp"
#include "mesh/layout.hpp"
#include "nn/parameter.hpp"
#include "optim/optimizer.hpp"

#include <span>
#include <vector>

namespace colossal {

/// Records "model/<name>" (masters) and "optim/<state>/<name>" of everything `shards` hold: views
/// of live memory, vocabulary padding left out. A segment that is only part of its parameter's
/// local tensor gives one record per box. `parameters` is indexed by Segment::param. Errors:
/// internal "record-box" if a box of a partial segment is not contiguous.
[[nodiscard]] std::vector<TensorRecord> make_records(std::span<const FlatShard> shards,
                                                     std::span<Parameter* const> parameters,
                                                     const Mesh& mesh);

/// Appends records "optim/<state>/<name>" of the states that every rank holds whole; one rank of
/// those with the same parameters writes them.
void append_records(std::span<const WholeState> states,
                    std::span<Parameter* const> parameters,
                    const Mesh& mesh,
                    std::vector<TensorRecord>& records);

}  // namespace colossal
