// Which folders of a run are checkpoints, and which of them may go?
#pragma once

#include "checkpoint/checkpoint.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace colossal::detail {

/// "step-00001000".
[[nodiscard]] std::string folder_name(std::int64_t step);

/// "step-00001000.tmp-2": where attempt 2 of the run writes that step.
[[nodiscard]] std::string temporary_name(std::int64_t step, std::int64_t attempt);

/// The step of a folder name made by folder_name(); nothing for others.
[[nodiscard]] std::optional<std::int64_t> step_of(std::string_view folder) noexcept;

/// Removes all complete checkpoints but `saved` and those that `options` keeps, and what
/// interrupted saves left behind. Says so in the log if it cannot; incomplete folders without a
/// temporary name stay, as evidence.
void remove_old(const std::filesystem::path& root, std::int64_t saved, const SaveOptions& options);

}  // namespace colossal::detail
