// Which data does a run see, and do they fit its configuration (phase P7 of config-and-cli 1.6)?
#pragma once

#include "config/load.hpp"
#include "data/dataset.hpp"
#include "data/sampler.hpp"

#include <memory>
#include <vector>

namespace colossal {

/// True if any evaluation can be asked for, so that the evaluation set must exist.
[[nodiscard]] bool evaluates(const Config& config);

/// How the training stream of this configuration is ordered.
[[nodiscard]] OrderSpec order_spec(const Config& config);

/// The configuration with data.validate no more than header, for ranks whose files another rank
/// reads whole.
[[nodiscard]] Config checked_elsewhere(Config config);

/// Training and evaluation data as the configuration names them. Shared: whoever checked them hands
/// them on, so that a process reads them once.
struct OpenedData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> eval;  ///< null if nothing evaluates
};

/// Opens and checks one split. Errors: data (exit 4).
[[nodiscard]] std::unique_ptr<const Dataset> open_split(const Config& config, Split split);

/// Opens and checks all data of a training run. Errors: data (exit 4).
[[nodiscard]] OpenedData open_data(const Config& config);

/// What check_with_data() found.
struct DataFindings {
  std::vector<Diagnostic> diagnostics;  ///< may hold nothing but warnings
  int exit_code = 0;                    ///< 3 if a key is wrong, 4 if only the data are too small
};

/// Everything about a training run that needs its data or its parameter names, but no ranks:
/// "pattern-unused" (a glob of the user that matches no parameter), "data-too-small" (no whole
/// global batch), and the rules about the length of a run in epochs ("warmup-too-long", ...).
/// `loaded` has no errors; a batch that follows from an unknown number of processes is left out.
[[nodiscard]] DataFindings check_with_data(const Loaded& loaded, const Dataset& train);

}  // namespace colossal
