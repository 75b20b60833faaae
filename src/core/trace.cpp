// How are spans kept? One locked list per process, like the log's sink.
#include "core/trace.hpp"

#include <array>
#include <cstdio>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>
#include <utility>

namespace colossal::trace {
namespace {

struct Recorder {
  std::mutex mutex;
  bool memory = false;
  Recording recording;
};

/// State of the process, as the log's sink: a recorder that had to be passed to every function that
/// takes time would not be used.
Recorder& recorder() {
  static Recorder instance;
  return instance;
}

/// Second number of /proc/self/statm, in bytes; 0 if the system does not tell.
std::int64_t resident_bytes() {
  std::array<char, 128> text{};
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const ssize_t length = file < 0 ? -1 : ::read(file, text.data(), text.size() - 1);
  if (file >= 0) {
    ::close(file);
  }
  long total = 0;
  long resident = 0;
  if (length <= 0 || std::sscanf(text.data(), "%ld %ld", &total, &resident) != 2) {
    return 0;
  }
  return std::int64_t{resident} * ::sysconf(_SC_PAGESIZE);
}

/// Adds a sample if asked for; the caller does not hold the lock while the system is asked.
void sample_memory(std::int64_t time) {
  Recorder& r = recorder();
  {
    const std::lock_guard lock(r.mutex);
    if (!r.memory) {
      return;
    }
  }
  const MemorySample sample{time, resident_bytes()};
  const std::lock_guard lock(r.mutex);
  r.recording.memory.push_back(sample);
}

}  // namespace

std::string_view name(Phase phase) noexcept {
  switch (phase) {
    case Phase::step:
      return "step";
    case Phase::data:
      return "data";
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::reduce:
      return "reduce";
    case Phase::optimizer:
      return "optimizer";
    case Phase::recompute:
      return "recompute";
    case Phase::eval:
      return "eval";
    case Phase::checkpoint:
      return "checkpoint";
    case Phase::hooks:
      return "hooks";
    case Phase::communication:
      return "communication";
    case Phase::operation:
      return "operation";
  }
  return "unknown";
}

std::uint32_t thread_number() noexcept {
  static constinit std::atomic<std::uint32_t> threads{0};
  thread_local const std::uint32_t number = ++threads;
  return number;
}

void start(bool memory) {
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  r.memory = memory;
  r.recording = {};
  r.recording.thread = thread_number();
  r.recording.begin = now();
  detail::flag().store(true);
}

Recording stop() {
  detail::flag().store(false);
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  r.recording.end = now();
  return std::exchange(r.recording, {});
}

void add(Span span) {
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  // A span that began before the recording, or ends after it, would stick out of its picture.
  if (recording() && span.begin >= r.recording.begin) {
    r.recording.spans.push_back(std::move(span));
  }
}

void Scope::open() const {
  sample_memory(begin_);
}

void Scope::close() const {
  const std::int64_t end = now();
  sample_memory(end);
  add({.phase = place_.phase,
       .block = place_.block,
       .micro_batch = place_.micro_batch,
       .begin = begin_,
       .end = end,
       .thread = thread_number()});
}

}  // namespace colossal::trace
