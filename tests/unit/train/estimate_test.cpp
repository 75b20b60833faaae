// Are the layouts of an estimate all there, each once, and is each the plan of its overrides?
#include "train/estimate.hpp"

#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "train/host_facts.hpp"
#include "train/memory_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace colossal::test {
namespace {

const std::string kConfig =
    "run: {device: cpu}\n"
    "model: {type: gpt, num_layers: 3, hidden_size: 32, num_heads: 2, vocab_size: 100}\n"
    "data: {type: synthetic, seq_length: 16}\n"
    "train: {steps: 5, global_batch_size: 8, micro_batch_size: 4}\n"
    "optimizer: {type: adamw, lr: 1e-3}\n";

/// An estimate of a configuration, which lies in a file as long as the object lives.
class Estimated {
 public:
  explicit Estimated(const std::string& text,
                     std::vector<std::int64_t> worlds,
                     bool sweep,
                     std::vector<Override> overrides = {}) {
    request.config = (dir_.path() / "run.yaml").string();
    std::ofstream(request.config) << text;
    request.worlds = std::move(worlds);
    request.sweep_parallel = sweep;
    request.options.overrides = std::move(overrides);
    const Loaded base = load(request.config, sized(1));
    INFO(render(base.diagnostics));
    REQUIRE_FALSE(base.has_errors());
    result = estimate(request, base.config);
  }
  [[nodiscard]] LoadOptions sized(std::int64_t world) const {
    LoadOptions options = request.options;
    options.world_size = world;
    return options;
  }
  /// The plan of a row's overrides.
  [[nodiscard]] PlanReport plan_of(const EstimateRow& row) const {
    LoadOptions options = sized(row.world);
    for (const std::string& set : row.sets) {
      options.overrides.push_back({set});
    }
    const Loaded loaded = load(request.config, options);
    INFO(render(loaded.diagnostics));
    REQUIRE_FALSE(loaded.has_errors());
    return make_plan(loaded.config, 0);
  }

  EstimateRequest request;
  Estimate result;

 private:
  TempDir dir_;
};

std::string layout(const EstimateRow& row) {
  return fmt::format("{} {} {} {}", row.world, row.policy, row.recompute, row.micro_batch);
}

const EstimateRow& find(const Estimate& estimate, const std::string& wanted) {
  const auto found = std::ranges::find(estimate.rows, wanted, layout);
  INFO(wanted);
  REQUIRE(found != estimate.rows.end());
  return *found;
}

}  // namespace

TEST_CASE("without a sweep there is one row a world, the configuration as it is", "[estimate]") {
  const Estimated one(kConfig, {1, 2, 4}, false);
  REQUIRE(one.result.rows.size() == 2);
  CHECK(layout(one.result.rows[0]) == "1 zero 0 none 4");
  CHECK(layout(one.result.rows[1]) == "2 zero 0 none 4");
  CHECK(one.result.rows[0].sets.empty());
  CHECK(one.result.rows[1].sets == std::vector<std::string>{"parallel.data=auto"});
  CHECK(one.result.rows[1].accumulation == 1);
  REQUIRE(one.result.impossible.size() == 1);  // 8 samples are fewer than 4 x 4
  CHECK(one.result.impossible[0].world == 4);
  CHECK(one.result.impossible[0].reason.find("[batch-mismatch]") != std::string::npos);
}

TEST_CASE("every row is the plan of its overrides", "[estimate]") {
  const Estimated all(kConfig, {1, 2, 4}, true);
  REQUIRE(all.result.rows.size() > 60);
  for (const EstimateRow& row : all.result.rows) {
    INFO(layout(row) << "\n" << fmt::format("{}", fmt::join(row.sets, "\n")));
    const PlanReport plan = all.plan_of(row);
    CHECK(plan.world == row.world);
    CHECK(plan.global_batch == 8);
    CHECK(plan.micro_batch == row.micro_batch);
    CHECK(plan.accumulation == row.accumulation);
    CHECK(plan.ranks.front().total() == row.bytes.total());
    CHECK(bytes_json(plan.ranks.front()) == bytes_json(row.bytes));
    CHECK(plan.comm_bytes_per_step == row.reduced_bytes);
    CHECK(plan.gather_bytes_per_step == row.gathered_bytes);
  }
}

