// Do sweeps of random shape mean what a second, simpler expansion says, and does no damage to a
// sweep file crash the loader?
#include "config/flatten.hpp"
#include "config/scalar.hpp"
#include "config/sweep/values.hpp"
#include "mutator.hpp"
#include "schema_check.hpp"
#include "support/catch.hpp"
#include "support/text.hpp"
#include "sweep_sandbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <set>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 60;
#else
constexpr int kRounds = 400;
#endif

/// Keys with values that every configuration takes, in their one form.
const std::vector<std::pair<std::string, std::vector<std::string>>> kKeys = {
    {"optimizer.lr", {"0.001", "0.01", "0.1"}},
    {"optimizer.weight_decay", {"0", "0.1", "0.25"}},
    {"optimizer.betas", {"[0.8, 0.9]", "[0.9, 0.95]"}},
    {"run.seed", {"1", "2", "3"}},
    {"train.steps", {"10", "20"}},
    {"train.clip_grad_norm", {"0", "1"}},
    {"train.precision", {"fp32", "fp64", "bf16"}},
    {"model.dropout", {"0", "0.5"}},
    {"model.tie_embeddings", {"true", "false"}},
    {"data.prefetch", {"1", "2", "4"}},
    {"logging.csv", {"true", "false"}},
};

using Point = std::map<std::string, std::string>;

/// A random grid as a file and, by another way, as its trials in order.
struct RandomGrid {
  explicit RandomGrid(unsigned seed) : random(seed) {
    std::vector<std::size_t> order(kKeys.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::shuffle(order.begin(), order.end(), random);
    std::size_t next = 0;
    std::string parameters;
    for (std::size_t n = pick(4); n > 0; --n) {
      const auto& [key, values] = kKeys[order[next++]];
      const std::size_t count = 1 + pick(values.size());
      axes.emplace_back();
      parameters += fmt::format("  {}: [", key);
      for (std::size_t i = 0; i < count; ++i) {
        parameters += (i > 0 ? ", " : "") + values[i];
        axes.back().push_back({{key, values[i]}});
      }
      parameters += "]\n";
    }
    std::string zip;
    for (std::size_t blocks = pick(3); blocks > 0; --blocks) {
      axes.emplace_back(2);
      std::string block;
      for (std::size_t keys = 1 + pick(2); keys > 0; --keys) {
        const auto& [key, values] = kKeys[order[next++]];
        block +=
            fmt::format("{}{}: [{}, {}]", block.empty() ? "" : ", ", key, values[0], values[1]);
        axes.back()[0][key] = values[0];
        axes.back()[1][key] = values[1];
      }
      zip += "  - {" + block + "}\n";
    }
    text = kHead + (parameters.empty() ? "" : "parameters:\n" + parameters) +
           (zip.empty() ? "" : "zip:\n" + zip);
    points = all_points();
    leave_one_out();
  }

  /// By the digits of a number whose base is the length of each axis.
  [[nodiscard]] std::vector<Point> all_points() const {
    std::size_t count = 1;
    for (const auto& axis : axes) {
      count *= axis.size();
    }
    std::vector<Point> all(count);
    for (std::size_t number = 0; number < count; ++number) {
      std::size_t rest = number;
      for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
        const Point& at = (*axis)[rest % axis->size()];
        all[number].insert(at.begin(), at.end());
        rest /= axis->size();
      }
    }
    return all;
  }

  /// Excludes a value of one axis, if others are left.
  void leave_one_out() {
    if (axes.empty() || pick(2) == 0 || axes.front().size() < 2) {
      return;
    }
    const auto& [key, value] = *axes.front()[pick(axes.front().size())].begin();
    text += fmt::format("exclude: [{{{}: {}}}]\n", key, value);
    const auto named = [&, wanted = value](const Point& point) { return point.at(key) == wanted; };
    std::erase_if(points, named);
  }

  std::size_t pick(std::size_t count) { return random() % count; }

  std::mt19937 random;
  std::vector<std::vector<Point>> axes;
  std::string text;
  std::vector<Point> points;
};

Point sets_of(const SweepTrial& trial) {
  Point point;
  for (const Related& set : trial.sets) {
    point[set.path] = set.value;
  }
  return point;
}

}  // namespace

