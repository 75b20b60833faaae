// What does `generate` do? Continues prompts with a checkpoint's model.
#pragma once

#include "infer/sampler.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace colossal {

/// Command line of `generate`.
struct GenerateOptions {
  std::string checkpoint;         ///< checkpoint folder or run directory (its newest one)
  std::string prompt;             ///< "-": one a line from stdin
  std::vector<std::string> sets;  ///< --set texts over the stored configuration
  std::int64_t max_tokens = 200;  ///< new tokens of each prompt
  SamplingOptions sampling;
  bool json = false;  ///< one object a prompt in place of text
};

/// Prints each prompt with its continuation to stdout as it comes, speed and load time to stderr.
/// Reads only the weights of the checkpoint; needs no training data. Returns the exit code. Errors:
/// usage "out-of-range"; config "not-generative", "no-tokenizer"; data "empty-prompt",
/// "prompt-too-long", "token-range", "vocab-too-small" and those of the tokenizer; checkpoint;
/// numerics "nonfinite-logits"; environment "output-write".
int run_generate(const GenerateOptions& options);

}  // namespace colossal
