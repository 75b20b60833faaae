// Does every chunk plan keep its promises, whatever the parameters?
#include "memory/chunk_plan.hpp"

#include "memory_helpers.hpp"

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace colossal {
namespace {

using test::error_of;
using test::spec_of;

const Mesh& one_rank() {
  static const Mesh mesh(MeshShape{}, 0);
  return mesh;
}

ChunkPlan plan_of(const std::vector<ParamSpec>& params,
                  const std::vector<std::vector<int>>& blocks,
                  std::int64_t chunk_numel) {
  return chunk_planners()
      .make("0", {.chunk_bytes = chunk_numel * 4, .item_bytes = 4})
      ->plan(params, blocks, one_rank());
}

struct RandomModel {
  std::vector<ParamSpec> params;
  std::vector<std::vector<int>> blocks;
};

/// 1 to 8 blocks of up to 5 parameters of any size; some tied to an earlier one, some shared by
/// object.
RandomModel random_model(std::mt19937& random) {
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  RandomModel model;
  const int num_blocks = 1 + below(8);
  for (int block = 0; block < num_blocks; ++block) {
    std::vector<int>& uses = model.blocks.emplace_back();
    for (int i = below(6); i > 0; --i) {
      const auto fresh = static_cast<int>(model.params.size());
      const std::string name = "p" + std::to_string(fresh);
      const int other = fresh > 0 ? below(fresh) : 0;
      if (fresh > 0 && below(6) == 0) {
        uses.push_back(other);
        continue;
      }
      const bool tied = fresh > 0 && below(5) == 0 &&
                        model.params[static_cast<std::size_t>(other)].tied_to.empty();
      const Shape shape =
          tied ? model.params[static_cast<std::size_t>(other)].shape : Shape{1 + below(700)};
      model.params.push_back(spec_of(name, shape, tied ? "p" + std::to_string(other) : ""));
      uses.push_back(fresh);
    }
  }
  return model;
}

/// Block after whose backward the chunk is complete.
int last_block(const ChunkSpec& chunk, const RandomModel& model) {
  const std::vector<int> owner_of = owner_indices(model.params);
  for (int block = 0; block < std::ssize(model.blocks); ++block) {
    for (const int use : model.blocks[static_cast<std::size_t>(block)]) {
      if (std::ranges::find(chunk.params, owner_of[static_cast<std::size_t>(use)]) !=
          chunk.params.end()) {
        return block;
      }
    }
  }
  return -1;
}

TEST_CASE("plans of random models hold every owner once, aligned, in bounds and in backward order",
          "[memory]") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const RandomModel model = random_model(random);
    const std::int64_t target = 64 * (1 + static_cast<std::int64_t>(random() % 20));
    const ChunkPlan plan = plan_of(model.params, model.blocks, target);
    std::multiset<int> seen;
    int previous = std::numeric_limits<int>::max();
    for (const ChunkSpec& chunk : plan.chunks) {
      REQUIRE(chunk.params.size() == chunk.offsets.size());
      std::int64_t end = 0;
      for (std::size_t i = 0; i < chunk.params.size(); ++i) {
        const ParamSpec& spec = model.params[static_cast<std::size_t>(chunk.params[i])];
        CHECK(chunk.offsets[i] % kChunkAlignment == 0);
        CHECK(chunk.offsets[i] >= end);
        CHECK(chunk.offsets[i] - end < kChunkAlignment);
        CHECK(spec.tied_to.empty());
        end = chunk.offsets[i] + numel(spec.shape);
        seen.insert(chunk.params[i]);
      }
      CHECK((chunk.numel >= end && chunk.numel - end < kChunkAlignment));
      CHECK((chunk.numel <= target || chunk.params.size() == 1));
      CHECK(chunk.reduce_axes == (data_axes() | axes({Axis::sp})));
      CHECK(last_block(chunk, model) <= previous);
      previous = last_block(chunk, model);
    }
    const auto owners = std::ranges::count_if(
        model.params, [](const ParamSpec& spec) { return spec.tied_to.empty(); });
    CHECK(std::ssize(seen) == owners);
    CHECK(std::ssize(std::set(seen.begin(), seen.end())) == owners);
  }
}

