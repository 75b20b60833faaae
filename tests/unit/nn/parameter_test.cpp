// Are parameters guarded, shared where tied, owned once, and cut to their logical shape?
#include "nn/parameter.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <string>

namespace colossal {
namespace {

ParamSpec padded_table() {
  ParamSpec spec;
  spec.name = "embed.tokens.weight";
  spec.shape = {6, 4};
  spec.padded = {8, 4};
  spec.layout.dims = {{{Axis::t0}, {}}};
  spec.layout.replicated = data_axes();
  spec.init = {InitSpec::Kind::normal, 0.5};
  return spec;
}

ParallelContext fp64_context() {
  Config config;
  config.train.precision = Precision::fp64;
  return ParallelContext(config);
}

std::string id_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error.id()) + ": " + error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a parameter without memory, or released, cannot be read", "[nn]") {
  Parameter parameter(padded_table());
  const std::string text = id_of([&] { (void)parameter.tensor(); });
  REQUIRE_THAT(text, Catch::Matchers::StartsWith("parameter-unavailable"));
  REQUIRE_THAT(text, Catch::Matchers::Contains("embed.tokens.weight"));
  parameter.attach(at::zeros({8, 4}));
  REQUIRE(!id_of([&] { (void)parameter.tensor(); }).empty());
  parameter.set_available(true);
  REQUIRE(parameter.tensor().is_same(parameter.leaf()));
  parameter.set_available(false);
  REQUIRE(!id_of([&] { (void)parameter.tensor(); }).empty());
}

TEST_CASE("an unpadded parameter stores its logical shape", "[nn]") {
  ParamSpec spec;
  spec.shape = {3, 2};
  REQUIRE(Parameter(spec).spec().padded == Shape{3, 2});
}

TEST_CASE("logical regions end where padding begins", "[nn]") {
  const ParamSpec spec = padded_table();
  const auto boxes = [&](int ranks, int rank) {
    return logical_regions(spec, Mesh({.t0 = ranks}, rank));
  };
  REQUIRE((boxes(1, 0) == std::vector<Region>{{{0, 0}, {0, 0}, {6, 4}}}));
  REQUIRE((boxes(2, 0) == std::vector<Region>{{{0, 0}, {0, 0}, {4, 4}}}));
  REQUIRE((boxes(2, 1) == std::vector<Region>{{{4, 0}, {0, 0}, {2, 4}}}));
  REQUIRE(boxes(4, 3).empty());  // holds padding only
}

TEST_CASE("exactly one rank of every copy owns a shard", "[nn]") {
  const MeshShape shape{.dr = 2, .dp = 2, .pp = 2, .t0 = 2};
  int owners = 0;
  for (int rank = 0; rank < 16; ++rank) {
    const Mesh mesh(shape, rank);
    const bool first = mesh.coord(Axis::dr) == 0 && mesh.coord(Axis::dp) == 0;
    REQUIRE(is_owner(padded_table(), mesh) == first);
    owners += first;
  }
  REQUIRE(owners == 4);  // pp x t0: each stage has its own parameters, t0 shards this one
}

TEST_CASE("materialize initialises, shares tied memory and leaves gradients undefined", "[nn]") {
  const ParallelContext context = fp64_context();
  Parameter table(padded_table());
  ParamSpec tied_spec = padded_table();
  tied_spec.name = "head.weight";
  tied_spec.tied_to = "embed.tokens.weight";
  Parameter head(tied_spec);
  const std::vector<Parameter*> all = {&head, &table};  // the owner need not come first
  materialize(all, context);
  REQUIRE(head.tensor().is_same(table.tensor()));
  REQUIRE(table.tensor().requires_grad());
  REQUIRE(!table.tensor().grad().defined());
  REQUIRE(table.tensor().scalar_type() == at::kDouble);
  REQUIRE(at::equal(table.tensor().detach().narrow(0, 6, 2), at::zeros({2, 4}, at::kDouble)));
  at::Tensor again = at::zeros({8, 4});
  initialize(again, table.spec(), context);
  REQUIRE(at::equal(again.to(at::kDouble), table.tensor().detach()));
}

TEST_CASE("a tied parameter without its owner is an internal error", "[nn]") {
  ParamSpec spec = padded_table();
  spec.tied_to = "absent.weight";
  Parameter parameter(spec);
  const std::vector<Parameter*> all = {&parameter};
  const std::string text = id_of([&] { materialize(all, fp64_context()); });
  REQUIRE_THAT(text, Catch::Matchers::StartsWith("tied-owner"));
  REQUIRE_THAT(text, Catch::Matchers::Contains("absent.weight"));
}

}  // namespace colossal
