// Are synthetic rows reproducible, classed by one rule in both splits, and worth learning?
#include "data/synthetic_features.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace colossal {
namespace {

DatasetRequest request(const DataConfig& data, Split split = Split::train) {
  return {.data = data, .vocab_size = 3, .seed = 7, .split = split, .num_features = 4};
}

DataConfig config() {
  DataConfig data;
  data.type = DataType::synthetic;
  data.num_samples = 2000;
  return data;
}

Batch read_all(const Dataset& dataset) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return dataset.read(indices);
}

TEST_CASE("rows are a function of seed, split and index", "[data]") {
  const DataConfig data = config();
  const auto dataset = open_dataset(request(data));
  const std::vector<std::int64_t> some = {5, 1999, -1, 5};
  const Batch batch = dataset->read(some);
  const at::Tensor& features = batch.at("features");
  CHECK(features.sizes() == at::IntArrayRef{4, 1, 4});
  CHECK(features.scalar_type() == at::kFloat);
  CHECK(batch.at("labels").sizes() == at::IntArrayRef{4, 1});
  CHECK(at::equal(features[0], features[3]));
  CHECK_FALSE(at::equal(features[0], features[1]));
  CHECK(batch.at("labels")[2].item<std::int64_t>() == kIgnoreLabel);
  CHECK(features[2].abs().sum().item<double>() == 0);
  const auto again = open_dataset(request(data));
  CHECK(at::equal(again->read(some).at("features"), features));
  CHECK(again->fingerprint() == dataset->fingerprint());
  DatasetRequest other = request(data);
  other.seed = 8;
  CHECK_FALSE(at::equal(open_dataset(other)->read(some).at("features"), features));
  CHECK(open_dataset(other)->fingerprint() != dataset->fingerprint());
}

TEST_CASE("values fill [-1, 1) and no class is rare", "[data]") {
  const Batch all = read_all(*open_dataset(request(config())));
  const at::Tensor& features = all.at("features");
  CHECK(features.min().item<double>() >= -1);
  CHECK(features.max().item<double>() < 1);
  CHECK(features.mean().item<double>() == Approx(0).margin(0.03));
  for (std::int64_t label = 0; label < 3; ++label) {
    CHECK(all.at("labels").eq(label).sum().item<std::int64_t>() > 200);
  }
}

/// Share of evaluation rows whose nearest training row has the same class.
double nearest_neighbour_accuracy(const Batch& train, const Batch& eval) {
  const at::Tensor x = train.at("features").squeeze(1);
  const std::int64_t rows = eval.at("features").size(0);
  std::int64_t hits = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    const at::Tensor distances = (x - eval.at("features")[i]).pow(2).sum(1);
    const std::int64_t nearest = distances.argmin().item<std::int64_t>();
    hits += train.at("labels")[nearest].equal(eval.at("labels")[i]) ? 1 : 0;
  }
  return static_cast<double>(hits) / static_cast<double>(rows);
}

TEST_CASE("evaluation has other rows under the same rule", "[data]") {
  const DataConfig data = config();
  const Batch train = read_all(*open_dataset(request(data)));
  const auto eval = open_dataset(request(data, Split::eval));
  CHECK(eval->size() == 200);
  const Batch rows = read_all(*eval);
  CHECK_FALSE(at::equal(rows.at("features")[0], train.at("features")[0]));
  CHECK(nearest_neighbour_accuracy(train, rows) > 0.75);  // a third by chance
}

TEST_CASE("one class cannot be learnt", "[data]") {
  const DataConfig data = config();
  DatasetRequest bad = request(data);
  bad.vocab_size = 1;
  try {
    (void)open_dataset(bad);
    FAIL("no exception");
  } catch (const Error& error) {
    CHECK(error.id() == "too-few-classes");
    CHECK(error.exit_code() == 4);
  }
}

}  // namespace
}  // namespace colossal
