// Do records name every element of a shard by its place in the whole tensor?
#include "train/records.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/neg.h>

namespace colossal::test {
namespace {

const Mesh kAlone(MeshShape{}, 0);

/// A [5, 4] table padded to 8 rows, at offset 64 of a shard of 128 elements.
struct Padded {
  Parameter parameter{ParamSpec{.name = "embed.tokens.weight",
                                .shape = {5, 4},
                                .padded = {8, 4},
                                .layout = {},
                                .init = {},
                                .tied_to = {}}};
  FlatShard shard{.master = at::arange(128, at::kDouble),
                  .grad = {},
                  .working = {},
                  .state = {{"exp_avg", at::neg(at::arange(128, at::kDouble))}},
                  .segments = {{.param = 0, .begin = 0, .end = 32, .offset = 64}},
                  .shard_axes = {}};

  [[nodiscard]] std::vector<TensorRecord> records(const Mesh& mesh = kAlone) {
    Parameter* const list[] = {&parameter};
    return make_records({&shard, 1}, list, mesh);
  }
};

}  // namespace

TEST_CASE("a whole parameter is one record per master and state, without padding", "[records]") {
  Padded fixture;
  const std::vector<TensorRecord> records = fixture.records();
  REQUIRE(records.size() == 2);
  CHECK(records[0].name == "model/embed.tokens.weight");
  CHECK(records[1].name == "optim/exp_avg/embed.tokens.weight");
  for (const TensorRecord& record : records) {
    CHECK(record.global == Shape{5, 4});
    CHECK(record.local.sizes() == at::IntArrayRef({8, 4}));
    CHECK(record.owner);
    REQUIRE(record.regions.size() == 1);
    CHECK(record.regions[0].extent == Shape{5, 4});
    CHECK(record.regions[0].local_offset == Shape{0, 0});
  }
  CHECK(records[0].local[0][0].item<double>() == 64);
  CHECK(records[1].local[4][3].item<double>() == -83);
}

TEST_CASE("records are views: writing into one writes the shard", "[records]") {
  Padded fixture;
  fixture.records()[0].local.fill_(3);
  CHECK(fixture.shard.master[70].item<double>() == 3);
  CHECK(fixture.shard.master[63].item<double>() == 63);
}

TEST_CASE("a part of a parameter gives one record per box", "[records]") {
  Padded fixture;
  // Elements 6 to 17 of the table: the end of row 1, rows 2 and 3, the start of row 4.
  fixture.shard.segments = {{.param = 0, .begin = 6, .end = 18, .offset = 64}};
  at::Tensor whole = at::full({5, 4}, -1.0, at::kDouble);
  std::int64_t covered = 0;
  for (const TensorRecord& record : fixture.records()) {
    if (!record.name.starts_with("model/")) {
      continue;
    }
    const Region& box = record.regions.at(0);
    whole.narrow(0, box.global_offset[0], box.extent[0])
        .narrow(1, box.global_offset[1], box.extent[1])
        .copy_(record.local);
    covered += numel(box.extent);
  }
  CHECK(covered == 12);
  CHECK(at::equal(whole.view({-1}).narrow(0, 6, 12), at::arange(64, 76, at::kDouble)));
}

TEST_CASE("a part that holds padding only gives no record", "[records]") {
  Padded fixture;
  fixture.shard.segments = {{.param = 0, .begin = 20, .end = 32, .offset = 0}};
  CHECK(fixture.records().empty());
}

TEST_CASE("only one rank of a data axis owns a replicated parameter", "[records]") {
  Padded fixture;
  fixture.parameter =
      Parameter(ParamSpec{.name = "norm.weight",
                          .shape = {8, 4},
                          .padded = {8, 4},
                          .layout = {.dims = {}, .replicated = data_axes(), .partial = {}},
                          .init = {},
                          .tied_to = {}});
  CHECK(fixture.records(Mesh({.dp = 2}, 0))[0].owner);
  CHECK_FALSE(fixture.records(Mesh({.dp = 2}, 1))[0].owner);
}

TEST_CASE("a box that is scattered in its shard is refused", "[records]") {
  Padded fixture;
  fixture.parameter = Parameter(ParamSpec{.name = "scattered",
                                          .shape = {8, 3},
                                          .padded = {8, 4},
                                          .layout = {},
                                          .init = {},
                                          .tied_to = {}});
  fixture.shard.segments = {{.param = 0, .begin = 0, .end = 28, .offset = 0}};
  try {
    static_cast<void>(fixture.records());
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.id() == "record-box");
  }
}

}  // namespace colossal::test
