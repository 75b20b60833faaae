// How do the weights of another program become a checkpoint?
#include "checkpoint/checkpoint.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "infer/detail/passage.hpp"
#include "infer/exchange.hpp"
#include "models/weights_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;

/// The configuration of the command line; empty if it is wrong, which is printed.
std::optional<Config> read_config(const ImportOptions& options) {
  LoadOptions load_options;
  for (const std::string& text : options.sets) {
    load_options.overrides.push_back(Override{text});
  }
  Loaded loaded = load(options.config, load_options);
  if (!loaded.has_errors()) {  // batches follow from the number of processes, and are stored, too
    load_options.world_size = std::max<std::int64_t>(1, loaded.config.parallel.data);
    load_options.world_origin = "what the configuration asks for";
    loaded = load(options.config, load_options);
  }
  if (loaded.has_errors()) {
    const std::string text = render(loaded.diagnostics, diagnostic_form(false, 2));
    std::fwrite(text.data(), 1, text.size(), stderr);
    return std::nullopt;
  }
  resolve_vocabulary(loaded);
  return std::move(loaded.config);
}

void refuse_used_folder(const fs::path& folder) {
  std::error_code failed;
  check(!fs::exists(folder, failed) || fs::is_empty(folder, failed),
        ErrorKind::config,
        "output-exists",
        "{} exists and is not an empty folder\n  fix   choose another one with -o",
        folder.string());
}

}  // namespace

int run_import(const ImportOptions& options) {
  refuse_used_folder(options.output);
  const std::optional<Config> config = read_config(options);
  if (!config) {
    return static_cast<int>(ErrorKind::config);
  }
  const ParallelContext context(*config);
  const std::vector<ParamSpec> specs = detail::owning_parameters(*config, context);
  const WeightsFile file(options.file, config->model, specs);
  file.require_range(context.master_dtype());

  std::vector<TensorRecord> records = detail::sharing_records(specs, context.master_dtype());
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].bring = [&file, &name = specs[i].name, local = records[i].local] {
      local.copy_(file.values(name));
    };
  }
  RunState state;
  state.weights_only = true;
  state.config_yaml = to_yaml(*config);
  state.build_id = options.build_id;
  save_checkpoint(options.output, state, records, Comm(), {});
  log::info("[import] {} tensors; start from them: train {} --resume {}",
            records.size(),
            options.config,
            options.output);
  fmt::print("{}\n", find_checkpoint(options.output).string());
  return 0;
}

}  // namespace colossal
