// Does every sequence go on as if it were alone, and as the whole model would have it?
#include "infer/generator.hpp"

#include "unit/infer/infer_helpers.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace colossal::test {
namespace {

using Ids = std::vector<std::int64_t>;

GeneratorOptions greedy(std::int64_t max_tokens) {
  return {.sampling = {.temperature = 0}, .max_tokens = max_tokens};
}

/// Runs until nothing is left; adds waiting prompts as slots get free.
std::map<std::uint64_t, Ids> run_all(Generator& generator,
                                     const std::map<std::uint64_t, Ids>& prompts) {
  std::map<std::uint64_t, Ids> results;
  auto waiting = prompts.begin();
  do {
    for (; waiting != prompts.end() && generator.has_room(); ++waiting) {
      generator.add(waiting->first, waiting->second);
    }
    for (const GeneratedToken& token : generator.step()) {
      results[token.request].push_back(token.id);
    }
  } while (generator.is_busy() || waiting != prompts.end());
  return results;
}

Ids run_one(const Config& config,
            const GeneratorOptions& options,
            const Ids& prompt,
            std::uint64_t request = 0) {
  Decoder decoder(config, 1);
  Generator generator(decoder, options);
  return run_all(generator, {{request, prompt}})[request];
}

/// The most likely continuation, each token from the whole model on what it may see.
Ids argmax_from_scratch(const LocalModel& model, Ids tokens, std::int64_t count, std::size_t sees) {
  std::size_t begin = 0;
  const std::size_t prompt = tokens.size();
  for (std::int64_t i = 0; i < count; ++i) {
    if (tokens.size() - begin > sees) {
      begin = tokens.size() - sees / 2;
    }
    const at::Tensor logits = full_logits(model, std::span(tokens).subspan(begin)).select(0, -1);
    tokens.push_back(logits.argmax().item<std::int64_t>());
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
}

const std::map<std::uint64_t, Ids> kPrompts = {{0, tokens_like(3, 61, 1)},
                                               {1, tokens_like(12, 61, 2)},
                                               {2, tokens_like(1, 61, 3)},
                                               {3, tokens_like(7, 61, 4)},
                                               {4, tokens_like(3, 61, 1)},
                                               {7, tokens_like(5, 61, 6)}};

}  // namespace

TEST_CASE("greedy equals the argmax of the whole model from scratch", "[generator]") {
  const Config config = opinionated_gpt();
  const LocalModel model(config);
  for (const auto& [request, prompt] : kPrompts) {
    INFO("prompt " << request);
    // 40 tokens: the window of 12 slides several times
    REQUIRE(run_one(config, greedy(40), prompt) == argmax_from_scratch(model, prompt, 40, 12));
  }
}

TEST_CASE("a window of one and of an odd number of tokens slides too", "[generator]") {
  for (const std::int64_t positions : {1, 3}) {
    Config config = opinionated_gpt();
    config.model.max_seq_length = positions;
    const LocalModel model(config);
    const Ids prompt = {5};
    if (positions == 1) {
      REQUIRE(run_one(config, greedy(6), prompt).size() == 6);
      continue;
    }
    REQUIRE(run_one(config, greedy(10), prompt) == argmax_from_scratch(model, prompt, 10, 3));
  }
}

TEST_CASE("results do not depend on what runs beside, on slots or on order", "[generator]") {
  Config config = opinionated_gpt();
  config.train.precision = Precision::fp32;
  for (const double temperature : {0., 1., 1.5}) {
    GeneratorOptions options{.sampling = {.temperature = temperature,
                                          .top_p = 0.95,
                                          .repetition_penalty = 1.1,
                                          .seed = 9},
                             .max_tokens = 30,
                             .end_of_document = 17};
    std::map<std::uint64_t, Ids> alone;
    for (const auto& [request, prompt] : kPrompts) {
      alone[request] = run_one(config, options, prompt, request);
    }
    for (const std::int64_t slots : {1, 2, 3, 6}) {
      INFO(slots << " slots at temperature " << temperature);
      Decoder decoder(config, slots);
      Generator generator(decoder, options);
      REQUIRE(run_all(generator, kPrompts) == alone);
    }
    if (temperature > 0) {
      CHECK(alone[0] != alone[4]);  // the same prompt as another request draws other numbers
    }
  }
}

TEST_CASE("the seed decides", "[generator]") {
  const Config config = opinionated_gpt();
  const Ids prompt = tokens_like(4, 61);
  const auto with_seed = [&](std::int64_t seed) {
    return run_one(
        config, {.sampling = {.temperature = 2, .seed = seed}, .max_tokens = 20}, prompt);
  };
  CHECK(with_seed(1) == with_seed(1));
  CHECK(with_seed(1) != with_seed(2));
}

TEST_CASE("a sequence stops at the end of its document or at its length", "[generator]") {
  const Config config = opinionated_gpt();
  const Ids prompt = tokens_like(4, 61);
  const Ids free = run_one(config, greedy(20), prompt);
  REQUIRE(free.size() == 20);
  GeneratorOptions options = greedy(20);
  options.end_of_document = free[5];
  const auto first = std::ranges::find(free, free[5]);
  Decoder decoder(config, 1);
  Generator generator(decoder, options);
  generator.add(3, prompt);
  CHECK_FALSE(generator.has_room());
  std::vector<GeneratedToken> tokens;
  while (generator.is_busy()) {
    const std::vector<GeneratedToken> some = generator.step();
    REQUIRE(some.size() == 1);
    tokens.push_back(some.front());
  }
  CHECK(generator.has_room());
  REQUIRE(std::ssize(tokens) == first - free.begin() + 1);
  CHECK(tokens.back().finish == Finish::end);
  CHECK(tokens.back().id == free[5]);
  CHECK(tokens.back().request == 3);
  CHECK_FALSE(tokens.front().finish.has_value());
}

TEST_CASE("ids without text are never chosen", "[generator]") {
  const Config config = opinionated_gpt();
  GeneratorOptions options{.sampling = {.temperature = 5}, .max_tokens = 200, .num_ids = 10};
  const Ids ids = run_one(config, options, tokens_like(4, 61));
  CHECK(*std::ranges::max_element(ids) == 9);
  options.num_ids = 1000;  // a tokenizer may know more ids than the model
  const Ids all = run_one(config, options, tokens_like(4, 61));
  CHECK(*std::ranges::max_element(all) > 50);
}

TEST_CASE("the generator refuses prompts that the model cannot see", "[generator]") {
  Decoder decoder(opinionated_gpt(), 1);
  Generator generator(decoder, greedy(1));
  require_error(ErrorKind::data, "empty-prompt", [&] { generator.add(0, {}); });
  require_error(ErrorKind::data, "prompt-too-long", [&] { generator.add(0, tokens_like(13, 61)); });
  require_error(ErrorKind::data, "token-range", [&] { generator.add(0, {3, 61}); });
  require_error(ErrorKind::data, "token-range", [&] { generator.add(0, {-1}); });
  generator.add(0, tokens_like(12, 61));
  require_error(ErrorKind::internal, "generator-full", [&] { generator.add(1, {3}); });
}

}  // namespace colossal::test
