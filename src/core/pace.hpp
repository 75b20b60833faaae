// When does a long task say how far it is?
#pragma once

namespace colossal {

/// Says when a line about the progress of a task is due: quick tasks never say anything.
class Pace {
 public:
  /// The first line after `first_seconds`, then one every `every_seconds`.
  Pace(double first_seconds, double every_seconds) noexcept
      : next_(first_seconds), every_(every_seconds) {}

  /// Whether a line is due `seconds` after the task began; the next one is then `every_seconds`
  /// later.
  [[nodiscard]] bool due(double seconds) noexcept {
    if (seconds < next_) {
      return false;
    }
    next_ = seconds + every_;
    return true;
  }

 private:
  double next_;
  double every_;
};

}  // namespace colossal
