// Is the next token drawn from exactly the distribution that the options describe?
#include "infer/sampler.hpp"

#include "unit/infer/infer_helpers.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace colossal::test {
namespace {

/// Logits of these probabilities, shifted: softmax must not care.
std::vector<double> logits_of(const std::vector<double>& probabilities) {
  std::vector<double> logits;
  for (const double p : probabilities) {
    logits.push_back(std::log(p) + 3);
  }
  return logits;
}

const std::vector<double> kHalves = {0.125, 0.5, 0.125, 0.25};

void require_distribution(const std::vector<double>& logits,
                          const SamplingOptions& options,
                          const std::map<std::int64_t, double>& expected,
                          const std::set<std::int64_t>& seen = {}) {
  const std::vector<Candidate> found = distribution(logits, seen, options);
  REQUIRE(found.size() == expected.size());
  auto wanted = expected.begin();
  for (const Candidate& candidate : found) {
    INFO("token " << candidate.id);
    REQUIRE(candidate.id == wanted->first);
    REQUIRE(candidate.probability == Approx(wanted->second).epsilon(1e-12));
    ++wanted;
  }
}

/// Chi-square of 100,000 draws against the exact probabilities.
double chi_square(const std::vector<double>& logits, const SamplingOptions& options) {
  constexpr int kDraws = 100'000;
  std::map<std::int64_t, int> counts;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    ++counts[next_token(logits, {}, options, {i % 7, i / 7})];
  }
  double sum = 0;
  int drawn = 0;
  for (const Candidate& candidate : distribution(logits, {}, options)) {
    const double expected = kDraws * candidate.probability;
    const double difference = counts[candidate.id] - expected;
    sum += difference * difference / expected;
    drawn += counts[candidate.id];
  }
  REQUIRE(drawn == kDraws);  // nothing outside the distribution
  return sum;
}

}  // namespace

TEST_CASE("without filters the distribution is the softmax", "[sampler]") {
  require_distribution(logits_of(kHalves), {}, {{0, 0.125}, {1, 0.5}, {2, 0.125}, {3, 0.25}});
}

TEST_CASE("temperature sharpens below one and flattens above", "[sampler]") {
  // p^(1/T), normalised
  require_distribution(logits_of({0.8, 0.2}), {.temperature = 0.5}, {{0, 16. / 17}, {1, 1. / 17}});
  require_distribution(logits_of({0.8, 0.2}), {.temperature = 2}, {{0, 2. / 3}, {1, 1. / 3}});
}

TEST_CASE("top-k keeps the k likeliest and ties of the last", "[sampler]") {
  const std::vector<double> logits = logits_of(kHalves);
  require_distribution(logits, {.top_k = 1}, {{1, 1}});
  require_distribution(logits, {.top_k = 2}, {{1, 2. / 3}, {3, 1. / 3}});
  require_distribution(logits, {.top_k = 3}, {{0, 0.125}, {1, 0.5}, {2, 0.125}, {3, 0.25}});
  require_distribution(logits, {.top_k = 99}, {{0, 0.125}, {1, 0.5}, {2, 0.125}, {3, 0.25}});
}

TEST_CASE("top-p keeps tokens until those before them exceed p", "[sampler]") {
  const std::vector<double> logits = logits_of(kHalves);
  require_distribution(logits, {.top_p = 1e-9}, {{1, 1}});
  require_distribution(logits, {.top_p = 0.49}, {{1, 1}});
  require_distribution(logits, {.top_p = 0.51}, {{1, 2. / 3}, {3, 1. / 3}});
  // of the two equal ones the lower id comes first
  require_distribution(logits, {.top_p = 0.8}, {{0, 1. / 7}, {1, 4. / 7}, {3, 2. / 7}});
  require_distribution(logits, {.top_p = 0.9}, {{0, 0.125}, {1, 0.5}, {2, 0.125}, {3, 0.25}});
}

TEST_CASE("top-p sees what temperature and top-k left", "[sampler]") {
  const std::vector<double> logits = logits_of(kHalves);
  // at temperature 0.5 the likeliest has 16/22: 0.6 needs no second one, as 0.5 would
  require_distribution(logits, {.temperature = 0.5, .top_p = 0.6}, {{1, 1}});
  // of the two that top-k leaves, the first has 2/3
  require_distribution(logits, {.top_k = 2, .top_p = 0.6}, {{1, 1}});
}

