// The text in the manifest becomes a configuration again.
#include "checkpoint/stored_config.hpp"

#include "core/error.hpp"

#include <utility>

namespace colossal {

Loaded load_stored(const RunState& state, const LoadOptions& options) {
  LoadOptions stored = options;
  stored.stored = true;
  return load_text(state.config_yaml, "<stored configuration>", stored);
}

Config stored_config(const RunState& state) {
  Loaded loaded = load_stored(state, {});
  check(!loaded.has_errors(),
        ErrorKind::checkpoint,
        "checkpoint-config",
        "the configuration stored in the checkpoint (build {}) cannot be read by this program:\n{}",
        state.build_id,
        render(loaded.diagnostics));
  return std::move(loaded.config);
}

void check_tokenizer(const std::string& trained, const std::string& now) {
  check(
      trained.empty() || trained == now,
      ErrorKind::checkpoint,
      "tokenizer-mismatch",
      "the checkpoint was trained with the tokenizer {}, this one is {}: the same ids would stand "
      "for other texts\n  fix   give the files of data.tokenizer that it was trained with",
      trained,
      now.empty() ? "one without files" : now);
}

}  // namespace colossal
