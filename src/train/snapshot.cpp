// How is the state copied while it stands still? All values of a type in one piece of host memory.
#include "train/snapshot.hpp"

#include "memory/host_memory.hpp"

#include <ATen/ops/empty.h>

#include <cstdint>
#include <map>
#include <utility>

namespace colossal {
namespace {

/// Elements of each type that this rank owns.
std::map<at::ScalarType, std::int64_t> owned_elements(std::span<const TensorRecord> records) {
  std::map<at::ScalarType, std::int64_t> elements;
  for (const TensorRecord& record : records) {
    for (const Region& region : record.regions) {
      elements[record.local.scalar_type()] += record.owner ? numel(region.extent) : 0;
    }
  }
  return elements;
}

/// The memory of `region` inside of its record.
at::Tensor view_of(const TensorRecord& record, const Region& region) {
  at::Tensor view = record.local.detach();
  for (std::size_t d = 0; d < region.extent.size(); ++d) {
    view = view.narrow(static_cast<std::int64_t>(d), region.local_offset[d], region.extent[d]);
  }
  return view;
}

/// What another rank owns: a name and a type.
TensorRecord without_values(const TensorRecord& record) {
  return {.name = record.name,
          .global = record.global,
          .local = at::empty({0}, at::TensorOptions().dtype(record.local.scalar_type())),
          .regions = {},
          .owner = false};
}

/// Host memory of one type, given out in order.
struct Slab {
  at::Tensor memory;
  std::int64_t used = 0;

  at::Tensor take(const Shape& shape) {
    const std::int64_t count = numel(shape);
    const at::Tensor part = memory.narrow(0, used, count).view(shape);
    used += count;
    return part;
  }
};

/// Copies of the regions of one record.
void append_copies(const TensorRecord& record,
                   std::map<at::ScalarType, Slab>& slabs,
                   std::vector<TensorRecord>& copies) {
  if (record.bring) {
    record.bring();
  }
  for (const Region& region : record.regions) {
    TensorRecord copy = without_values(record);
    if (numel(region.extent) > 0) {
      copy.local = slabs.at(record.local.scalar_type()).take(region.extent);
      copy.local.copy_(view_of(record, region));
      copy.regions = {{region.global_offset, Shape(region.extent.size(), 0), region.extent}};
      copy.owner = true;
    }
    copies.push_back(std::move(copy));
  }
}

}  // namespace

std::vector<TensorRecord> snapshot(std::span<const TensorRecord> records) {
  std::map<at::ScalarType, Slab> slabs;
  for (const auto& [dtype, elements] : owned_elements(records)) {
    if (elements > 0) {
      slabs[dtype] = {host_empty(elements, dtype)};
    }
  }
  std::vector<TensorRecord> copies;
  copies.reserve(records.size());
  for (const TensorRecord& record : records) {
    if (record.owner && !record.regions.empty()) {
      append_copies(record, slabs, copies);
    } else {
      copies.push_back(without_values(record));
    }
  }
  return copies;
}

}  // namespace colossal
