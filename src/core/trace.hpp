// Where does the time of a step go? Spans of time, recorded only while somebody asks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::trace {

/// What a span of time was spent on.
enum class Phase : std::uint8_t {
  step,
  data,
  forward,
  backward,
  recompute,  ///< a block's forward once more, in its backward
  reduce,     ///< waiting for other ranks
  optimizer,
  eval,
  checkpoint,
  hooks,
  communication,  ///< a collective under way, beside everything else
  operation       ///< one operation of LibTorch
};

/// The word of a phase: "forward".
[[nodiscard]] std::string_view name(Phase phase) noexcept;

/// A recorded span. Times are nanoseconds of now().
struct Span {
  Phase phase = Phase::step;
  int block = -1;        ///< -1: none
  int micro_batch = -1;  ///< -1: none
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint32_t thread = 0;  ///< thread_number() of the thread it ran on
  std::string text = {};     ///< of communication and operation: which one
  std::int64_t bytes = -1;   ///< moved by communication; -1: none
};

/// Resident memory at one moment.
struct MemorySample {
  std::int64_t time = 0;
  std::int64_t bytes = 0;
};

/// Everything between start() and stop().
struct Recording {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint32_t thread = 0;  ///< which called start()
  std::vector<Span> spans;   ///< in order of their ends
  std::vector<MemorySample> memory;
};

/// Nanoseconds of a clock that never jumps and that all processes of a host share.
[[nodiscard]] inline std::int64_t now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// A small number of the calling thread, the same for its whole life.
[[nodiscard]] std::uint32_t thread_number() noexcept;

class Scope;

/// What a thread is doing: an open Scope.
struct Place {
  Phase phase = Phase::step;
  int block = -1;        ///< -1: none
  int micro_batch = -1;  ///< -1: none
};

namespace detail {
/// Constant-initialised, so that reading it is one load without a guard.
inline std::atomic<bool>& flag() noexcept {
  static constinit std::atomic<bool> on{false};
  return on;
}

/// The open Scope of the calling thread that was opened last.
inline const Scope*& innermost() noexcept {
  static constinit thread_local const Scope* scope = nullptr;
  return scope;
}
}  // namespace detail

/// Whether spans are kept now; one relaxed load.
[[nodiscard]] inline bool recording() noexcept {
  return detail::flag().load(std::memory_order_relaxed);
}

/// Begins a recording and drops an unfinished one. `memory`: also sample resident memory at both
/// ends of every Scope.
void start(bool memory);
/// Ends it. Scopes and collectives that are still open are not in it.
[[nodiscard]] Recording stop();
/// Adds a finished span; does nothing while nobody records. Thread-safe.
void add(Span span);

/// Records the time of its own life, and is the place of its thread meanwhile. Costs a few
/// nanoseconds while nobody records.
class Scope {
 public:
  explicit Scope(Phase phase, int block = -1, int micro_batch = -1)
      : place_{phase, block, micro_batch}, outer_(detail::innermost()) {
    detail::innermost() = this;
    if (recording()) {
      begin_ = now();
      open();
    }
  }
  ~Scope() {
    detail::innermost() = outer_;
    if (begin_ != 0) {
      close();
    }
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// What it was opened for.
  [[nodiscard]] const Place& place() const noexcept { return place_; }

 private:
  void open() const;
  void close() const;

  Place place_;
  const Scope* outer_;
  std::int64_t begin_ = 0;  // 0: nobody recorded
};

/// Where the calling thread is: its innermost open Scope; empty outside of all.
[[nodiscard]] inline std::optional<Place> here() noexcept {
  const Scope* scope = detail::innermost();
  return scope == nullptr ? std::nullopt : std::optional(scope->place());
}

}  // namespace colossal::trace
