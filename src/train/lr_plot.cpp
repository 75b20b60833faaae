// How is a learning rate drawn? Plain SVG text; no library.
#include "train/lr_plot.hpp"

#include "config/schedule.hpp"
#include "optim/scheduler.hpp"
#include "train/human.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <string_view>
#include <vector>

namespace colossal {
namespace {

// Pixels of the picture and of the frame that the lines are drawn in.
constexpr double kWidth = 860;
constexpr double kHeight = 430;
constexpr double kLeft = 92;
constexpr double kRight = 836;
constexpr double kTop = 84;
constexpr double kBottom = 372;
/// More points than pixels show nothing more.
constexpr std::int64_t kMaxPoints = 1500;
constexpr std::array<std::string_view, 6> kColours = {
    "#1f6fb4", "#d1495b", "#2a9d5c", "#8e5bb5", "#c77d0a", "#5b6470"};

/// Text inside an element.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// 1, 2 or 5 times a power of ten, such that `range` has four to ten such steps.
double tick_step(double range) {
  const double rough = range / 8;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) {
      return factor * power;
    }
  }
  return 10 * power;
}

/// Where values lie in the frame.
struct Scale {
  double last_step = 1;
  double top = 1;
  [[nodiscard]] double x(double step) const {
    return kLeft + (kRight - kLeft) * (step - 1) / std::max(1.0, last_step - 1);
  }
  [[nodiscard]] double y(double rate) const { return kBottom - (kBottom - kTop) * rate / top; }
};

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                     x,
                     y,
                     anchor,
                     escaped(text));
}

std::string axes(const Scale& scale) {
  std::string out;
  const double rate_step = tick_step(scale.top);
  for (int i = 0; i * rate_step <= scale.top * 1.0001; ++i) {
    const double y = scale.y(i * rate_step);
    out +=
        fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#e3e6ea\"/>\n", kLeft, y, kRight);
    out += text_at(kLeft - 8, y + 4, "end", fmt::format("{:.4g}", i * rate_step));
  }
  const double ticks = std::max(1.0, tick_step(scale.last_step));
  out += text_at(scale.x(1), kBottom + 20, "middle", "1");
  for (double step = ticks; step <= scale.last_step; step += ticks) {
    if (step > ticks / 2 + 1) {  // the first step has its label already
      const double x = scale.x(step);
      out += fmt::format("<path d=\"M{:.1f} {:.1f}v5\" stroke=\"#5b6470\"/>\n", x, kBottom);
      out += text_at(x, kBottom + 20, "middle", thousands(std::llround(step)));
    }
  }
  out += fmt::format(
      "<path d=\"M{0:.1f} {1:.1f}V{2:.1f}H{3:.1f}\" fill=\"none\" stroke=\"#5b6470\"/>\n",
      kLeft,
      kTop,
      kBottom,
      kRight);
  out += text_at((kLeft + kRight) / 2, kBottom + 44, "middle", "step");
  out += fmt::format(
      "<text transform=\"translate(24 {:.1f}) rotate(-90)\" text-anchor=\"middle\">learning "
      "rate</text>\n",
      (kTop + kBottom) / 2);
  return out;
}

/// One update and its rate.
struct Point {
  std::int64_t k = 0;
  double lr = 0;
};

/// The rates of all updates; of a long run, of some kMaxPoints and the highest one between each
/// two.
std::vector<Point> drawn_points(const Scheduler& scheduler, std::int64_t total) {
  const std::int64_t stride = std::max<std::int64_t>(1, total / kMaxPoints);
  // Every update of a stride is looked at, of strides too long for that some.
  constexpr std::int64_t kLooks = 1000;
  std::vector<Point> points;
  for (std::int64_t begin = 0; begin < total; begin += stride) {
    const std::int64_t end = std::min(begin + stride, total);
    Point highest{begin, scheduler.lr(begin)};
    for (std::int64_t k = begin; k < end; k += std::max<std::int64_t>(1, stride / kLooks)) {
      highest = scheduler.lr(k) > highest.lr ? Point{k, scheduler.lr(k)} : highest;
    }
    points.push_back({begin, scheduler.lr(begin)});
    if (highest.k != begin) {
      points.push_back(highest);
    }
  }
  if (points.back().k != total - 1) {
    points.push_back({total - 1, scheduler.lr(total - 1)});
  }
  return points;
}

std::string line(std::span<const Point> points, double factor, const Scale& scale) {
  std::string text;
  for (const Point& point : points) {
    text += fmt::format("{}{:.2f},{:.2f}",
                        text.empty() ? "" : " ",
                        scale.x(static_cast<double>(point.k + 1)),
                        scale.y(point.lr * factor));
  }
  return text;
}

/// Names of the parameters of each rate factor, highest first; the factor 1 is always there.
std::map<double, std::string, std::greater<>> factors(const OptimizerConfig& optimizer) {
  std::map<double, std::string, std::greater<>> names;
  names[1] = "lr";
  for (const OptimizerGroup& group : optimizer.groups) {
    std::string& text = names[group.lr_scale];
    text += text.empty() ? fmt::format("lr x {:.4g}: {}", group.lr_scale, group.match)
                         : ", " + group.match;
  }
  return names;
}

}  // namespace

std::string lr_plot(const Config& config, std::int64_t total_steps) {
  const Scheduler scheduler(config.scheduler, effective_lr(config), total_steps);
  const auto lines = factors(config.optimizer);
  const std::vector<Point> points = drawn_points(scheduler, total_steps);
  const double highest =
      std::ranges::max_element(points, {}, &Point::lr)->lr * lines.begin()->first;
  const Scale scale{.last_step = static_cast<double>(total_steps),
                    .top = highest > 0 ? highest * 1.05 : 1};
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"13\" "
      "fill=\"#24292f\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth,
      kHeight);
  svg += fmt::format("<text x=\"{:.1f}\" y=\"26\" font-size=\"16\">{}: learning rate</text>\n",
                     kLeft,
                     escaped(config.run.name));
  svg += text_at(kLeft, 46, "start", scheduler.in_words());
  svg += axes(scale);
  double legend = kLeft;
  std::size_t index = 0;
  for (const auto& [factor, name] : lines) {
    const std::string_view colour = kColours[index++ % kColours.size()];
    svg += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"{}\"/>\n",
                       colour,
                       line(points, factor, scale));
    svg += fmt::format(
        "<path d=\"M{:.1f} 64h18\" stroke=\"{}\" stroke-width=\"3\"/>\n", legend, colour);
    svg += text_at(legend + 24, 68, "start", name);
    legend += 44 + 7.2 * static_cast<double>(name.size());
  }
  return svg + "</svg>\n";
}

}  // namespace colossal
