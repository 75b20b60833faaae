// Is synthetic data a fixed function of its seed, and can a model learn its rule?
#include "data/synthetic.hpp"

#include "data_helpers.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

namespace colossal {
namespace {

using test::error_of;
using test::row_of;

DataConfig config_of(std::int64_t sequence, std::int64_t num_samples) {
  DataConfig config;
  config.type = DataType::synthetic;
  config.seq_length = sequence;
  config.num_samples = num_samples;
  return config;
}

std::unique_ptr<Dataset> open(const DataConfig& config,
                              std::int64_t seed,
                              Split split,
                              std::int64_t vocabulary = 32) {
  return open_dataset({.data = config, .vocab_size = vocabulary, .seed = seed, .split = split});
}

TEST_CASE("a synthetic sample depends on seed, split and index only", "[data]") {
  const DataConfig config = config_of(16, 100);
  const auto tokens = [&](std::int64_t seed, Split split, std::vector<std::int64_t> indices) {
    return row_of(open(config, seed, split)->read(indices), "tokens", 0);
  };
  const auto base = tokens(1, Split::train, {5});
  CHECK(base == tokens(1, Split::train, {5, 6}));
  CHECK(base != tokens(1, Split::train, {6}));
  CHECK(base != tokens(2, Split::train, {5}));
  CHECK(base != tokens(1, Split::eval, {5}));
}

TEST_CASE("labels are the next tokens, all inside the vocabulary", "[data]") {
  const auto set = open(config_of(64, 50), 3, Split::train, 7);
  for (std::int64_t i = 0; i < set->size(); ++i) {
    const Batch batch = set->read(std::array{i});
    const auto tokens = row_of(batch, "tokens", 0);
    const auto labels = row_of(batch, "labels", 0);
    CHECK(std::vector(tokens.begin() + 1, tokens.end()) ==
          std::vector(labels.begin(), labels.end() - 1));
    for (const std::int64_t token : tokens) {
      CHECK((token >= 0 && token < 7));
    }
  }
}

TEST_CASE("nine successors in ten follow one rule, the same in both splits", "[data]") {
  std::map<std::int64_t, std::map<std::int64_t, int>> successors;
  for (const Split split : {Split::train, Split::eval}) {
    const auto set = open(config_of(100, 200), 3, split);
    for (std::int64_t i = 0; i < std::min(set->size(), std::int64_t{20}); ++i) {
      const Batch batch = set->read(std::array{i});
      const auto tokens = row_of(batch, "tokens", 0);
      const auto labels = row_of(batch, "labels", 0);
      for (std::size_t at = 0; at < tokens.size(); ++at) {
        ++successors[tokens[at]][labels[at]];
      }
    }
  }
  int most_common = 0;
  for (const auto& [token, counts] : successors) {
    int highest = 0;
    for (const auto& [successor, count] : counts) {
      highest = std::max(highest, count);
    }
    most_common += highest;
  }
  CHECK(most_common / 4000.0 == Approx(0.903).margin(0.02));  // 0.9 + 0.1 / 32
}

TEST_CASE("evaluation holds a tenth of the samples, at least one", "[data]") {
  CHECK(open(config_of(4, 200), 1, Split::train)->size() == 200);
  CHECK(open(config_of(4, 200), 1, Split::eval)->size() == 20);
  CHECK(open(config_of(4, 5), 1, Split::eval)->size() == 1);
}

TEST_CASE("fingerprint and summary name what the content depends on", "[data]") {
  const auto print = [](std::int64_t seed, std::int64_t sequence) {
    return open(config_of(sequence, 10), seed, Split::train)->fingerprint();
  };
  CHECK(print(1, 4) == print(1, 4));
  CHECK(print(1, 4) != print(2, 4));
  CHECK(print(1, 4) != print(1, 5));
  CHECK(open(config_of(4, 10), 1, Split::train)->summary() ==
        "synthetic: 10 samples of 4 tokens, vocabulary 32");
}

TEST_CASE("bad requests of synthetic data are refused", "[data]") {
  CHECK(error_of([] { open(config_of(4, 10), 1, Split::train, 1); }).id() == "vocab-too-small");
  const auto set = open(config_of(4, 10), 1, Split::train);
  CHECK(error_of([&] { (void)set->read(std::array<std::int64_t, 1>{10}); }).id() == "sample-index");
}

}  // namespace
}  // namespace colossal