TEST_CASE("a row whose batch is not that of the header tells its own", "[estimate]") {
  std::string text = kConfig;
  const std::string given = "global_batch_size: 8";
  text.replace(text.find(given), given.size(), "gradient_accumulation: 2");
  const Estimated one(text, {1, 2}, false);
  REQUIRE(one.result.rows.size() == 2);
  CHECK(one.result.global_batch == 8);
  CHECK(one.result.rows[0].global_batch == 8);
  CHECK(one.result.rows[1].global_batch == 16);
  const std::string table = to_text(one.result);
  INFO(table);
  CHECK(table.find("samples/step") != std::string::npos);
  CHECK(table.find("4 x 2            16  ") != std::string::npos);
  CHECK(nlohmann::json::parse(to_json(one.result))["rows"][1]["global_batch"] == 16);
  CHECK(to_text(Estimated(kConfig, {1}, false).result).find("samples/step") == std::string::npos);
}

TEST_CASE("a sweep holds each layout once, in order of need", "[estimate]") {
  const Estimated all(kConfig, {1, 2}, true);
  std::set<std::string> seen;
  for (const EstimateRow& row : all.result.rows) {
    INFO(layout(row));
    CHECK(seen.insert(layout(row)).second);
  }
  for (const char* policy : {"zero 0",
                             "zero 1",
                             "zero 2",
                             "zero 3",
                             "zero 2, optimizer on host",
                             "zero 3, optimizer and weights on host",
                             "gemini cuda",
                             "gemini cpu"}) {
    for (const char* recompute : {"none", "selective", "full"}) {
      for (const int micro : {1, 2, 4}) {
        (void)find(all.result, fmt::format("2 {} {} {}", policy, recompute, micro));
      }
    }
  }
  CHECK_FALSE(seen.contains("1 zero 2 none 8"));  // one process has nothing to cut
  CHECK(seen.contains("1 zero 0 none 8"));
  CHECK_FALSE(seen.contains("2 zero 0 none 8"));
  CHECK_FALSE(seen.contains("2 gemini auto none 4"));  // a device without a size
  for (std::size_t i = 1; i < all.result.rows.size(); ++i) {
    const EstimateRow& a = all.result.rows[i - 1];
    const EstimateRow& b = all.result.rows[i];
    CHECK((a.world < b.world || (a.world == b.world && a.bytes.total() <= b.bytes.total())));
  }
}

TEST_CASE("cutting, smaller micro-batches and recomputation save what they should", "[estimate]") {
  const Estimated all(kConfig, {2}, true);
  const auto bytes = [&](const std::string& row) { return find(all.result, "2 " + row).bytes; };
  CHECK(bytes("zero 1 none 4").optimizer * 2 ==
        Approx(bytes("zero 0 none 4").optimizer).epsilon(0.01));
  CHECK(bytes("zero 3 none 4").weights * 2 == Approx(bytes("zero 0 none 4").weights).epsilon(0.01));
  CHECK(bytes("zero 0, optimizer on host none 4").optimizer < bytes("zero 0 none 4").optimizer);
  CHECK(bytes("zero 0, optimizer on host none 4").host.optimizer > 0);
  CHECK(bytes("zero 0 none 4").host.total() == 0);
  CHECK(bytes("zero 0 none 1").activations * 3 < bytes("zero 0 none 4").activations);
  CHECK(bytes("zero 0 full 4").activations < bytes("zero 0 none 4").activations);
  CHECK(bytes("zero 0 selective 4").activations < bytes("zero 0 none 4").activations);
}

