// What does a sweep file say? Its keys, and the parts whose keys are those of a configuration.
#pragma once

#include "config/compose.hpp"
#include "config/fields.hpp"
#include "config/tree.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace colossal {

/// How the trials of a sweep are made.
enum class SweepMethod : std::uint8_t { grid, list, random };

/// What a failed trial means for those that have not started.
enum class OnFailure : std::uint8_t { keep_on, stop };

/// YAML section `run` of a sweep.
struct SweepRun {
  std::optional<std::int64_t> nproc = 1;  ///< processes of a trial; unset = auto
  std::int64_t parallel = 1;              ///< trials at a time
  OnFailure on_failure = OnFailure::keep_on;
  std::int64_t retries = 0;  ///< of a trial that may pass another time
  std::string output_dir;    ///< empty: sweeps/NAME under the working directory
};

/// A sweep file.
struct SweepFile {
  std::int64_t version = 1;
  std::string name;  ///< default: stem of the file
  std::string base;
  Origin base_origin;
  SweepMethod method = SweepMethod::grid;
  std::optional<std::int64_t> samples = {};  ///< random only
  std::int64_t seed = 1;                     ///< random only
  SweepRun run;
  Origin place;  ///< of the file: its first line
  // The parts below are trees: null nodes where the file has none.
  detail::Node parameters;  ///< key: list of values (grid) or a distribution (random)
  detail::Node zip;         ///< grid only: list of {key: list of values}
  detail::Node exclude;     ///< grid only: list of {key: value}
  detail::Node trials;      ///< list only: list of {key: value}
};

namespace detail {

template <>
inline constexpr std::array<std::string_view, 3> kWords<SweepMethod> = {"grid", "list", "random"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<OnFailure> = {"continue", "stop"};

/// Calls `v` for every key of a sweep file, in YAML order; the parts that are trees by
/// Visitor::tree.
void describe(Visitor& v, SweepFile& c);
void describe(Visitor& v, SweepRun& c);

/// A part of a sweep file that only some methods know.
struct MethodKey {
  std::string_view key;
  std::string_view methods;  ///< words with spaces between
  bool required;
};

/// All of them.
[[nodiscard]] std::span<const MethodKey> method_keys();

/// The composed tree of `yaml` as a sweep file. Reports the ids of Composer and bind_keys,
/// bad-name, interp-unknown, and required and unused-section for keys of one method.
[[nodiscard]] SweepFile read_sweep(const std::filesystem::path& yaml,
                                   Composer& composer,
                                   Report& report);

}  // namespace detail
}  // namespace colossal
