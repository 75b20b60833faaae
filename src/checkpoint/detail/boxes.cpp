// Which memory is a box of a tensor, and what do two boxes share?
#include "checkpoint/detail/boxes.hpp"

#include "checkpoint/detail/hdf5.hpp"
#include "core/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace colossal::detail {
namespace {

Shape shape_of(const at::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

bool fits(const Shape& offset, const Shape& extent, const Shape& shape) {
  if (offset.size() != shape.size() || extent.size() != shape.size()) {
    return false;
  }
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (offset[d] < 0 || extent[d] < 0 || offset[d] + extent[d] > shape[d]) {
      return false;
    }
  }
  return true;
}

/// Sorted by their start in dim 0, a box can only meet those that start before it ends: near linear
/// for usual splits.
bool any_overlap(std::vector<Box> boxes) {
  if (boxes.empty() || boxes.front().offset.empty()) {
    return boxes.size() > 1;
  }
  std::ranges::sort(boxes, {}, [](const Box& box) { return box.offset[0]; });
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const std::int64_t end = boxes[i].offset[0] + boxes[i].extent[0];
    const auto meets = [&](const Box& later) { return intersect(boxes[i], later).has_value(); };
    const auto next = boxes.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    const auto stop =
        std::find_if(next, boxes.end(), [&](const Box& later) { return later.offset[0] >= end; });
    if (std::any_of(next, stop, meets)) {
      return true;
    }
  }
  return false;
}

bool is_path(std::string_view name) {
  return !name.empty() && name.front() != '/' && name.back() != '/' &&
         name.find('/') != std::string_view::npos && name.find("//") == std::string_view::npos &&
         name.find('#') == std::string_view::npos;
}

void check_region(const TensorRecord& record, const Region& region) {
  const Shape local = shape_of(record.local);
  const bool inside = fits(region.global_offset, region.extent, record.global) &&
                      fits(region.local_offset, region.extent, local);
  check(inside,
        ErrorKind::internal,
        "checkpoint-record",
        "record {}: box {} at {} / local {} is outside {} / local {}",
        record.name,
        region.extent,
        region.global_offset,
        region.local_offset,
        record.global,
        local);
}

}  // namespace

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box common = a;
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    const std::int64_t begin = std::max(a.offset[d], b.offset[d]);
    const std::int64_t end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    if (begin >= end) {
      return std::nullopt;
    }
    common.offset[d] = begin;
    common.extent[d] = end - begin;
  }
  return common;
}

bool tiles(std::vector<Box> boxes, const Shape& global) {
  std::int64_t total = 0;
  for (const Box& box : boxes) {
    if (!fits(box.offset, box.extent, global)) {
      return false;
    }
    total += numel(box.extent);
  }
  return total == numel(global) && !any_overlap(std::move(boxes));
}

at::Tensor view_of(const at::Tensor& tensor, const Box& held, const Box& box) {
  at::Tensor view = tensor;
  for (std::size_t d = 0; d < box.offset.size(); ++d) {
    if (box.extent[d] != held.extent[d]) {
      view =
          view.narrow(static_cast<std::int64_t>(d), box.offset[d] - held.offset[d], box.extent[d]);
    }
  }
  return view;
}

at::Tensor view_of(const TensorRecord& record, const Region& region) {
  const Shape local = shape_of(record.local);
  const Box whole{Shape(local.size(), 0), local};
  return view_of(record.local.detach(), whole, {region.local_offset, region.extent});
}

std::string to_text(const Shape& shape) {
  return fmt::format("{}", shape);
}

void check_records(std::span<const TensorRecord> records) {
  std::map<std::string_view, const TensorRecord*> first;
  for (const TensorRecord& record : records) {
    check(is_path(record.name),
          ErrorKind::internal,
          "checkpoint-record",
          "record name '{}' is not of the form group/name",
          record.name);
    check(record.local.defined() && is_storable(record.local.scalar_type()),
          ErrorKind::internal,
          "checkpoint-record",
          "record {}: type must be float64, float32, bfloat16, float16 or int64",
          record.name);
    const TensorRecord& other = *first.try_emplace(record.name, &record).first->second;
    check(other.global == record.global && other.local.scalar_type() == record.local.scalar_type(),
          ErrorKind::internal,
          "checkpoint-record",
          "records of {} disagree: {} {} and {} {}",
          record.name,
          dtype_name(other.local.scalar_type()),
          other.global,
          dtype_name(record.local.scalar_type()),
          record.global);
    for (const Region& region : record.regions) {
      check_region(record, region);
    }
  }
}

}  // namespace colossal::detail
