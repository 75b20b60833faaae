// Is the free part of a device spent as promised, and is too little told?
#include "memory/detail/measured_plan.hpp"

#include "memory/device_memory.hpp"
#include "memory_helpers.hpp"

#include <ATen/ops/empty.h>

#include <numeric>
#include <random>
#include <vector>

namespace colossal::detail {
namespace {

MeasuredInput input_of(std::int64_t device, std::vector<std::int64_t> non_model) {
  MeasuredInput input;
  input.device_bytes = device;
  input.shares = {.steady_ratio = 1, .margin_ratio = 1, .reserve = 0};
  input.needs.assign(non_model.size(), 10);
  input.non_model = std::move(non_model);
  return input;
}

TEST_CASE("optimizers of the last chunks move up first; the rest is cache", "[memory]") {
  MeasuredInput input = input_of(100, {20, 50});
  input.optimizer_bytes = {15, 15, 15};
  input.weight_bytes = {0, 0, 0};
  const MeasuredDecision decision = decide(input);
  // The second moment leaves 100 - 50 - 10 = 40: two optimizers fit.
  CHECK(decision.to_device == std::vector<int>{2, 1});
  CHECK(decision.budgets == std::vector<std::int64_t>{50, 20});
}

TEST_CASE("ratios keep their share free", "[memory]") {
  MeasuredInput input = input_of(1000, {100});
  input.shares = {.steady_ratio = 0.5, .margin_ratio = 0.5, .reserve = 0.2};
  input.home_bytes = 100;
  input.optimizer_bytes = {90, 100};
  input.weight_bytes = {0, 0};
  const MeasuredDecision decision = decide(input);
  // Usable 400, less home and activations 200; margin 190, half of it 95: 100 is too large, 90
  // fits.
  CHECK(decision.to_device == std::vector<int>{0});
  CHECK(decision.budgets == std::vector<std::int64_t>{110});
}

TEST_CASE("homes of weights follow their optimizers, into all that is left", "[memory]") {
  MeasuredInput input = input_of(1000, {100, 300});
  input.shares = {.steady_ratio = 1, .margin_ratio = 0.5, .reserve = 0};
  input.optimizer_bytes = {200, 140, 140};
  input.weight_bytes = {30, 280, 120};
  // The margin is 690, half of it 345: two optimizers fit, and 410 are left. The last chunk's home
  // fits, the one before it does not any more, and that of the first would have no use.
  MeasuredDecision decision = decide(input);
  CHECK(decision.to_device == std::vector<int>{2, 1});
  CHECK(decision.homes_to_device == std::vector<int>{2, 1});
  CHECK(decision.budgets == std::vector<std::int64_t>{900 - 680, 700 - 680});
  input.weight_bytes = {30, 291, 120};
  decision = decide(input);
  CHECK(decision.homes_to_device == std::vector<int>{2});
  CHECK(decision.budgets == std::vector<std::int64_t>{900 - 400, 700 - 400});
}

TEST_CASE("a plan follows its decision: what one rank holds whole is not gathered", "[memory]") {
  MeasuredDecision decision;
  decision.to_device = {2, 1};
  decision.homes_to_device = {2};
  for (const int ranks : {1, 2}) {
    for (const bool masters_are_weights : {false, true}) {
      ChunkPlan plan;
      for (int chunk = 0; chunk < 3; ++chunk) {
        ChunkSpec& spec = plan.chunks.emplace_back();
        spec.reduce_axes = spec.shard_axes = data_axes();
        spec.resident = false;
        spec.param_home = spec.optim_home = Tier::host;
      }
      follow(decision, masters_are_weights, Mesh(MeshShape{.dp = ranks}, 0), plan);
      for (int chunk = 0; chunk < 3; ++chunk) {
        INFO("chunk " << chunk << " of " << ranks << " ranks, masters are weights "
                      << masters_are_weights);
        const ChunkSpec& spec = plan.chunks[static_cast<std::size_t>(chunk)];
        const bool home = chunk == 2 || (chunk == 1 && masters_are_weights);
        CHECK((spec.optim_home == Tier::device) == (chunk > 0));
        CHECK((spec.param_home == Tier::device) == home);
        CHECK(spec.resident == (home && ranks == 1));
      }
    }
  }
}

TEST_CASE("a moment that does not fit is told with what is missing", "[memory]") {
  MeasuredInput input = input_of(100, {20, 95, 92});
  input.optimizer_bytes = {1};
  input.weight_bytes = {1};
  const MeasuredDecision decision = decide(input);
  CHECK(decision.slack == -5);
  CHECK(decision.tightest == 1);
  CHECK(decision.budgets.empty());
  CHECK(decision.to_device.empty());
  CHECK(decision.homes_to_device.empty());
}

TEST_CASE("peaks of another step than the one to decide are refused", "[memory]") {
  MeasuredInput input = input_of(100, {20, 30, 20});
  input.needs.resize(2);
  CHECK(test::error_of([&] { (void)decide(input); }).id() == "measured-step");
}

using Bytes = std::vector<std::int64_t>;

/// Bytes of the chunks in this set of bits.
std::int64_t bytes_of(const Bytes& bytes_of_chunk, unsigned set) {
  std::int64_t bytes = 0;
  for (std::size_t chunk = 0; chunk < bytes_of_chunk.size(); ++chunk) {
    bytes += (set >> chunk & 1U) != 0 ? bytes_of_chunk[chunk] : 0;
  }
  return bytes;
}

/// Whether every acquisition has room beside so many bytes that have moved to the device.
bool has_room(const MeasuredInput& input, std::int64_t moved) {
  for (std::size_t i = 0; i < input.needs.size(); ++i) {
    if (input.home_bytes + moved + input.non_model[i] + input.needs[i] > usable_bytes(input)) {
      return false;
    }
  }
  return true;
}

/// The best set to move, by trying all: of those that leave every acquisition its room beside what
/// has moved and take no more than `share`, the one that holds the last chunk, of those the one
/// with the last but one, and so on - the largest number. Chunks that are not `candidates`, or
/// without bytes, have nothing to move.
unsigned best_by_trying(const MeasuredInput& input,
                        const Bytes& bytes_of_chunk,
                        unsigned candidates,
                        std::int64_t moved,
                        std::int64_t share) {
  unsigned best = 0;
  for (unsigned set = 0; set < 1U << bytes_of_chunk.size(); ++set) {
    bool moves = (set & ~candidates) == 0;
    for (std::size_t chunk = 0; chunk < bytes_of_chunk.size(); ++chunk) {
      moves = moves && ((set >> chunk & 1U) == 0 || bytes_of_chunk[chunk] > 0);
    }
    const std::int64_t bytes = bytes_of(bytes_of_chunk, set);
    best = moves && has_room(input, moved + bytes) && bytes <= share ? set : best;
  }
  return best;
}

unsigned bits_of(const std::vector<int>& chunks) {
  unsigned set = 0;
  for (const int chunk : chunks) {
    set |= 1U << static_cast<unsigned>(chunk);
  }
  return set;
}

TEST_CASE("decisions are those that trying everything finds", "[memory]") {
  std::mt19937 random(17);
  int feasible = 0;
  int moving = 0;
  int settling = 0;
  constexpr int kRounds = 2000;
  constexpr std::int64_t kNoShare = 1000;  // more than there is
  for (int round = 0; round < kRounds; ++round) {
    MeasuredInput input = input_of(static_cast<std::int64_t>(60 + random() % 120), {});
    input.shares = {.steady_ratio = 0.5 + 0.125 * static_cast<double>(random() % 5),
                    .margin_ratio = 0.25 * static_cast<double>(1 + random() % 4),
                    .reserve = 0.125 * static_cast<double>(random() % 3)};
    input.home_bytes = static_cast<std::int64_t>(random() % 20);
    for (unsigned i = 0; i < 1 + round % 5U; ++i) {
      input.non_model.push_back(static_cast<std::int64_t>(random() % 50));
      input.needs.push_back(static_cast<std::int64_t>(random() % 40));
    }
    for (unsigned i = 0; i < random() % 8; ++i) {
      input.optimizer_bytes.push_back(static_cast<std::int64_t>(random() % 16));
      input.weight_bytes.push_back(static_cast<std::int64_t>(random() % 8));
    }
    const MeasuredDecision decision = decide(input);
    INFO("round " << round << ", slack " << decision.slack);
    REQUIRE((decision.slack >= 0) == has_room(input, 0));
    if (decision.slack < 0) {
      // So many bytes more, and no fewer, would be enough.
      input.home_bytes += decision.slack;
      CHECK(has_room(input, 0));
      ++input.home_bytes;
      CHECK_FALSE(has_room(input, 0));
      continue;
    }
    ++feasible;
    const unsigned optimizers = bits_of(decision.to_device);
    const unsigned homes = bits_of(decision.homes_to_device);
    moving += optimizers != 0 ? 1 : 0;
    settling += homes != 0 ? 1 : 0;
    const double share = input.shares.margin_ratio * static_cast<double>(decision.slack);
    REQUIRE(optimizers ==
            best_by_trying(input, input.optimizer_bytes, ~0U, 0, static_cast<std::int64_t>(share)));
    std::int64_t moved = bytes_of(input.optimizer_bytes, optimizers);
    REQUIRE(homes == best_by_trying(input, input.weight_bytes, optimizers, moved, kNoShare));
    moved += bytes_of(input.weight_bytes, homes);
    // The rest is cache, to the last byte.
    for (std::size_t i = 0; i < decision.budgets.size(); ++i) {
      CHECK(decision.budgets[i] ==
            usable_bytes(input) - input.home_bytes - moved - input.non_model[i]);
    }
  }
  CHECK(feasible > kRounds / 5);
  CHECK(feasible < kRounds * 4 / 5);
  CHECK(moving > kRounds / 10);
  CHECK(settling > kRounds / 10);
}

TEST_CASE("no decision exceeds the device at any moment", "[memory]") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    MeasuredInput input = input_of(1000, {});
    input.shares = {.steady_ratio = 0.9, .margin_ratio = 0.8, .reserve = 0.05};
    input.home_bytes = static_cast<std::int64_t>(random() % 100);
    for (int i = 0; i < 6; ++i) {
      input.non_model.push_back(static_cast<std::int64_t>(random() % 500));
      input.needs.push_back(static_cast<std::int64_t>(random() % 200));
      input.optimizer_bytes.push_back(static_cast<std::int64_t>(random() % 120));
      input.weight_bytes.push_back(static_cast<std::int64_t>(random() % 20));
    }
    const MeasuredDecision decision = decide(input);
    std::int64_t moved = 0;
    for (const int chunk : decision.to_device) {
      moved += input.optimizer_bytes[static_cast<std::size_t>(chunk)];
    }
    for (const int chunk : decision.homes_to_device) {
      moved += input.weight_bytes[static_cast<std::size_t>(chunk)];
    }
    for (std::size_t i = 0; i < decision.budgets.size(); ++i) {
      CHECK(decision.budgets[i] >= input.needs[i]);
      CHECK(input.home_bytes + moved + input.non_model[i] + decision.budgets[i] <= 855);
    }
  }
}

TEST_CASE("peaks are taken between acquisitions, without what the store holds", "[memory]") {
  (void)device_memory();
  const auto tensor = [](std::int64_t bytes) { return at::empty({bytes}, at::kByte); };
  const std::int64_t before = device_memory().use().current;
  NonModelTrace trace;
  trace.begin();
  {
    const at::Tensor early = tensor(1000);
  }
  trace.observe(before);
  trace.next();
  const at::Tensor gathered = tensor(5000);  // the store's
  {
    const at::Tensor temporary = tensor(3000);
  }
  trace.observe(before + 5000);
  trace.next();
  {
    const at::Tensor temporary = tensor(200);
  }
  trace.observe(before + 5000);
  CHECK(trace.finish() == std::vector<std::int64_t>{3000, 200});
}

}  // namespace
}  // namespace colossal::detail
