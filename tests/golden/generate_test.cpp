// Are generated tokens those of an independent implementation that computes everything anew?
#include "golden/gpt_config.hpp"
#include "infer/generator.hpp"
#include "support/catch.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace colossal::test {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int64_t>;

Json fixture() {
  std::ifstream in(COLOSSAL_TEST_DATA "/fixtures/generate.json");
  REQUIRE(in.good());
  return Json::parse(in);
}

/// Continuations of all prompts of a case, at once.
std::vector<Ids> continuations(const Golden& weights, const Json& golden, const Json& test) {
  const auto variant = test["variant"].get<std::string>();
  Decoder decoder(golden_config(weights, variant), std::ssize(golden["prompts"]));
  for (const Parameter* const parameter : decoder.parameters()) {
    if (parameter->spec().tied_to.empty()) {
      load_golden_weight(weights, variant, *parameter, parameter->tensor());
    }
  }
  Generator generator(decoder,
                      {.sampling = {.temperature = test["temperature"],
                                    .top_k = test["top_k"],
                                    .top_p = test["top_p"],
                                    .repetition_penalty = test["repetition_penalty"],
                                    .seed = test["seed"]},
                       .max_tokens = golden["max_tokens"]});
  std::vector<Ids> ids(golden["prompts"].size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    generator.add(i, golden["prompts"][i].get<Ids>());
  }
  while (generator.is_busy()) {
    for (const GeneratedToken& token : generator.step()) {
      ids[token.request].push_back(token.id);
    }
  }
  return ids;
}

}  // namespace

TEST_CASE("generated tokens equal those of an implementation without a cache", "[golden]") {
  const Golden weights(COLOSSAL_TEST_DATA "/fixtures/gpt.h5");
  const Json golden = fixture();
  REQUIRE(golden["cases"].size() >= 7);
  for (const Json& test : golden["cases"]) {
    INFO(test["variant"] << ", temperature " << test["temperature"] << ", seed " << test["seed"]);
    REQUIRE(continuations(weights, golden, test) == test["ids"].get<std::vector<Ids>>());
  }
}

TEST_CASE("random numbers of generation equal those of an independent Philox", "[golden]") {
  const Json golden = fixture();
  CHECK(uniform(5, {0, 0}) == golden["uniform"][0].get<double>());
  CHECK(uniform(5, {(1ULL << 33U) + 1, (1ULL << 32U) + 7}) == golden["uniform"][1].get<double>());
}

}  // namespace colossal::test
