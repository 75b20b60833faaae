// Under which keys do ranks publish failures and beats?
#include "comm/detail/peers.hpp"

#include "core/error.hpp"
#include "core/log.hpp"

#include <fmt/format.h>

#include <sstream>
#include <thread>

namespace colossal::detail {
namespace {

constexpr const char* kAbortKey = "abort";
constexpr const char* kHeardKey = "heard";

std::string beat_key(int rank) {
  return fmt::format("beat/{}", rank);
}

}  // namespace

std::string to_text(const Failure& failure) {
  return fmt::format("{} {} {}", failure.rank, failure.exit_code, failure.text);
}

Failure parse_failure(std::string_view text) {
  std::istringstream in{std::string(text)};
  Failure failure;
  in >> failure.rank >> failure.exit_code >> std::ws;
  std::getline(in, failure.text, '\0');
  return failure;
}

Failure report_failure(Store& store, const Failure& failure) {
  return parse_failure(store.set_if_absent(kAbortKey, to_text(failure)));
}

std::optional<Failure> reported_failure(Store& store) {
  const auto text = store.get(kAbortKey);
  return text ? std::optional(parse_failure(*text)) : std::nullopt;
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
