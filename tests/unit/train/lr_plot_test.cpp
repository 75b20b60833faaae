// Does the picture of a schedule show the right rates at the right places?
#include "train/lr_plot.hpp"

#include "core/error.hpp"
#include "optim/scheduler.hpp"
#include "support/catch.hpp"
#include "support/text.hpp"
#include "support/tiny_models.hpp"

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

struct Point {
  double x = 0;
  double y = 0;
};

/// The points of every line of the picture.
std::vector<std::vector<Point>> lines_of(const std::string& svg) {
  std::vector<std::vector<Point>> lines;
  const std::regex polyline(R"re(<polyline[^>]*points="([^"]*)")re");
  for (std::sregex_iterator it(svg.begin(), svg.end(), polyline), end; it != end; ++it) {
    std::istringstream text((*it)[1].str());
    std::vector<Point>& line = lines.emplace_back();
    Point point;
    for (char comma = 0; text >> point.x >> comma >> point.y;) {
      line.push_back(point);
    }
  }
  return lines;
}

}  // namespace

TEST_CASE("the line follows the scheduler at every step", "[plot]") {
  Config config = tiny_gpt();
  config.scheduler.warmup_steps = 20;
  const std::string svg = lr_plot(config, 200);
  const auto lines = lines_of(svg);
  REQUIRE(lines.size() == 1);
  REQUIRE(lines[0].size() == 200);
  const Scheduler scheduler(config.scheduler, config.optimizer.lr, 200);
  // Two points give the scale; every other one must lie on it.
  const Point& first = lines[0].front();
  const Point& peak = lines[0][20];
  const double per_rate = (first.y - peak.y) / (scheduler.lr(20) - scheduler.lr(0));
  const double zero = first.y + per_rate * scheduler.lr(0);
  for (std::size_t k = 0; k < 200; ++k) {
    CHECK(lines[0][k].y ==
          Approx(zero - per_rate * scheduler.lr(static_cast<std::int64_t>(k))).margin(0.02));
    CHECK(lines[0][k].x ==
          Approx(first.x + (lines[0].back().x - first.x) * static_cast<double>(k) / 199)
              .margin(0.01));
  }
  CHECK(count(svg, ">step<") == 1);
  CHECK(count(svg, ">learning rate<") == 1);
  CHECK(count(svg, "20 steps of warm-up, then cosine from step 20") == 1);
}

TEST_CASE("a peak between two drawn updates is drawn, and inside the frame", "[plot]") {
  Config config = tiny_gpt();
  config.scheduler = SchedulerConfig();
  config.scheduler.type = SchedulerType::inverse_sqrt;
  config.scheduler.warmup_steps = 3;  // of strides of 66 updates
  const auto line = lines_of(lr_plot(config, 100'000)).front();
  const Scheduler scheduler(config.scheduler, config.optimizer.lr, 100'000);
  const auto top = std::ranges::min_element(line, {}, &Point::y);
  CHECK(top - line.begin() == 1);  // the first stride gives its first update and its highest
  CHECK(top->y > 84);
  CHECK(top->y < 100);
  CHECK(scheduler.lr(3) == Approx(config.optimizer.lr));
}

TEST_CASE("groups of another rate get their own line and name", "[plot]") {
  Config config = tiny_gpt();
  config.optimizer.groups = {{.match = "blocks.<0>.*", .lr_scale = 0.5, .weight_decay = {}},
                             {.match = "norm*", .lr_scale = 2, .weight_decay = {}},
                             {.match = "head.*", .lr_scale = 0.5, .weight_decay = {}},
                             {.match = "embed.*", .lr_scale = 1, .weight_decay = {}}};
  const std::string svg = lr_plot(config, 50);
  const auto lines = lines_of(svg);
  REQUIRE(lines.size() == 3);
  const auto top = [](const std::vector<Point>& line) {
    return std::ranges::min_element(line, {}, &Point::y)->y;
  };
  CHECK(top(lines[0]) < top(lines[1]));  // highest rate first
  CHECK(top(lines[1]) < top(lines[2]));
  CHECK(top(lines[0]) > 84);  // inside the frame
  CHECK(count(svg, "lr x 0.5: blocks.&lt;0&gt;.*, head.*") == 1);
  CHECK(count(svg, "lr x 2: norm*") == 1);
}

TEST_CASE("long runs and single steps can be drawn, bad schedules cannot", "[plot]") {
  Config config = tiny_gpt();
  config.scheduler.warmup_steps = 0;
  const std::size_t many = lines_of(lr_plot(config, 1'000'000)).front().size();
  CHECK(many >= 1500);
  CHECK(many <= 3010);
  CHECK(lines_of(lr_plot(config, 1)).front().size() == 1);
  config.scheduler.warmup_steps = 9;
  CHECK_THROWS_AS(lr_plot(config, 8), Error);
}

}  // namespace colossal::test