TEST_CASE("random grids have the trials that counting gives, in its order", "[sweep]") {
  const SweepSandbox box;
  SchemaCheck schema(sweep_schema());
  for (unsigned seed = 0; seed < 80; ++seed) {
    const RandomGrid grid(seed);
    INFO(grid.text);
    CHECK(schema.accepts(grid.text));
    const Sweep sweep = box.load(grid.text);
    if (grid.axes.empty() || grid.points.empty()) {
      CHECK(summary(sweep) == "sweep-empty 1 1");
      continue;
    }
    INFO(render(sweep.diagnostics));
    REQUIRE(sweep.trials.size() == grid.points.size());
    std::set<std::string> ids;
    for (std::size_t i = 0; i < grid.points.size(); ++i) {
      CHECK(sets_of(sweep.trials[i]) == grid.points[i]);
      CHECK(sweep.trials[i].index == static_cast<std::int64_t>(i));
      ids.insert(sweep.trials[i].id);
    }
    CHECK(ids.size() == grid.points.size());
  }
}

TEST_CASE("what a trial sets is what its configuration then holds", "[sweep]") {
  const SweepSandbox box;
  for (unsigned seed = 100; seed < 110; ++seed) {
    const RandomGrid grid(seed);
    for (const SweepTrial& trial : box.load(grid.text).trials) {
      LoadOptions options;
      for (const Related& set : trial.sets) {
        options.overrides.push_back({set.path + "=" + set.value});
      }
      const Loaded loaded = load(box.path() / "base.yaml", options);
      INFO(trial.overrides << "\n" << render(loaded.diagnostics));
      REQUIRE_FALSE(loaded.has_errors());
      for (const detail::FlatField& field : detail::flatten(loaded.config)) {
        const Point sets = sets_of(trial);
        const auto set = sets.find(field.path);
        CHECK((set == sets.end() || set->second == field.text));
      }
    }
  }
}

TEST_CASE("an id does not depend on the order of keys, blocks and values", "[sweep]") {
  const SweepSandbox box;
  const auto ids_of = [&](const std::string& text) {
    std::map<std::string, std::string> ids;
    const Sweep sweep = box.load(kHead + text);
    INFO(render(sweep.diagnostics));
    REQUIRE_FALSE(sweep.has_errors());
    for (const SweepTrial& trial : sweep.trials) {
      ids[trial.overrides] = trial.id;
    }
    return ids;
  };
  const auto ids = ids_of("parameters: {run.seed: [1, 2], optimizer.lr: [0.1, 0.2]}\n");
  CHECK(ids.size() == 4);
  CHECK(ids_of("parameters: {optimizer.lr: [2e-1, 1e-1], run.seed: [2, 1]}\n") == ids);
  CHECK(ids_of("parameters: {run.seed: [1, 2]}\nzip: [{optimizer.lr: [0.1, 0.2]}]\n") == ids);
  CHECK(ids_of("method: list\ntrials:\n"
               "  - {run.seed: 1, optimizer.lr: 0.1}\n  - {optimizer.lr: 0.2, run.seed: 1}\n"
               "  - {run.seed: 2, optimizer.lr: 0.1}\n  - {run.seed: 2, optimizer.lr: 0.2}\n") ==
        ids);
  // a value more leaves all others as they are
  const auto more = ids_of("parameters: {run.seed: [3, 1, 2], optimizer.lr: [0.1, 0.2]}\n");
  CHECK(more.size() == 6);
  CHECK(
      std::ranges::all_of(ids, [&](const auto& one) { return more.at(one.first) == one.second; }));
}

