// Under which keys do ranks publish failures and beats?
#include "comm/detail/peers.hpp"

#include "core/error.hpp"
#include "core/log.hpp"

#include <fmt/format.h>

#include <exception>
#include <sstream>
#include <thread>

namespace colossal::detail {
namespace {

constexpr const char* kAbortKey = "abort";
constexpr const char* kHeardKey = "heard";
constexpr const char* kLeftKey = "left";
constexpr const char* kClosedKey = "closed";
/// Stands for the key of a failure that names none.
constexpr const char* kNoKey = "-";

/// How long a rank waits for peers that have all passed the last barrier.
constexpr std::chrono::seconds kPartingTimeout{10};

std::string beat_key(int rank) {
  return fmt::format("beat/{}", rank);
}

/// Blocks until all ranks have added themselves to `key`, or clearly never will.
void await_all(Store& store, const char* key, int world_size) {
  const auto deadline = std::chrono::steady_clock::now() + kPartingTimeout;
  while (store.add(key, 0) < world_size && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

std::string to_text(const Failure& failure) {
  return fmt::format("{} {} {} {} {} {}",
                     failure.reporter,
                     failure.rank,
                     failure.exit_code,
                     failure.id,
                     failure.key.empty() ? kNoKey : failure.key,
                     failure.text);
}

Failure parse_failure(std::string_view text) {
  std::istringstream in{std::string(text)};
  Failure failure;
  in >> failure.reporter >> failure.rank >> failure.exit_code >> failure.id >> failure.key >>
      std::ws;
  failure.key = failure.key == kNoKey ? "" : failure.key;
  std::getline(in, failure.text, '\0');
  return failure;
}

std::string sentence(const Failure& failure) {
  const std::string told = log::with_id(failure.text, failure.id);
  // Errors of comm and of the launcher name the culprit themselves.
  const bool names_rank =
      failure.exit_code == static_cast<int>(ErrorKind::comm) || failure.reporter == kLauncherRank;
  return names_rank ? told : fmt::format("rank {} failed: {}", failure.rank, told);
}

std::string store_prefix(int attempt) {
  return fmt::format("colossal/{}", attempt);
}

RunFailure with_phases(const Failure& failure, Store& store, int world_size) {
  RunFailure run{failure.rank, failure.exit_code, failure.id, failure.text, {}, failure.key};
  run.phases.resize(static_cast<std::size_t>(world_size));
  try {
    std::vector<Beat> beats;
    for (int rank = 0; rank < world_size; ++rank) {
      const auto beat = store.get(beat_key(rank));
      beats.push_back(beat ? parse_beat(*beat) : Beat());
    }
    const std::vector<double> silent = silences(beats);
    for (std::size_t rank = 0; rank < beats.size(); ++rank) {
      run.phases[rank] =
          silent[rank] > 0
              ? fmt::format("{} (its last word, {:.0f} s old)", beats[rank].phase, silent[rank])
              : beats[rank].phase;
    }
  } catch (const Error& error) {
    log::debug("the phases of the other ranks are lost: {}", error.what());
  }
  return run;
}

void FailureNotice::tell(const RunFailure& failure) {
  if (!listener_) {
    return;
  }
  std::call_once(once_, [&] {
    try {
      listener_(failure);
    } catch (
        const std::exception& error) {  // leaving must not fail because of what it leaves behind
      log::error("[launch] the failure could not be written down: {}", error.what());
    }
  });
}

Failure report_failure(Store& store, const Failure& failure) {
  return parse_failure(store.set_if_absent(kAbortKey, to_text(failure)));
}

std::optional<Failure> reported_failure(Store& store) {
  const auto text = store.get(kAbortKey);
  return text ? std::optional(parse_failure(*text)) : std::nullopt;
}

void leave_barrier(Store& store, int world_size) {
  store.add(kLeftKey, 1);
  await_all(store, kLeftKey, world_size);
}

void say_closed(Store& store, int world_size) noexcept {
  try {
    store.add(kClosedKey, 1);
    if (store.is_host()) {
      await_all(store, kClosedKey, world_size);
    }
  } catch (const Error& error) {
    log::debug("the store was gone before the last word: {}", error.what());
  }
}

void depart(Store& store, bool hosting, int others, std::chrono::milliseconds patience) noexcept {
  try {
    if (!hosting) {
      store.add(kHeardKey, 1);
      return;
    }
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (store.add(kHeardKey, 0) < others && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  } catch (const Error& error) {
    log::debug("nobody to wait for: {}", error.what());
  }
}

void publish_beat(Store& store, int rank, const Beat& beat) {
  store.set(beat_key(rank), to_text(beat));
}

std::vector<Beat> read_beats(Store& store, const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  keys.reserve(ranks.size());
  for (const int rank : ranks) {
    keys.push_back(beat_key(rank));
  }
  std::vector<Beat> beats;
  for (const std::string& text : store.get_all(keys)) {
    beats.push_back(parse_beat(text));
  }
  return beats;
}

}  // namespace colossal::detail
