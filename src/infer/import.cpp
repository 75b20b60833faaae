// How do the weights of another program become a checkpoint?
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/safetensors.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "infer/detail/passage.hpp"
#include "infer/exchange.hpp"
#include "models/exchange.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
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
  return std::move(loaded.config);
}

/// Equal as numbers, whatever types hold them.
bool same_values(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() ? at::equal(a, b)
                                            : at::equal(a.to(at::kDouble), b.to(at::kDouble));
}

/// Where each parameter lies in the file; collects everything that does not fit.
class Matching {
 public:
  Matching(const SafetensorsFile& file, const ModelConfig& model) : file_(file), model_(model) {}

  void match(const std::vector<ExchangedTensor>& wanted) {
    for (const ExchangedTensor& tensor : wanted) {
      if (const SafeTensor* const entry = find(tensor.name); entry == nullptr) {
        problems_.push_back(fmt::format("missing: {}", tensor.name));
      } else if (fits(*entry, tensor.shape)) {
        sources_[tensor.parameter] = {entry, tensor.transposed};
      }
    }
    for (const SafeTensor& entry : file_.tensors()) {
      if (!used_.contains(&entry) && !is_mask_buffer(entry.name)) {
        match_rest(entry);
      }
    }
  }

  /// Says what else is wrong.
  void add(const std::vector<std::string>& problems) {
    problems_.insert(problems_.end(), problems.begin(), problems.end());
  }

  /// Errors: checkpoint "weights-mismatch".
  void require_complete() const {
    constexpr std::size_t kShown = 10;
    std::string text;
    for (std::size_t i = 0; i < std::min(kShown, problems_.size()); ++i) {
      text += "\n  " + problems_[i];
    }
    if (problems_.size() > kShown) {
      text += fmt::format("\n  and {} more", problems_.size() - kShown);
    }
    check(problems_.empty(),
          ErrorKind::checkpoint,
          "weights-mismatch",
          "{} does not fit the model of the configuration:{}\n  fix   change the section model",
          file_.path().string(),
          text);
  }

  /// No number may become infinite in the type of the masters. Errors: numerics
  /// "weights-overflow".
  void require_range(at::ScalarType master) const {
    for (const auto& [parameter, source] : sources_) {
      if (source.entry->dtype != at::kDouble || master == at::kDouble) {
        continue;  // masters hold what any narrower type does
      }
      const at::Tensor values = file_.read(*source.entry);
      check(at::equal(at::isfinite(values), at::isfinite(values.to(master))),
            ErrorKind::numerics,
            "weights-overflow",
            "'{}' has values that {} cannot hold\n  fix   --set train.precision=fp64",
            source.entry->name,
            safetensors_word(master));
    }
  }

  /// The values of a parameter, in its own shape and the type of the file.
  [[nodiscard]] at::Tensor values(const std::string& parameter) const {
    const auto& [entry, transposed] = sources_.at(parameter);
    const at::Tensor values = file_.read(*entry);
    return transposed ? values.t() : values;
  }

 private:
  struct Source {
    const SafeTensor* entry = nullptr;
    bool transposed = false;
  };

  const SafeTensor* find(const std::string& name) {
    const SafeTensor* entry = file_.find(name);
    entry = entry != nullptr ? entry : file_.find(without_prefix(name));
    used_.insert(entry);
    return entry;
  }

  bool fits(const SafeTensor& entry, const Shape& shape) {
    const bool is_number =
        entry.dtype != at::ScalarType::Undefined && c10::isFloatingType(entry.dtype);
    if (!is_number) {
      problems_.push_back(
          fmt::format("type: {} is stored as {}, weights must be F64, F32, F16 or BF16",
                      entry.name,
                      safetensors_word(entry.dtype)));
    } else if (entry.shape != shape) {
      problems_.push_back(
          fmt::format("shape: {} is {} in the file, {} here", entry.name, entry.shape, shape));
    }
    return is_number && entry.shape == shape;
  }

  /// A tensor that no parameter asked for: the head of tied embeddings may be stored twice.
  void match_rest(const SafeTensor& entry) {
    const auto embedding = sources_.find("embed.tokens.weight");
    const bool is_head = entry.name == "lm_head.weight" || entry.name == "head.weight";
    if (!is_head || !model_.tie_embeddings || embedding == sources_.end()) {
      problems_.push_back(fmt::format("unknown: {}", entry.name));
    } else if (fits(entry, embedding->second.entry->shape) &&
               !same_values(file_.read(entry), file_.read(*embedding->second.entry))) {
      problems_.push_back(fmt::format(
          "{} differs from the embeddings: it needs model.tie_embeddings: false", entry.name));
    }
  }

  const SafetensorsFile& file_;
  const ModelConfig& model_;
  std::map<std::string, Source> sources_;  // by parameter
  std::set<const SafeTensor*> used_;
  std::vector<std::string> problems_;
};

/// What config.json, if there is one, says otherwise than the configuration.
std::vector<std::string> described_otherwise(const fs::path& weights, const ModelConfig& model) {
  const fs::path file = detail::config_beside(weights);
  std::error_code failed;
  if (!fs::exists(file, failed)) {
    return {};
  }
  return config_differences(model, read_text(file));
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
  const SafetensorsFile file(options.file);
  const ParallelContext context(*config);
  const std::vector<ParamSpec> specs = detail::owning_parameters(*config, context);
  Matching matching(file, config->model);
  matching.add(described_otherwise(file.path(), config->model));
  matching.match(exchanged_tensors(config->model, specs));
  matching.require_complete();
  matching.require_range(context.master_dtype());

  std::vector<TensorRecord> records = detail::sharing_records(specs, context.master_dtype());
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].bring = [&matching, &name = specs[i].name, local = records[i].local] {
      local.copy_(matching.values(name));
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