TEST_CASE("a capacity says what fits, and Gemini knows its device", "[estimate]") {
  const Estimated all(kConfig, {2}, true, {{"run.device_memory=1MiB", "--gpu-memory"}});
  CHECK(all.result.capacity.device == 1 << 20);
  CHECK(all.result.capacity.host == usable_memory());
  int fitting = 0;
  for (const EstimateRow& row : all.result.rows) {
    REQUIRE(row.fits.has_value());
    CHECK(*row.fits == (row.bytes.total() <= (1 << 20)));
    fitting += *row.fits ? 1 : 0;
  }
  CHECK(fitting > 0);
  CHECK(fitting < std::ssize(all.result.rows));
  (void)find(all.result, "2 gemini auto none 4");
}

TEST_CASE("a policy with keys of its own keeps its row", "[estimate]") {
  const Estimated all(
      kConfig + "parallel: {gemini: {placement: static, offload_optim_frac: 0.5}}\n", {1, 2}, true);
  const EstimateRow& own = find(all.result, "2 gemini static none 4");
  CHECK(own.bytes.host.total() > 0);
  CHECK(std::ranges::none_of(own.sets, [](const std::string& set) {
    return set.starts_with("parallel.gemini") || set.starts_with("parallel.zero");
  }));
  CHECK(all.result.impossible.empty());
  (void)find(all.result, "2 zero 3 none 4");
}

TEST_CASE("worlds that do not divide the batch are told once", "[estimate]") {
  const Estimated all(kConfig, {1, 3}, true);
  REQUIRE(all.result.impossible.size() == 1);
  CHECK(all.result.impossible[0].world == 3);
  const std::string text = to_text(all.result);
  CHECK(text.find("left out  1 layout: 8 samples of a step do not divide by 3 processes "
                  "[batch-mismatch]\n") != std::string::npos);
}

TEST_CASE("the text of an estimate marks what is out of memory", "[estimate]") {
  Estimate estimate{.name = "run",
                    .global_batch = 4096,
                    .capacity = {.device = 1 << 30, .host = 0, .device_name = "a card"},
                    .rows = {},
                    .impossible = {}};
  EstimateRow row;
  row.world = 2;
  row.policy = "zero 1";
  row.recompute = "none";
  row.global_batch = 4096;
  row.micro_batch = 4;
  row.accumulation = 512;
  row.bytes.weights = std::int64_t{1} << 29;
  row.fits = true;
  estimate.rows.push_back(row);
  CHECK(to_text(estimate) ==
        "estimate  run  4,096 samples a step; capacity 1.0 GiB a device (a card)\n"
        "world  policy  recompute  micro x accum     device  fits\n"
        "2      zero 1  none             4 x 512  512.0 MiB   yes\n");
  row.bytes.host.optimizer = 1 << 20;
  row.bytes.nvme = 1 << 21;
  row.gathered_bytes = 1024;
  row.fits = false;
  estimate.rows.push_back(row);
  row.fits.reset();
  estimate.rows.push_back(row);
  estimate.capacity = {};
  CHECK(to_text(estimate) ==
        "estimate  run  4,096 samples a step; capacity unknown: give --gpu-memory\n"
        "world  policy  recompute  micro x accum     device     host     disk  reduced/step  "
        "gathered/step  fits\n"
        "2      zero 1  none             4 x 512  512.0 MiB        -        -             -        "
        "      -   yes\n"
        "2      zero 1  none             4 x 512  512.0 MiB  1.0 MiB  2.0 MiB             -        "
        "1.0 KiB   OOM\n"
        "2      zero 1  none             4 x 512  512.0 MiB  1.0 MiB  2.0 MiB             -        "
        "1.0 KiB     ?\n");
  const auto json = nlohmann::json::parse(to_json(estimate));
  CHECK(json["rows"][0]["fits"] == true);
  CHECK(json["rows"][1]["fits"] == false);
  CHECK(json["rows"][2]["fits"].is_null());
  CHECK(json["rows"][1]["device"] == std::int64_t{1} << 29);
}

