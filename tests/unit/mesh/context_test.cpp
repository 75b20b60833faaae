// Does the context say what the configuration asked for, and refuse groups nobody made?
#include "mesh/context.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

namespace colossal {

TEST_CASE("a context of one process is a mesh of ones", "[mesh]") {
  Config config;
  config.run.seed = 5;
  config.parallel.data = 4;  // ignored: planning sees one rank
  config.train.precision = Precision::fp64;
  const ParallelContext context(config);
  REQUIRE(context.mesh().world_size() == 1);
  REQUIRE(context.comm(data_axes()).size() == 1);
  REQUIRE(context.dtype() == at::kDouble);
  REQUIRE(context.device().is_cpu());
  REQUIRE(context.seed() == 5);
}

TEST_CASE("a world of one makes no group", "[mesh]") {
  Config config;
  config.parallel.data = 1;
  const auto world = World::connect({}, {}, {});
  const ParallelContext context(config, *world);
  REQUIRE(context.comm(data_axes()).size() == 1);
  REQUIRE(context.comm(AxisSet{}).size() == 1);
  config.parallel.data = 2;
  try {
    const ParallelContext wrong(config, *world);
    FAIL("a mesh of 2 fits no world of 1");
  } catch (const Error& error) {
    REQUIRE(error.id() == "mesh-world");
  }
  world->close();
}

TEST_CASE("precision words are dtypes, data is the dp axis", "[mesh]") {
  REQUIRE(dtype(Precision::fp32) == at::kFloat);
  REQUIRE(dtype(Precision::fp64) == at::kDouble);
  ParallelConfig parallel;
  parallel.data = 3;
  const MeshShape shape = mesh_shape(parallel);
  REQUIRE(shape.dp == 3);
  REQUIRE(Mesh(shape, 0).world_size() == 3);
}

}  // namespace colossal
