// Which token comes next? The rules from logits to one id, pure functions of the logits, the tokens
// so far and a key.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace colossal {

/// How the next token is chosen.
struct SamplingOptions {
  double temperature = 1;         ///< logits are divided by it; 0: always the most likely token
  std::int64_t top_k = 0;         ///< only the k most likely tokens (and ties of the last); 0: all
  double top_p = 1;               ///< only the most likely tokens that together reach p
  double repetition_penalty = 1;  ///< makes tokens of the sequence less likely if > 1
  std::int64_t seed = 0;          ///< at least 0
};

/// Errors: usage "out-of-range" naming the option.
void check_options(const SamplingOptions& options);

/// Which random number a token gets: equal in any batch, on any machine.
struct DrawKey {
  std::uint64_t request = 0;   ///< number of the prompt, from 0
  std::uint64_t position = 0;  ///< of the token in its sequence, from 0
};

/// A token that may come next.
struct Candidate {
  std::int64_t id = 0;
  double probability = 0;
};

/// The tokens that may come next and their probabilities (sum 1), by id. In this order: repetition
/// penalty (a positive logit is divided by it, another multiplied) on the tokens that the sequence
/// has `seen`, temperature, top-k, top-p: falling from the most likely token, those are kept before
/// which the sum does not exceed p, of equal ones the lowest id first. options.temperature > 0.
/// Source: Holtzman et al. 2020 (top-p), Keskar et al. 2019 (penalty).
[[nodiscard]] std::vector<Candidate> distribution(std::span<const double> logits,
                                                  const std::set<std::int64_t>& seen,
                                                  const SamplingOptions& options);

/// Uniform in [0, 1): 53 bits of Philox keyed by seed, request and position.
[[nodiscard]] double uniform(std::int64_t seed, const DrawKey& key) noexcept;

/// The next token: the lowest id of the largest logit at temperature 0, else drawn from
/// distribution(). Errors: numerics "nonfinite-logits".
[[nodiscard]] std::int64_t next_token(std::span<const double> logits,
                                      const std::set<std::int64_t>& seen,
                                      const SamplingOptions& options,
                                      const DrawKey& key);

}  // namespace colossal
