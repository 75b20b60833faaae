// In which order does a step use blocks? Recorded in one step, followed in the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace colossal::detail {

/// A number of chunk, block or parameter as an index.
[[nodiscard]] inline std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

/// The acquisitions of a training step. What comes next is known from the second step on, as long
/// as every step does the same; a step that differs is recorded anew.
class StepTrace {
 public:
  /// `uses[b]`: chunks that block b uses.
  explicit StepTrace(std::vector<std::vector<int>> uses);

  /// A step begins or ends; acquisitions in between belong to it.
  void begin();
  void end();
  /// Block b is acquired. Outside of a step nothing is recorded.
  void acquire(int block);

  /// Whether a step is under way.
  [[nodiscard]] bool active() const noexcept { return active_; }
  /// Acquisitions of this step so far.
  [[nodiscard]] std::size_t position() const noexcept { return current_.size(); }
  /// Whether what comes next is known.
  [[nodiscard]] bool known() const noexcept { return active_ && following_; }
  /// The chunks of the next `count` acquisitions of this step, in order and perhaps more than once;
  /// fewer at its end, none if unknown.
  [[nodiscard]] std::vector<int> chunks_ahead(std::int64_t count) const;
  /// Acquisitions until the chunk is used again, across the end of the step into the next one;
  /// a number larger than any other if unknown or never. 1: by the next acquisition.
  [[nodiscard]] std::int64_t next_use(int chunk) const;
  /// Whether one of the next `count` acquisitions uses the chunk.
  [[nodiscard]] bool used_soon(int chunk, std::int64_t count) const;
  /// The one of `chunks` whose next use is farthest (Belady); of equals the last.
  [[nodiscard]] int needed_last(std::span<const int> chunks) const;
  /// Whether the last two steps did the same.
  [[nodiscard]] bool steady() const noexcept { return steady_; }
  /// The whole recorded step.
  [[nodiscard]] std::span<const int> recorded() const noexcept { return recorded_; }

 private:
  [[nodiscard]] std::span<const int> next(std::int64_t count) const;
  /// The first acquisition of `recorded_` from now on that uses the chunk; its length: none.
  [[nodiscard]] std::int64_t next_place(int chunk) const;

  std::vector<std::vector<int>> uses_;
  std::vector<int> recorded_;  ///< the last complete step
  std::vector<std::vector<std::int64_t>>
      places_;                ///< by chunk: acquisitions of it in `recorded_`, ascending
  std::vector<int> current_;  ///< the step under way
  bool active_ = false;
  bool following_ = false;
  bool steady_ = false;
};

}  // namespace colossal::detail
