// Do plans of all policies cut, pack and place as their rules say, and do the formulas hold?
#include "memory/accounting.hpp"
#include "memory/chunk_plan.hpp"
#include "memory_helpers.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace colossal {
namespace {

using test::spec_of;

/// A row of equal blocks of two parameters, 4096 elements together: a chunk.
struct Stack {
  explicit Stack(int num_blocks) {
    for (int i = 0; i < num_blocks; ++i) {
      params.push_back(spec_of("blocks." + std::to_string(i) + ".weight", {64, 56}));
      params.push_back(spec_of("blocks." + std::to_string(i) + ".bias", {512}));
      blocks.push_back({2 * i, 2 * i + 1});
    }
  }
  [[nodiscard]] std::int64_t numel_of() const { return std::ssize(blocks) * 4096; }

  std::vector<ParamSpec> params;
  std::vector<std::vector<int>> blocks;
};

ChunkPlan plan_of(const Stack& stack,
                  const std::string& policy,
                  ChunkPlannerRequest request,
                  int ranks) {
  request.item_bytes = 4;
  request.chunk_bytes = request.chunk_bytes == 0 ? 4 * 4096 : request.chunk_bytes;
  return chunk_planners()
      .make(policy, request)
      ->plan(stack.params, stack.blocks, Mesh(MeshShape{.dp = ranks}, 0));
}

ChunkBytes bytes_of(const Stack& stack,
                    const ChunkPlan& plan,
                    const StoreOptions& options,
                    int ranks) {
  const auto chunks = chunks_of_blocks(plan, stack.params, stack.blocks);
  return account({.plan = plan,
                  .options = options,
                  .chunks_of_blocks = chunks,
                  .num_states = 2,
                  .micro_batches = 1},
                 Mesh(MeshShape{.dp = ranks}, 0));
}

StoreOptions mixed() {
  StoreOptions options;
  options.compute = at::kBFloat16;
  options.grad = at::kBFloat16;
  options.reduce = at::kBFloat16;
  return options;
}

TEST_CASE("the published chunk length of a small GPT-2 is found again", "[memory]") {
  // 2 layers of width 128, 50258 tokens, 1024 positions (zero-gemini-elixir 4.3).
  std::vector<std::int64_t> lengths = {6'433'024, 131'072};
  for (int layer = 0; layer < 2; ++layer) {
    for (const std::int64_t length :
         {128, 128, 49'152, 384, 16'384, 128, 128, 128, 65'536, 512, 65'536, 128}) {
      lengths.push_back(length);
    }
  }
  lengths.insert(lengths.end(), {128, 128});
  CHECK(search_chunk_numel(lengths, {.min_numel = 0, .range = 1 << 20, .interval = 128}) ==
        527'872);
  const std::vector<std::int64_t> usual(lengths.begin() + 1, lengths.end());
  CHECK(packing_waste(usual, 527'872) == 0);
}

TEST_CASE("the chunk length found wastes no more than any other tried", "[memory]") {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::int64_t> lengths(1 + random() % 20);
    std::ranges::generate(lengths, [&] { return 1 + static_cast<std::int64_t>(random() % 100); });
    const ChunkSearch search{.min_numel = 100, .range = 400, .interval = 10};
    const std::int64_t best = search_chunk_numel(lengths, search);
    for (std::int64_t size = 100; size <= 500; size += 10) {
      CHECK(packing_waste(lengths, best) <= packing_waste(lengths, size));
    }
  }
}

TEST_CASE("waste is what packing leaves", "[memory]") {
  CHECK(packing_waste(std::vector<std::int64_t>{3, 3, 4}, 6) == 2);
  CHECK(packing_waste(std::vector<std::int64_t>{4, 4}, 6) == 4);
  CHECK(packing_waste(std::vector<std::int64_t>{}, 6) == 0);
}

TEST_CASE("stages cut what their number says", "[memory]") {
  const Stack stack(4);
  for (const int ranks : {1, 2, 3, 4}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const ChunkPlan plan = plan_of(stack, std::to_string(stage), {}, ranks);
      CHECK(plan.shard_grads == (stage >= 2));
      for (const ChunkSpec& chunk : plan.chunks) {
        CHECK(chunk.shard_axes == (stage > 0 ? chunk.reduce_axes : AxisSet{}));
        CHECK(chunk.resident == (stage < 3));
        CHECK(chunk.numel % (stage > 0 ? 64 * ranks : 64) == 0);
      }
    }
  }
}

TEST_CASE("a chunk of stage 3 belongs to one block; smaller stages fill chunks", "[memory]") {
  const Stack stack(4);
  CHECK(plan_of(stack, "3", {.chunk_bytes = 1 << 20}, 2).chunks.size() == 4);
  CHECK(plan_of(stack, "1", {.chunk_bytes = 1 << 20}, 2).chunks.size() == 1);
}

TEST_CASE("fractions place chunks in order until their share is reached", "[memory]") {
  const Stack stack(4);
  ChunkPlannerRequest request;
  request.gemini.shard_param_frac = 0.5;
  request.gemini.offload_optim_frac = 0.25;
  const ChunkPlan plan = plan_of(stack, "static", request, 2);
  REQUIRE(plan.chunks.size() == 4);
  std::vector<bool> resident;
  std::vector<bool> host;
  for (const ChunkSpec& chunk : plan.chunks) {
    resident.push_back(chunk.resident);
    host.push_back(chunk.optim_home == Tier::host);
  }
  CHECK(resident == std::vector<bool>{true, true, false, false});
  CHECK(host == std::vector<bool>{true, false, false, false});
}

TEST_CASE("cuda and cpu are the ends of static", "[memory]") {
  const Stack stack(3);
  for (const ChunkSpec& chunk : plan_of(stack, "cuda", {}, 2).chunks) {
    CHECK(
        (!chunk.resident && chunk.param_home == Tier::device && chunk.optim_home == Tier::device));
  }
  for (const ChunkSpec& chunk : plan_of(stack, "cpu", {}, 2).chunks) {
    CHECK((!chunk.resident && chunk.param_home == Tier::host && chunk.optim_home == Tier::host));
  }
}

TEST_CASE("a share of the states goes to disk, their masters stay where they are", "[memory]") {
  const Stack stack(4);
  ChunkPlannerRequest request;
  request.gemini.nvme = NvmeConfig{.path = "/disk", .fraction = 0.5};
  request.gemini.offload_optim_frac = 0.25;
  const std::int64_t psi = stack.numel_of();
  const std::int64_t buffers = 3 * 4096 * 8;  // that slots pass through
  const auto planned = [&](const std::string& policy) {
    const ChunkPlan plan = plan_of(stack, policy, request, 1);
    CHECK(std::ranges::count_if(plan.chunks, &ChunkSpec::states_on_disk) == 2);
    const ChunkBytes bytes = bytes_of(stack, plan, {}, 1);
    CHECK(bytes.nvme == psi / 2 * 8);
    return bytes;
  };
  // Weights are their own masters where both are at one place.
  const ChunkBytes device = planned("cuda");
  CHECK(device.host.total() == buffers);
  CHECK(device.weights == psi * 4);
  CHECK(device.grads == psi * 4);
  CHECK(device.optimizer == psi / 2 * 8);
  const ChunkBytes host = planned("cpu");
  CHECK(host.host.weights == psi * 4);
  CHECK(host.host.grads == psi * 4);
  CHECK(host.host.optimizer == psi / 2 * 8);
  CHECK(host.host.buffers == buffers);
  CHECK(host.host.total() == psi * 8 + psi / 2 * 8 + buffers);
  CHECK(host.weights + host.grads + host.optimizer == 0);
  const ChunkBytes split = planned("static");  // a quarter of masters and gradients on the host
  CHECK(split.host.optimizer == psi / 4 * 4);  // apart from their weights
  CHECK(split.host.total() == psi / 4 * 8 + buffers);
  CHECK(split.grads == psi * 3);
}

TEST_CASE("a budget's slack is what its neediest block leaves", "[memory]") {
  const Stack stack(6);
  const std::int64_t block = 4096 * 4;
  ChunkPlannerRequest request;
  for (const std::int64_t budget : {block - 1, block, 3 * block}) {
    request.gemini.const_budget = budget;
    request.gemini.chunk_size = block;
    const ChunkBytes bytes = bytes_of(stack, plan_of(stack, "const", request, 2), {}, 2);
    CHECK(bytes.slack == budget - block);
  }
  for (const char* policy : {"0", "3", "cuda", "cpu", "auto"}) {  // auto: no size of the device
    CHECK_FALSE(bytes_of(stack, plan_of(stack, policy, request, 2), {}, 2).slack.has_value());
  }
}

TEST_CASE("auto's slack is the device's room beside the neediest moment", "[memory]") {
  const Stack stack(6);
  const ChunkPlan plan = plan_of(stack, "auto", {}, 1);
  const auto chunks = chunks_of_blocks(plan, stack.params, stack.blocks);
  std::vector<BlockActivations> activations(6, {.forward = 10'000, .backward = 30'000, .after = 0});
  activations[4].backward = 50'000;
  const auto slack_of = [&](std::int64_t device) {
    return account({.plan = plan,
                    .options = {},
                    .chunks_of_blocks = chunks,
                    .num_states = 2,
                    .activations = activations,
                    .device_bytes = device},
                   Mesh(MeshShape{.dp = 1}, 0))
        .slack.value();
  };
  const std::int64_t small = slack_of(100'000);
  CHECK(small < 0);
  // 0.9 of the device, less 0.05 of that, may be used.
  CHECK(slack_of(1'100'000) == small + 855'000);
  activations[4].backward += 1'000;
  CHECK(slack_of(100'000) == small - 1'000);
}

TEST_CASE("host memory holds at the start what auto moves to the device after a step", "[memory]") {
  const Stack stack(6);
  const ChunkPlan plan = plan_of(stack, "auto", {}, 2);
  const auto chunks = chunks_of_blocks(plan, stack.params, stack.blocks);
  const auto bytes_of_device = [&](std::int64_t device) {
    return account({.plan = plan,
                    .options = {},
                    .chunks_of_blocks = chunks,
                    .num_states = 2,
                    .device_bytes = device},
                   Mesh(MeshShape{.dp = 2}, 0));
  };
  const std::int64_t whole = stack.numel_of() * 16 / 2;  // weights, gradients and two states
  CHECK(bytes_of_device(0).host.total() == whole);
  CHECK(bytes_of_device(0).moved == 0);
  const ChunkBytes roomy = bytes_of_device(1 << 24);
  CHECK(roomy.host.total() == whole);
  CHECK(roomy.host.optimizer == whole / 2);
  CHECK(roomy.moved == whole);
  CHECK(roomy.optimizer == whole);
}

TEST_CASE("the host of a GPU holds 16-bit copies by their masters, and sums that are added",
          "[memory]") {
  const Stack stack(4);
  ChunkPlannerRequest request;
  request.gemini.shard_param_frac = 0;
  request.gemini.offload_optim_frac = 0.5;
  const std::int64_t half = stack.numel_of() / 2;
  const std::int64_t homes = half * (4 + 8 + 2);  // masters, states and gradients
  for (const std::string policy : {"static", "cpu", "cuda"}) {
    const ChunkPlan plan = plan_of(stack, policy, request, 1);
    const auto chunks = chunks_of_blocks(plan, stack.params, stack.blocks);
    const auto host_of = [&](bool apart, std::int64_t micro_batches) {
      return account({.plan = plan,
                      .options = mixed(),
                      .chunks_of_blocks = chunks,
                      .num_states = 2,
                      .micro_batches = micro_batches,
                      .host_apart = apart},
                     Mesh(MeshShape{.dp = 1}, 0))
          .host;
    };
    INFO(policy);
    // With placement cpu everything is on the host, weights too, which are the copies then.
    const std::int64_t here =
        policy == "static" ? homes : (policy == "cpu" ? 2 * homes + 4 * half : 0);
    CHECK(host_of(false, 1).total() == here);
    CHECK(host_of(false, 2).total() == here);
    CHECK(host_of(false, 2).buffers == 0);
    const std::int64_t copies = policy == "static" ? half * 2 : 0;
    CHECK(host_of(true, 1).total() == here + copies);
    CHECK(host_of(true, 1).buffers == copies);
    const std::int64_t sums = policy == "static" ? half * 2 : (policy == "cpu" ? half * 4 : 0);
    CHECK(host_of(true, 2).total() == here + copies + sums);
    CHECK(host_of(true, 2).buffers == copies + sums);
  }
}

TEST_CASE("bytes of a rank follow the formulas of mixed precision Adam", "[memory]") {
  // zero-gemini-elixir 16, with 16-bit gradients: 2 weights, 2 gradients, 12 master and moments.
  const Stack stack(16);
  const std::int64_t psi = stack.numel_of();
  for (const int ranks : {1, 2, 4}) {
    const auto total = [&](const std::string& stage) {
      const ChunkBytes bytes = bytes_of(stack, plan_of(stack, stage, {}, ranks), mixed(), ranks);
      CHECK(bytes.host.total() == 0);
      return static_cast<double>(bytes.weights + bytes.grads + bytes.optimizer);
    };
    const auto n = static_cast<double>(ranks);
    const auto size = static_cast<double>(psi);
    CHECK(total("0") == Approx(16 * size).epsilon(0.02));
    CHECK(total("1") == Approx(4 * size + 12 * size / n).epsilon(0.02));
    CHECK(total("2") == Approx(2 * size + 14 * size / n).epsilon(0.02));
    CHECK(total("3") == Approx(16 * size / n).epsilon(0.02));
  }
}

TEST_CASE("lent gradients take the place of activations that have gone", "[memory]") {
  const Stack stack(4);
  const std::int64_t block = 4096 * 2;  // bytes of its gradients
  const ChunkPlan plan = plan_of(stack, "0", {}, 1);
  REQUIRE(plan.chunks.size() == 4);
  const auto chunks = chunks_of_blocks(plan, stack.params, stack.blocks);
  const auto bytes_of_step = [&](std::int64_t activations, std::int64_t micro_batches) {
    std::vector<BlockActivations> of_blocks;
    for (std::int64_t i = 1; i <= 4; ++i) {
      of_blocks.push_back({.forward = i * activations, .backward = i * activations});
    }
    StoreOptions options = mixed();
    options.lend_grads = true;
    return account({.plan = plan,
                    .options = options,
                    .chunks_of_blocks = chunks,
                    .num_states = 2,
                    .micro_batches = micro_batches,
                    .activations = of_blocks},
                   Mesh(MeshShape{.dp = 1}, 0));
  };
  // Fullest: small activations when all has gone backward, large ones when backward begins.
  CHECK(bytes_of_step(1, 1).grads == 4 * block);
  const ChunkBytes large = bytes_of_step(100 * block, 1);
  CHECK(large.grads == block);
  CHECK(large.activations == 400 * block);
  // A second micro-batch adds to what the first has left.
  CHECK(bytes_of_step(100 * block, 2).grads == 4 * block);
  CHECK(bytes_of(stack, plan, mixed(), 1).grads == 4 * block);
}

TEST_CASE("what an update takes counts where it runs on the device", "[memory]") {
  const Stack stack(4);
  for (const Offload offload : {Offload::none, Offload::optimizer}) {
    ChunkPlannerRequest request;
    request.zero.offload = offload;
    const ChunkPlan plan = plan_of(stack, "0", request, 1);
    const auto chunks = chunks_of_blocks(plan, stack.params, stack.blocks);
    const std::vector<BlockActivations> activations(4, {.forward = 500, .backward = 700});
    const auto total_of = [&](std::int64_t update_bytes) {
      const ChunkBytes bytes = account({.plan = plan,
                                        .options = mixed(),
                                        .chunks_of_blocks = chunks,
                                        .activations = activations,
                                        .update_bytes = update_bytes},
                                       Mesh(MeshShape{.dp = 1}, 0));
      return bytes.borrowed + bytes.activations;
    };
    CHECK(total_of(0) == 700);
    CHECK(total_of(600) == 700);  // activations have gone by then
    CHECK(total_of(900) == (offload == Offload::none ? 900 : 700));
  }
}

TEST_CASE("what is lent at once at stage 3 is two blocks and those ahead", "[memory]") {
  const Stack stack(10);
  const std::int64_t block = std::int64_t{4096} * 2;
  ChunkPlannerRequest request;
  for (const std::int64_t prefetch : {0, 1, 2, 4}) {
    request.zero.prefetch = prefetch;
    const ChunkBytes bytes = bytes_of(stack, plan_of(stack, "3", request, 2), mixed(), 2);
    // Weights of the block and those ahead; gradients of the block and two that are being reduced.
    CHECK(bytes.borrowed <= (1 + prefetch + 3) * block);
    CHECK(bytes.borrowed >= (1 + prefetch) * block);
  }
}

TEST_CASE("collectives are handed what the formulas say", "[memory]") {
  const Stack stack(8);
  const std::int64_t psi = stack.numel_of() * 2;
  const auto bytes = [&](const std::string& stage, std::int64_t prefetch) {
    ChunkPlannerRequest request;
    request.zero.prefetch = prefetch;
    return bytes_of(stack, plan_of(stack, stage, request, 2), mixed(), 2);
  };
  CHECK(bytes("0", 0).all_reduced == psi);
  CHECK(bytes("0", 0).gathered == 0);
  for (const char* stage : {"1", "2"}) {
    CHECK(bytes(stage, 0).reduce_scattered == psi);
    CHECK(bytes(stage, 0).gathered == psi / 2);
  }
  CHECK(bytes("3", 0).reduce_scattered == psi);
  CHECK(bytes("3", 0).gathered == psi);  // twice a half
  CHECK(bytes("3", 2).gathered < psi);   // what stays at the turn is not gathered again
}

}  // namespace
}  // namespace colossal
