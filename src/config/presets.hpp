// Which model sizes have a name? The table of model-zoo section 1.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace colossal::detail {

/// Shape that `model.preset` fills in.
struct Preset {
  std::string_view name;
  std::int64_t num_layers;
  std::int64_t hidden_size;
  std::int64_t num_heads;
  std::int64_t max_seq_length;
  std::int64_t vocab_size;
};

/// All preset names, in table order.
[[nodiscard]] std::span<const std::string_view> preset_names();

/// The preset called `name`; nullptr if unknown.
[[nodiscard]] const Preset* find_preset(std::string_view name);

}  // namespace colossal::detail