TEST_CASE("a tied parameter is reduced with the last of its uses in backward", "[memory]") {
  const std::vector<ParamSpec> params = {spec_of("embed", {64}),
                                         spec_of("body", {64}),
                                         spec_of("head", {64}, "embed"),
                                         spec_of("bias", {64})};
  const ChunkPlan plan = plan_of(params, {{0}, {1}, {2, 3}}, 64);
  REQUIRE(plan.chunks.size() == 3);
  CHECK(plan.chunks[0].params == std::vector<int>{3});
  CHECK(plan.chunks[1].params == std::vector<int>{1});
  CHECK(plan.chunks[2].params == std::vector<int>{0});
}

TEST_CASE("a parameter longer than the target is alone", "[memory]") {
  const std::vector<ParamSpec> params = {
      spec_of("a", {10}), spec_of("large", {1000}), spec_of("b", {10})};
  const ChunkPlan plan = plan_of(params, {{0, 1, 2}}, 256);
  REQUIRE(plan.chunks.size() == 3);
  CHECK(plan.chunks[1].params == std::vector<int>{1});
  CHECK(plan.chunks[1].numel == 1024);
}

TEST_CASE("parameters summed over other axes are in other chunks; lengths are local and padded",
          "[memory]") {
  std::vector<ParamSpec> params = {spec_of("split", {100, 8}), spec_of("whole", {8})};
  params[0].padded = {128, 8};
  params[0].layout.dims = {{.axes = {Axis::t0}, .blocks = {}}};
  params[1].layout.replicated |= axes({Axis::t0});
  const Mesh mesh(MeshShape{.t0 = 2}, 1);
  const auto planner = chunk_planners().make("0", {.chunk_bytes = 1 << 20, .item_bytes = 4});
  const ChunkPlan plan = planner->plan(params, std::vector<std::vector<int>>{{0, 1}}, mesh);
  REQUIRE(plan.chunks.size() == 2);
  CHECK(plan.chunks[0].reduce_axes == params[1].layout.replicated);
  CHECK(plan.chunks[1].numel == 64 * 8);
}

TEST_CASE("chunk targets grow with the model between fixed bounds", "[memory]") {
  constexpr std::int64_t kMebi = 1 << 20;
  CHECK(default_chunk_bytes(1) == kMebi / 4);
  CHECK(default_chunk_bytes(16 * kMebi) == 2 * kMebi);
  CHECK(default_chunk_bytes(10'000 * kMebi) == 32 * kMebi);
}

TEST_CASE("models whose parameters cannot be planned are refused by name", "[memory]") {
  const auto id_of = [](const std::vector<ParamSpec>& params,
                        const std::vector<std::vector<int>>& blocks) {
    const Error error = error_of([&] { (void)plan_of(params, blocks, 64); });
    CHECK_THAT(error.what(), Catch::Matchers::Contains("'b'"));
    return std::string(error.id());
  };
  CHECK(id_of({spec_of("b", {4}), spec_of("b", {4})}, {{0, 1}}) == "param-duplicate");
  CHECK(id_of({spec_of("a", {4}), spec_of("b", {4})}, {{0}}) == "param-unused");
  CHECK(id_of({spec_of("a", {4}), spec_of("b", {4}, "c")}, {{0, 1}}) == "tied-owner");
  CHECK(id_of({spec_of("a", {4}), spec_of("b", {4}, "a"), spec_of("c", {4}, "b")}, {{0, 1, 2}}) ==
        "tied-owner");
  CHECK(id_of({spec_of("a", {4}), spec_of("b", {5}, "a")}, {{0, 1}}) == "tied-shape");
}

}  // namespace
}  // namespace colossal