TEST_CASE("the repetition penalty acts on each token of the sequence", "[sampler]") {
  const std::vector<double> logits = {2, -2, 1};
  const double z = std::exp(1.) + std::exp(-4.) + std::exp(1.);
  require_distribution(logits,
                       {.repetition_penalty = 2},
                       {{0, std::exp(1.) / z}, {1, std::exp(-4.) / z}, {2, std::exp(1.) / z}},
                       {0, 1});
  const SamplingOptions greedy{.temperature = 0, .repetition_penalty = 3};
  CHECK(next_token(logits, {}, greedy, {}) == 0);
  CHECK(next_token(logits, {0}, greedy, {}) == 2);
  CHECK(next_token(logits, {0, 99}, greedy, {}) == 2);
}

TEST_CASE("greedy takes the lowest of equal ones and no random number", "[sampler]") {
  const std::vector<double> logits = {-1, 4, 4, 3};
  for (std::int64_t seed = 0; seed < 50; ++seed) {
    REQUIRE(next_token(logits, {}, {.temperature = 0, .seed = seed}, {}) == 1);
  }
}

TEST_CASE("draws follow the distribution", "[sampler]") {
  std::vector<double> logits;
  for (int i = 0; i < 20; ++i) {
    logits.push_back(std::sin(3.7 * i) * 2);
  }
  // 99.9 % points of chi-square: 43.8 for 19 degrees of freedom, 20.5 for 5; the draws are fixed
  CHECK(chi_square(logits, {}) < 43.8);
  CHECK(chi_square(logits, {.temperature = 1.7, .seed = 5}) < 43.8);
  CHECK(chi_square(logits, {.top_k = 6}) < 20.5);
  CHECK(chi_square(logits, {.top_p = 0.7}) < 43.8);
}

TEST_CASE("uniform numbers depend on seed, request and position", "[sampler]") {
  std::set<double> seen;
  double sum = 0;
  for (const std::int64_t seed : {0, 1}) {
    for (std::uint64_t request : {0ULL, 1ULL, 1ULL << 32U}) {
      for (std::uint64_t position = 0; position < 2000; ++position) {
        const double u = uniform(seed, {request, position});
        REQUIRE((u >= 0 && u < 1));
        seen.insert(u);
        sum += u;
      }
    }
  }
  CHECK(seen.size() == 12'000);
  CHECK(std::abs(sum / 12'000 - 0.5) < 0.01);
  CHECK(uniform(3, {4, 5}) == uniform(3, {4, 5}));
}

TEST_CASE("no temperature or penalty is too small or too large for the numbers", "[sampler]") {
  const std::vector<double> logits = {-40, 30, 29.5, 30};
  for (const double temperature : {1e-10, 1e-300, std::numeric_limits<double>::denorm_min()}) {
    require_distribution(
        logits, {.temperature = temperature}, {{0, 0}, {1, 0.5}, {2, 0}, {3, 0.5}});
    require_distribution(logits, {.temperature = temperature, .top_k = 1}, {{1, 0.5}, {3, 0.5}});
    CHECK(next_token(logits, {}, {.temperature = temperature, .top_p = 0.5}, {}) % 2 == 1);
  }
  require_distribution({2, 1}, {.repetition_penalty = 1e-308}, {{0, 1}, {1, 0}}, {0});
  require_distribution({-2, 1}, {.repetition_penalty = 1e308}, {{0, 0}, {1, 1}}, {0});
}

TEST_CASE("logits that are no numbers stop generation", "[sampler]") {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const std::vector<double> logits = {1, bad, 2};
    for (const double temperature : {0., 1.}) {
      require_error(ErrorKind::numerics, "nonfinite-logits", [&] {
        (void)next_token(logits, {}, {.temperature = temperature}, {});
      });
    }
  }
}

TEST_CASE("options outside their range are named", "[sampler]") {
  const double infinite = std::numeric_limits<double>::infinity();
  for (const SamplingOptions& options :
       std::vector<SamplingOptions>{{.temperature = -0.1},
                                    {.temperature = std::nan("")},
                                    {.temperature = infinite},
                                    {.top_k = -1},
                                    {.top_p = 0},
                                    {.top_p = 1.01},
                                    {.repetition_penalty = 0},
                                    {.repetition_penalty = infinite},
                                    {.seed = -1}}) {
    require_error(ErrorKind::usage, "out-of-range", [&] { check_options(options); });
  }
  check_options({.temperature = 0, .top_k = 0, .top_p = 1, .repetition_penalty = 0.5});
}

}  // namespace colossal::test
