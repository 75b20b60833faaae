// Which memory is a box of a tensor, and what do two boxes share?
#pragma once

#include "checkpoint/checkpoint.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace colossal::detail {

/// An axis-aligned part of a tensor. The box of a scalar has no dims and one element.
struct Box {
  Shape offset;
  Shape extent;
  bool operator==(const Box&) const = default;
};

/// The common part of two boxes of one tensor; nothing if it is empty.
[[nodiscard]] std::optional<Box> intersect(const Box& a, const Box& b);

/// True if all boxes lie in a tensor of this shape and together hold each of its elements exactly
/// once.
[[nodiscard]] bool tiles(std::vector<Box> boxes, const Shape& global);

/// The memory of `box` inside a tensor that holds `held`; a view.
[[nodiscard]] at::Tensor view_of(const at::Tensor& tensor, const Box& held, const Box& box);

/// The memory of a record's region, without autograd; a view.
[[nodiscard]] at::Tensor view_of(const TensorRecord& record, const Region& region);

/// "[2, 3]".
[[nodiscard]] std::string to_text(const Shape& shape);

/// Checks what the caller promises about its records: names, types, memory and boxes that fit
/// together. Errors: internal "checkpoint-record" naming the record.
void check_records(std::span<const TensorRecord> records);

}  // namespace colossal::detail
