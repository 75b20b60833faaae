// How is COLOSSAL_FAULT read and carried out? Only with COLOSSAL_FAULTS=ON.
#include "core/fault.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

namespace colossal::fault {

#if COLOSSAL_FAULTS

namespace {

struct Fault {
  std::int64_t rank = 0;
  std::int64_t step = 0;
  /// Of the launcher: only when it has restarted so often.
  std::optional<std::int64_t> attempt;
  std::string_view kind;
  /// What follows the kind: seconds, exit code or bytes.
  std::int64_t amount = 0;
};

[[noreturn]] void refuse(std::string_view text) {
  fail(ErrorKind::usage,
       "fault-spec",
       "COLOSSAL_FAULT='{}' is not rank=R,step=S,kind=K (and attempt=N) with K one of throw, "
       "sleep:SECONDS, nan, "
       "exit:CODE, kill, "
       "write-error:BYTES, write-sleep:SECONDS, nvme-error:BYTES",
       text);
}

std::int64_t parse_number(std::string_view digits, std::string_view text) {
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, value);
  if (failure != std::errc() || stop != end) {
    refuse(text);
  }
  return value;
}

void parse_kind(Fault& fault, std::string_view value, std::string_view text) {
  const auto colon = value.find(':');
  fault.kind = value.substr(0, colon);
  const bool has_amount = colon != std::string_view::npos;
  const bool needs_amount =
      fault.kind.ends_with("sleep") || fault.kind == "exit" || fault.kind.ends_with("-error");
  const bool writes =
      fault.kind == "write-error" || fault.kind == "write-sleep" || fault.kind == "nvme-error";
  const bool known = writes || fault.kind == "sleep" || fault.kind == "exit" ||
                     fault.kind == "throw" || fault.kind == "nan" || fault.kind == "inf" ||
                     fault.kind == "kill";
  if (!known || has_amount != needs_amount) {
    refuse(text);
  }
  if (has_amount) {
    fault.amount = parse_number(value.substr(colon + 1), text);
  }
}

std::optional<Fault> requested() {
  const char* variable = std::getenv("COLOSSAL_FAULT");
  if (variable == nullptr) {
    return std::nullopt;
  }
  const std::string_view text = variable;
  Fault fault;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (part.starts_with("rank=")) {
      fault.rank = parse_number(part.substr(5), text);
    } else if (part.starts_with("step=")) {
      fault.step = parse_number(part.substr(5), text);
    } else if (part.starts_with("attempt=")) {
      fault.attempt = parse_number(part.substr(8), text);
    } else if (part.starts_with("kind=")) {
      parse_kind(fault, part.substr(5), text);
    } else {
      refuse(text);
    }
  }
  if (fault.kind.empty()) {
    refuse(text);
  }
  const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (fault.attempt && *fault.attempt != std::atoll(restarts == nullptr ? "0" : restarts)) {
    return std::nullopt;
  }
  return fault;
}

/// Of a kind that acts whatever the step.
std::int64_t amount_of(std::string_view kind, int rank, std::int64_t otherwise) {
  const auto fault = requested();
  return fault && fault->rank == rank && fault->kind == kind ? fault->amount : otherwise;
}

}  // namespace

Poison at_step(int rank, std::int64_t step) {
  const auto fault = requested();
  if (!fault || fault->rank != rank || fault->step != step) {
    return Poison::none;
  }
  check(fault->kind != "throw",
        ErrorKind::internal,
        "fault-thrown",
        "fault asked for at step {}",
        step);
  if (fault->kind == "sleep") {
    std::this_thread::sleep_for(std::chrono::seconds(fault->amount));
  } else if (fault->kind == "exit") {
    std::_Exit(static_cast<int>(fault->amount));
  } else if (fault->kind == "kill") {
    std::raise(SIGKILL);
  }
  if (fault->kind == "nan") {
    return Poison::loss;
  }
  return fault->kind == "inf" ? Poison::gradient : Poison::none;
}

std::int64_t write_limit(int rank) {
  return amount_of("write-error", rank, kNoLimit);
}

void pause_write(int rank) {
  std::this_thread::sleep_for(std::chrono::seconds(amount_of("write-sleep", rank, 0)));
}

std::int64_t nvme_limit(int rank) {
  return amount_of("nvme-error", rank, kNoLimit);
}

#else

Poison at_step(int /*rank*/, std::int64_t /*step*/) {
  return Poison::none;
}
std::int64_t write_limit(int /*rank*/) {
  return kNoLimit;
}
void pause_write(int /*rank*/) {}
std::int64_t nvme_limit(int /*rank*/) {
  return kNoLimit;
}

#endif

}  // namespace colossal::fault