TEST_CASE("a plan fits on every device, or all ranks together on the machine", "[estimate]") {
  PlanReport plan;
  CHECK_FALSE(overrun(plan, {.device = 1, .host = 0, .device_name = {}}).has_value());
  for (int rank = 0; rank < 4; ++rank) {
    plan.ranks.push_back(
        {.rank = rank, .weights = 100 + (rank == 2 ? 50 : 0), .host = {.weights = 1000}});
  }
  const Capacity device{.device = 149, .host = 0, .device_name = "the card"};
  const auto over = overrun(plan, device);
  REQUIRE(over.has_value());
  CHECK(over->rank == 2);
  CHECK(over->missing == 1);
  CHECK(over->text == "the plan needs 150 B on rank 2, and the card is 149 B");
  CHECK_FALSE(overrun(plan, {.device = 150, .host = 0, .device_name = {}}).has_value());

  CHECK_FALSE(overrun(plan, {.device = 0, .host = 4450, .device_name = {}}).has_value());
  const auto machine = overrun(plan, {.device = 0, .host = 4440, .device_name = {}});
  REQUIRE(machine.has_value());
  CHECK(machine->missing == 3);  // of each of the four
  CHECK(machine->text.find("for 4 processes, and this machine has") != std::string::npos);
  CHECK_FALSE(overrun(plan, {}).has_value());  // nothing is known

  plan.ranks_per_node = 2;  // ranks 2 and 3 are on another machine, which needs 50 more
  CHECK_FALSE(overrun(plan, {.device = 0, .host = 2250, .device_name = {}}).has_value());
  const auto second = overrun(plan, {.device = 0, .host = 2200, .device_name = {}});
  REQUIRE(second.has_value());
  CHECK(second->missing == 25);
  CHECK(second->text == "the plan needs 2.2 KiB for 2 processes, and this machine has 2.1 KiB");
}

TEST_CASE("a device of a known size does not hide what the host lacks", "[estimate]") {
  PlanReport plan;
  for (int rank = 0; rank < 2; ++rank) {
    plan.ranks.push_back({.rank = rank, .weights = 100, .host = {.grads = 1000 + rank}});
  }
  Capacity capacity{.device = 100, .host = 2200, .device_name = "the card"};
  const auto together = overrun(plan, capacity);  // both kinds lie in host memory: 2201
  REQUIRE(together.has_value());
  CHECK(together->missing == 1);
  CHECK(together->share == MemoryShare::both);
  capacity.apart = true;  // the devices are GPUs: 2001
  CHECK_FALSE(overrun(plan, capacity).has_value());
  capacity.host = 2000;
  const auto host = overrun(plan, capacity);
  REQUIRE(host.has_value());
  CHECK(host->rank == 1);
  CHECK(host->missing == 1);
  CHECK(host->share == MemoryShare::host);
  CHECK_THAT(host->text, Catch::Matchers::Contains("of host memory for 2 processes, and this"));
}

TEST_CASE("what is over names the key that says how much there is", "[estimate]") {
  PlanReport plan;
  RankBytes& rank = plan.ranks.emplace_back(RankBytes{.weights = 100, .host = {1000}});
  Config config = tiny_gpt();
  config.run.device = DeviceKind::cpu;
  const auto key = [&] { return overrun(plan, capacity_of(config)).value().key; };
  config.run.device_memory = 99;
  CHECK(key() == "run.device_memory");
  config.run.device_memory = 100;
  GeminiConfig& gemini = config.parallel.gemini.emplace();
  gemini.host_memory = 999;
  CHECK(key() == "parallel.gemini.host_memory");
  rank.slack = -1;  // of what the placement lets gathered weights take
  gemini.placement = Placement::automatic;
  CHECK(key() == "run.device_memory");
  gemini.placement = Placement::constant;
  CHECK(key() == "parallel.gemini.const_budget");
  rank.slack.reset();
  gemini.host_memory.reset();
  rank.host.weights = std::int64_t{1} << 60U;
  CHECK(key().empty());  // none says what a machine has
}

