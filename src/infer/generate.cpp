// From the command line to the last printed character.
#include "infer/generate.hpp"

#include "checkpoint/stored_config.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/dataset.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "infer/decoder.hpp"
#include "infer/generator.hpp"
#include "infer/machine.hpp"
#include "infer/printer.hpp"
#include "infer/prompts.hpp"
#include "nn/kernels/few_rows.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The stored configuration with the user's overrides; empty if they are wrong, which is printed.
std::optional<Config> read_config(const RunState& state, const std::vector<std::string>& sets) {
  Config stored = stored_config(state);
  if (sets.empty()) {
    return stored;
  }
  LoadOptions options;
  for (const std::string& text : sets) {
    options.overrides.push_back(Override{text});
  }
  Loaded loaded = load_stored(state, options);
  if (loaded.has_errors()) {
    const std::string text = render(loaded.diagnostics);
    std::fwrite(text.data(), 1, text.size(), stderr);
    return std::nullopt;
  }
  return std::move(loaded.config);
}

/// What would give the ids of a model a text.
const char* way_to_text(DataType type) {
  return type == DataType::tokens
             ? "name the one that made the token files: --set 'data.tokenizer={type: bpe, path: "
               "FILE}'"
             : "generate with a model that was trained on data.type text, or on tokens";
}

std::unique_ptr<Tokenizer> open_tokenizer_of(const Config& config, const RunState& state) {
  check(config.data.tokenizer.has_value(),
        ErrorKind::config,
        "no-tokenizer",
        "the checkpoint was trained on data.type {} without a tokenizer: its token ids stand for "
        "no text\n  fix   {}",
        yaml_word(config.data.type),
        way_to_text(config.data.type));
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(*config.data.tokenizer);
  check_tokenizer(tokenizer_part(state.data_fingerprint),
                  stored_fingerprint(*config.data.tokenizer, *tokenizer));
  check(config.model.vocab_size >= tokenizer->size(),
        ErrorKind::data,
        "vocab-too-small",
        "the tokenizer has {} ids and the model {}: another one has made what it was trained on\n"
        "  fix   name that one with --set data.tokenizer=...",
        tokenizer->size(),
        config.model.vocab_size);
  return tokenizer;
}

/// One run of the command: what it reads, continues and counts.
class Session {
 public:
  Session(const GenerateOptions& options,
          const Config& config,
          const RunState& state,
          Decoder& decoder)
      : options_(options),
        tokenizer_(open_tokenizer_of(config, state)),
        from_stdin_(options.prompt == "-"),
        prompts_(from_stdin_ ? Prompts(STDIN_FILENO) : Prompts(options.prompt)),
        capacity_(decoder.capacity()),
        generator_(decoder,
                   {.sampling = options.sampling,
                    .max_tokens = options.max_tokens,
                    .end_of_document = tokenizer_->eod(),
                    .num_ids = tokenizer_->size()}),
        printer_(
            stdout,
            [this](std::span<const std::int64_t> ids) {
              return tokenizer_->decode(std::vector<TokenId>(ids.begin(), ids.end()));
            },
            options.json) {}

  void run() {
    for (take_prompts(); generator_.is_busy() && !printer_.reader_gone(); take_prompts()) {
      const Clock::time_point start = Clock::now();
      const std::vector<GeneratedToken> tokens = generator_.step();
      seconds_ += seconds_since(start);
      for (const GeneratedToken& token : tokens) {
        printer_.take(token);
      }
      num_tokens_ += std::ssize(tokens);
    }
    if (printer_.reader_gone()) {
      return;  // he has enough: no failure, and no summary of a half
    }
    check(num_prompts_ > 0, ErrorKind::data, "empty-prompt", "stdin holds no prompt");
    log::info("[generate] {} for {} in {:.3f} s: {:.0f} tokens/s",
              counted(num_tokens_, "token"),
              counted(static_cast<std::int64_t>(num_prompts_), "prompt"),
              seconds_,
              static_cast<double>(num_tokens_) / seconds_);
  }

 private:
  /// Fills free slots; waits for a prompt only if there is nothing else to do.
  void take_prompts() {
    while (generator_.has_room()) {
      std::optional<std::string> prompt = prompts_.next(!generator_.is_busy());
      if (!prompt) {
        return;
      }
      std::vector<TokenId> encoded;
      tokenizer_->encode(*prompt, encoded);
      const std::vector<std::int64_t> ids(encoded.begin(), encoded.end());
      generator_.add(num_prompts_, ids);
      note_window(std::ssize(ids));
      printer_.open(num_prompts_, std::move(*prompt), ids);
      ++num_prompts_;
    }
  }

  /// Says once that the model will not see all of a sequence.
  void note_window(std::int64_t num_prompt) {
    if (!noted_ && options_.max_tokens > capacity_ - num_prompt) {
      noted_ = true;
      log::info(
          "[generate] the model sees at most {} tokens (model.max_seq_length): longer texts go "
          "on from their last {}",
          capacity_,
          std::max<std::int64_t>(1, capacity_ / 2));
    }
  }

  const GenerateOptions& options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  bool from_stdin_;
  Prompts prompts_;
  std::int64_t capacity_;
  Generator generator_;
  Printer printer_;
  std::uint64_t num_prompts_ = 0;
  std::int64_t num_tokens_ = 0;
  double seconds_ = 0;
  bool noted_ = false;
};

}  // namespace

int run_generate(const GenerateOptions& options) {
  const Clock::time_point start = Clock::now();
  check_options(options.sampling);
  check(options.max_tokens >= 1,
        ErrorKind::usage,
        "out-of-range",
        "--max-tokens {} is out of range: give a whole number from 1",
        options.max_tokens);
  const std::filesystem::path checkpoint = find_checkpoint(options.checkpoint);
  const RunState state = read_state(checkpoint);
  const std::optional<Config> config = read_config(state, options.sets);
  if (!config) {
    return static_cast<int>(ErrorKind::config);
  }
  use_machine(config->run);
  Decoder decoder(*config, options.prompt == "-" ? kernels::kFewRows : 1);
  Session session(options, *config, state, decoder);
  decoder.load(checkpoint);
  log::info("[generate] step {} of {}, loaded in {:.3f} s",
            state.step,
            checkpoint.string(),
            seconds_since(start));
  session.run();
  return 0;
}

}  // namespace colossal
