// The steps from logits to a token, in the order that the header states.
#include "infer/sampler.hpp"

#include "core/error.hpp"
#include "mesh/philox.hpp"
#include "mesh/random.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace colossal {
namespace {

/// Logits after the penalty, as candidates whose `probability` is still a logit.
std::vector<Candidate> penalised(std::span<const double> logits,
                                 const std::set<std::int64_t>& seen,
                                 double penalty) {
  std::vector<Candidate> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    candidates[i] = {static_cast<std::int64_t>(i), logits[i]};
  }
  if (penalty == 1) {
    return candidates;
  }
  for (const std::int64_t id : seen) {
    if (id < std::ssize(candidates)) {  // a prompt may hold ids that are never chosen
      double& logit = candidates[static_cast<std::size_t>(id)].probability;
      const double punished = logit > 0 ? logit / penalty : logit * penalty;
      logit = std::clamp(
          punished, std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max());
    }
  }
  return candidates;
}

/// Before in the order of falling likelihood, of equal ones by id.
bool likelier(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
}

/// Keeps logits not below the k-th largest.
void keep_top_k(std::vector<Candidate>& candidates, std::int64_t k) {
  if (k == 0 || k >= std::ssize(candidates)) {
    return;
  }
  const auto last = candidates.begin() + (k - 1);
  std::nth_element(candidates.begin(), last, candidates.end(), likelier);
  const double least = last->probability;
  std::erase_if(candidates, [&](const Candidate& c) { return c.probability < least; });
}

/// Logits become probabilities.
void normalise(std::vector<Candidate>& candidates) {
  const double top = std::ranges::max_element(candidates, {}, &Candidate::probability)->probability;
  double sum = 0;
  for (Candidate& candidate : candidates) {
    candidate.probability = std::exp(candidate.probability - top);
    sum += candidate.probability;
  }
  for (Candidate& candidate : candidates) {
    candidate.probability /= sum;
  }
}

/// Keeps the likeliest candidates before which the sum does not exceed p. A heap: few are taken of
/// many.
void keep_top_p(std::vector<Candidate>& candidates, double p) {
  const auto less_likely = [](const Candidate& a, const Candidate& b) { return likelier(b, a); };
  std::vector<Candidate> kept;
  std::make_heap(candidates.begin(), candidates.end(), less_likely);
  for (double before = 0; !candidates.empty() && before <= p;) {
    std::pop_heap(candidates.begin(), candidates.end(), less_likely);
    kept.push_back(candidates.back());
    candidates.pop_back();
    before += kept.back().probability;
  }
  for (Candidate& candidate : kept) {
    candidate.probability = std::log(candidate.probability);
  }
  normalise(kept);
  candidates = std::move(kept);
}

void check_finite(std::span<const double> logits, const DrawKey& key) {
  const auto bad = std::ranges::find_if(logits, [](double x) { return !std::isfinite(x); });
  check(
      bad == logits.end(),
      ErrorKind::numerics,
      "nonfinite-logits",
      "the logit of token {} is not finite at position {} of prompt {}: the weights are not usable "
      "(did training diverge?)",
      bad - logits.begin(),
      key.position,
      key.request + 1);
}

}  // namespace

void check_options(const SamplingOptions& options) {
  const auto need = [](bool ok, const char* option, double value, const char* range) {
    check(ok,
          ErrorKind::usage,
          "out-of-range",
          "{} {} is out of range: give {}",
          option,
          value,
          range);
  };
  need(options.temperature >= 0 && std::isfinite(options.temperature),
       "--temperature",
       options.temperature,
       "a number from 0 (always the most likely token)");
  need(options.top_k >= 0,
       "--top-k",
       static_cast<double>(options.top_k),
       "a whole number from 1, or 0 for all tokens");
  need(options.top_p > 0 && options.top_p <= 1,
       "--top-p",
       options.top_p,
       "a number above 0 and up to 1 (all tokens)");
  need(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty),
       "--repetition-penalty",
       options.repetition_penalty,
       "a number above 0; 1 is none");
  need(options.seed >= 0, "--seed", static_cast<double>(options.seed), "a whole number from 0");
}

std::vector<Candidate> distribution(std::span<const double> logits,
                                    const std::set<std::int64_t>& seen,
                                    const SamplingOptions& options) {
  std::vector<Candidate> candidates = penalised(logits, seen, options.repetition_penalty);
  // Distances to the largest logit: however small the temperature, they end at 0 and -infinity.
  const double top = std::ranges::max_element(candidates, {}, &Candidate::probability)->probability;
  for (Candidate& candidate : candidates) {
    candidate.probability =
        candidate.probability == top ? 0 : (candidate.probability - top) / options.temperature;
  }
  keep_top_k(candidates, options.top_k);
  normalise(candidates);
  if (options.top_p < 1) {
    keep_top_p(candidates, options.top_p);
  }
  std::ranges::sort(candidates, {}, &Candidate::id);
  return candidates;
}

double uniform(std::int64_t seed, const DrawKey& key) noexcept {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); };
  const auto words =
      philox4x32(stream_key(static_cast<std::uint64_t>(seed), "generate"),
                 {low(key.position), high(key.position), low(key.request), high(key.request)});
  const std::uint64_t bits = (std::uint64_t{words[1]} << 32U) | words[0];
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

std::int64_t next_token(std::span<const double> logits,
                        const std::set<std::int64_t>& seen,
                        const SamplingOptions& options,
                        const DrawKey& key) {
  check_finite(logits, key);
  if (options.temperature == 0) {
    const std::vector<Candidate> all = penalised(logits, seen, options.repetition_penalty);
    return std::ranges::min_element(all, likelier)->id;
  }
  const std::vector<Candidate> candidates = distribution(logits, seen, options);
  double rest = uniform(options.seed, key);
  for (const Candidate& candidate : candidates) {
    rest -= candidate.probability;
    if (rest < 0) {
      return candidate.id;
    }
  }
  return candidates.back().id;  // the sum of the probabilities was rounded below 1
}

}  // namespace colossal
