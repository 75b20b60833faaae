// What do the commands do that only read configurations? Nothing here needs LibTorch.
#pragma once

#include "config/load.hpp"
#include "train/commands.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// What load() is given for a configuration named on the command line.
[[nodiscard]] LoadOptions load_options(const ConfigOptions& options,
                                       std::optional<std::int64_t> world_size = std::nullopt);

/// "20261128-041500": the local time now, for ${run.time}.
[[nodiscard]] std::string start_time();

/// Command line of `validate`.
struct ValidateOptions {
  std::vector<std::string> configs;
  ConfigOptions more;  ///< overlays, --set and the form of diagnostics; `config` is not used
  std::optional<std::int64_t> world_size;
  bool data = false;  ///< also open the data
};

/// Command line of `config show`.
struct ShowOptions {
  ConfigOptions config;
  bool minimal = false;
  bool origins = false;
};

/// Command line of `config explain`: KEY, or CONFIG and KEY in either order.
struct ExplainOptions {
  std::vector<std::string> words;
  ConfigOptions more;  ///< overlays and --set, with a CONFIG
};

/// Command line of `config diff`: files or run directories.
struct DiffOptions {
  std::string a;
  std::string b;
};

/// Command line of `config init`.
struct InitOptions {
  std::string name;
  std::optional<std::string> output;  ///< unset: stdout
};

/// check_data() of commands.hpp, where LibTorch is at hand.
using DataCheck = std::function<int(const Loaded& loaded, bool json)>;

/// Prints `FILE: ok` or the diagnostics of each file; as JSON, nothing but diagnostics. Goes on
/// after a bad file; returns the code of the first. `check_data` runs with options.data.
int run_validate(const ValidateOptions& options, const DataCheck& check_data);
/// Prints the configuration as YAML. Errors: none but diagnostics.
int run_config_show(const ShowOptions& options);
/// Prints type, default and meaning of a key, with its value and origins if a file is given.
/// Errors: usage "unknown-key", "unexpected-argument".
int run_config_explain(const ExplainOptions& options);
/// Prints the keys whose values differ, as lines with - and +. Errors: none but diagnostics.
int run_config_diff(const DiffOptions& options);
/// Prints an example, or writes it and says what to do next: one file whose paths hold in the
/// working directory or where it lies. Errors: usage "unknown-example", "file-exists", config
/// "output-not-writable".
int run_config_init(const InitOptions& options);

}  // namespace colossal