TEST_CASE("draws of two keys have nothing to do with each other, nor have neighbours", "[sweep]") {
  const SweepSandbox box;
  const Sweep sweep = box.load(kHead +
                               "method: random\nsamples: 600\nparameters:\n"
                               "  optimizer.lr: {uniform: [0.001, 0.1]}\n"
                               "  model.dropout: {uniform: [0.001, 0.1]}\n");
  REQUIRE(sweep.trials.size() == 600);
  std::vector<double> a;
  std::vector<double> b;
  for (const SweepTrial& trial : sweep.trials) {
    a.push_back(std::get<double>(detail::parse_real(trial.sets[0].value)));
    b.push_back(std::get<double>(detail::parse_real(trial.sets[1].value)));
  }
  const auto correlation = [](const std::vector<double>& x, const std::vector<double>& y) {
    constexpr double kMean = 0.0505;
    double xy = 0;
    double xx = 0;
    double yy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      xy += (x[i] - kMean) * (y[i] - kMean);
      xx += (x[i] - kMean) * (x[i] - kMean);
      yy += (y[i] - kMean) * (y[i] - kMean);
    }
    return xy / std::sqrt(xx * yy);
  };
  CHECK(std::abs(correlation(a, b)) < 0.15);
  std::vector<double> shifted(a.begin() + 1, a.end());
  shifted.push_back(a.front());
  CHECK(std::abs(correlation(a, shifted)) < 0.15);
}

TEST_CASE("random trees of nasty texts survive the way through one line", "[sweep]") {
  const std::vector<std::string> nasty = {
      "",    " ",    "a b",    "- x",   "x: y", "[",        "]",    "{a: b}", "\"", "'",
      "\\",  "#",    "a#b",    "&a",    "*b",   "!c",       "|",    ">",      "%",  "@",
      "`",   "null", "~",      "true",  "No",   "1",        "0x10", "1e5",    "-",  "--",
      "? k", ",",    "${a.b}", "$${x}", "\t",   "\xC3\xA9", "a\nb", "=",      "<<", "...",
      "---", "1_0",  "12:30",  "+1",    ".5",   "-.inf",    "5 MiB"};
  std::mt19937 random(7);
  const auto pick = [&](std::size_t count) { return random() % count; };
  const std::function<Node(int)> tree = [&](int depth) {
    Node node;
    if (depth == 0 || pick(3) == 0) {
      node.kind = Node::Kind::scalar;
      node.text = nasty[pick(nasty.size())];
      node.quoted = true;
      return node;
    }
    node.kind = pick(2) == 0 ? Node::Kind::list : Node::Kind::map;
    for (std::size_t i = pick(4); i > 0; --i) {
      Node child = tree(depth - 1);
      child.key = node.kind == Node::Kind::map ? fmt::format("key{}", i) : "";
      node.children.push_back(std::move(child));
    }
    return node;
  };
  for (int round = 0; round < 500; ++round) {
    const Node node = tree(3);
    const std::string text = detail::flow_yaml(node);
    INFO(text);
    detail::Report report;
    const auto back = detail::parse_yaml(text, {}, false, report);
    REQUIRE(back.has_value());
    CHECK_FALSE(report.has_errors());
    CHECK(to_json(*back) == to_json(node));
  }
}

TEST_CASE("damaged sweep files end in diagnostics, or in trials that schema and loader accept",
          "[sweep]") {
  SchemaCheck schema(sweep_schema());
  const ConfigSandbox box;
  const fs::path configs = fs::path(COLOSSAL_SOURCE_DIR) / "configs";
  fs::copy(configs, box.path() / "configs", fs::copy_options::recursive);
  unsigned seed = 1;
  for (const char* name : {"lr-batch.yaml", "random-mlp.yaml"}) {
    const std::string original = read_file(configs / "sweeps" / name);
    Mutator mutate(seed++);
    int valid = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::string text = mutate(original);
      const fs::path file = box.write("configs/sweeps/mutated.yaml", text);
      const Sweep sweep = load_sweep(file);
      INFO(text);
      if (sweep.has_errors()) {
        REQUIRE(render(sweep.diagnostics).size() > 20);
        REQUIRE(sweep.diagnostics.size() <= 60);
        continue;
      }
      ++valid;
      CHECK(schema.accepts(text));
      CHECK_FALSE(sweep.trials.empty());
      std::set<std::string> ids;
      for (const SweepTrial& trial : sweep.trials) {
        CHECK(ids.insert(trial.id).second);
      }
    }
    INFO(name << ": " << valid << " valid");
    CHECK(valid > kRounds / 50);
    CHECK(valid < kRounds);
  }
}

}  // namespace colossal::test
