// How do all ranks fail together? Each step of a save or load ends in one exchange of outcomes.
#include "checkpoint/detail/agree.hpp"

#include "core/error.hpp"

#include <exception>
#include <nlohmann/json.hpp>
#include <optional>

namespace colossal::detail {
namespace {

using Json = nlohmann::ordered_json;

struct Outcome {
  std::string text;            ///< what peers are told
  std::optional<Error> error;  ///< what this rank throws
};

/// First byte: '+' result follows, '-' JSON of an error follows.
Outcome run(std::string_view id, const std::function<std::string()>& body) {
  Outcome outcome;
  try {
    outcome.text = "+" + body();
    return outcome;
  } catch (const Error& error) {
    outcome.error = error;
  } catch (const std::exception& error) {
    outcome.error = Error(ErrorKind::checkpoint, id, error.what(), std::source_location::current());
  }
  const Json json = {{"kind", outcome.error->kind()},
                     {"id", outcome.error->id()},
                     {"message", outcome.error->what()}};
  outcome.text = "-" + json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return outcome;
}

}  // namespace

std::vector<std::string> agree(const Comm& world,
                               std::string_view id,
                               const std::function<std::string()>& body) {
  const Outcome mine = run(id, body);
  std::vector<std::string> all = world.gather_text(mine.text);
  if (mine.error) {
    throw Error(*mine.error);
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].front() == '-') {
      const Json json = Json::parse(all[rank].substr(1));
      fail(json.at("kind").get<ErrorKind>(),
           json.at("id").get<std::string>(),
           "rank {}: {}",
           rank,
           json.at("message").get<std::string>());
    }
    all[rank].erase(0, 1);
  }
  return all;
}

}  // namespace colossal::detail