TEST_CASE("what auto moves after a step lies in the host's memory before it", "[estimate]") {
  Config config = tiny_gpt();
  config.run.device_memory = 64 << 20;
  config.run.device = DeviceKind::cpu;
  config.parallel.gemini.emplace();
  config.parallel.gemini->placement = Placement::automatic;
  const PlanReport plan = make_plan(config, 0);
  const RankBytes& rank = plan.ranks.front();
  const std::int64_t host = rank.host.total();
  CHECK(host > 0);
  CHECK(rank.moved == host);  // all that moves is never on both sides at once
  CHECK(bytes_of(rank, MemoryShare::both) == rank.total());
  config.parallel.gemini->host_memory = host;
  CHECK_FALSE(overrun(plan, capacity_of(config)).has_value());
  config.parallel.gemini->host_memory = host - 1;
  const auto over = overrun(plan, capacity_of(config));
  REQUIRE(over.has_value());
  CHECK(over->missing == 1);
  CHECK(over->share == MemoryShare::host);
  CHECK_THAT(over->text, Catch::Matchers::Contains("and parallel.gemini.host_memory is"));
}

TEST_CASE("the capacity is the device's, and the machine's where tensors lie there", "[estimate]") {
  Config config;
  config.run.device = DeviceKind::cpu;
  const Capacity host = capacity_of(config);
  CHECK(host.device == 0);
  CHECK(host.host > (std::int64_t{1} << 28));
  config.run.device_memory = 12345;
  const Capacity device = capacity_of(config);
  CHECK(device.device == 12345);
  CHECK(device.host == host.host);  // a simulated device lies in host memory
  CHECK_FALSE(device.apart);
  // Where there is no GPU, auto trains in host memory, whatever size a "device" there is given.
  config.run.device = DeviceKind::automatic;
  const GpuSurvey survey = survey_gpus();
  const bool has_gpu = survey.built_for != 0 && !survey.gpus.empty();
  CHECK(capacity_of(config).apart == has_gpu);
  CHECK(capacity_of(config).host == host.host);
  config.run.device_memory.reset();
  CHECK(capacity_of(config).apart == has_gpu);
  // A plan for GPUs, which may be elsewhere, has two memories, whether their size is known or not.
  config.run.device = DeviceKind::cuda;
  CHECK(capacity_of(config).apart);
  config.run.device_memory = 12345;
  CHECK(capacity_of(config).apart);
}

TEST_CASE("host memory of a plan follows from where the run computes, not from a device's size",
          "[estimate]") {
  Config config = tiny_gpt();
  config.train.precision = Precision::bf16;
  config.train.gradient_accumulation = 2;
  config.parallel.gemini.emplace();
  config.parallel.gemini->placement = Placement::fixed;
  config.parallel.gemini->offload_optim_frac = 1;
  const auto host = [&](DeviceKind device, std::optional<std::int64_t> memory) {
    config.run.device = device;
    config.run.device_memory = memory;
    return make_plan(config, 0).ranks.front().host.total();
  };
  const std::int64_t size = 100'000'000;
  const std::int64_t of_cpu = host(DeviceKind::cpu, size);
  const std::int64_t of_gpu = host(DeviceKind::cuda, size);
  CHECK(of_gpu > of_cpu);  // copies that cross to the device
  CHECK(host(DeviceKind::cuda, {}) == of_gpu);
  const GpuSurvey survey = survey_gpus();
  const bool has_gpu = survey.built_for != 0 && !survey.gpus.empty();
  CHECK(host(DeviceKind::automatic, size) == (has_gpu ? of_gpu : of_cpu));
}

}  // namespace colossal::test
