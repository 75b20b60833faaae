// Which sequences run alone, which together, and when does one leave?
#include "infer/generator.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace colossal {
namespace {

/// "prompt 3": people count from one.
std::string name_of(std::uint64_t request) {
  return fmt::format("prompt {}", request + 1);
}

void check_ids(std::uint64_t request,
               std::span<const std::int64_t> prompt,
               std::int64_t vocabulary) {
  const auto bad =
      std::ranges::find_if(prompt, [&](std::int64_t id) { return id < 0 || id >= vocabulary; });
  if (bad != prompt.end()) {
    fail(ErrorKind::data,
         "token-range",
         "{} has token id {}, the model's vocabulary has {}: the tokenizer is not the one that it "
         "was trained with",
         name_of(request),
         *bad,
         vocabulary);
  }
}

std::vector<double> to_vector(const at::Tensor& logits) {
  const at::Tensor wide = logits.to(at::kDouble).contiguous();
  const auto* const first = wide.const_data_ptr<double>();
  return {first, first + wide.numel()};
}

}  // namespace

Generator::Generator(Decoder& decoder, const GeneratorOptions& options)
    : decoder_(decoder), options_(options) {
  for (std::int64_t slot = decoder.num_slots(); slot-- > 0;) {
    free_slots_.push_back(slot);
  }
}

bool Generator::has_room() const noexcept {
  return !free_slots_.empty();
}

void Generator::add(std::uint64_t request, std::vector<std::int64_t> prompt) {
  check(has_room(), ErrorKind::internal, "generator-full", "no slot for {}", name_of(request));
  check(!prompt.empty(),
        ErrorKind::data,
        "empty-prompt",
        "{} is empty: give at least one character to go on from",
        name_of(request));
  check(std::ssize(prompt) <= decoder_.capacity(),
        ErrorKind::data,
        "prompt-too-long",
        "{} has {} tokens, the model sees at most {} (model.max_seq_length)\n  fix   give only the "
        "end of it",
        name_of(request),
        prompt.size(),
        decoder_.capacity());
  check_ids(request, prompt, decoder_.vocabulary());
  const std::int64_t num_prompt = std::ssize(prompt);
  std::set<std::int64_t> seen(prompt.begin(), prompt.end());
  sequences_.push_back({.request = request,
                        .slot = free_slots_.back(),
                        .tokens = std::move(prompt),
                        .seen = std::move(seen),
                        .num_prompt = num_prompt,
                        .logits = {}});
  free_slots_.pop_back();
}

std::vector<GeneratedToken> Generator::step() {
  std::vector<Sequence*> together;
  for (Sequence& sequence : sequences_) {
    if (sequence.fresh || decoder_.length(sequence.slot) == decoder_.capacity()) {
      run_alone(sequence);
    } else {
      together.push_back(&sequence);
    }
  }
  run_together(together);
  std::vector<GeneratedToken> tokens;
  for (Sequence& sequence : sequences_) {
    tokens.push_back(choose(sequence));
    if (tokens.back().finish) {
      free_slots_.push_back(sequence.slot);
    }
  }
  std::size_t i = 0;
  std::erase_if(sequences_, [&](const Sequence&) { return tokens[i++].finish.has_value(); });
  return tokens;
}

/// A prompt, or a sequence that outgrew its slot: positions count from the start of what the model
/// sees, so the kept half is computed anew.
void Generator::run_alone(Sequence& sequence) {
  std::span<const std::int64_t> seen = sequence.tokens;
  if (!sequence.fresh) {
    const std::int64_t kept = std::max<std::int64_t>(1, decoder_.capacity() / 2);
    seen = seen.last(static_cast<std::size_t>(kept));
  }
  sequence.logits = to_vector(decoder_.prefill(sequence.slot, seen));
  sequence.fresh = false;
}

void Generator::run_together(std::span<Sequence* const> sequences) {
  if (sequences.empty()) {
    return;
  }
  std::vector<std::int64_t> slots;
  std::vector<std::int64_t> tokens;
  for (const Sequence* const sequence : sequences) {
    slots.push_back(sequence->slot);
    tokens.push_back(sequence->tokens.back());
  }
  const at::Tensor logits = decoder_.step(slots, tokens);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    sequences[i]->logits = to_vector(logits.select(0, static_cast<std::int64_t>(i)));
  }
}

GeneratedToken Generator::choose(Sequence& sequence) {
  const DrawKey key{sequence.request, static_cast<std::uint64_t>(sequence.tokens.size())};
  std::span<const double> logits = sequence.logits;
  if (options_.num_ids && *options_.num_ids < std::ssize(logits)) {
    logits = logits.first(static_cast<std::size_t>(*options_.num_ids));
  }
  GeneratedToken token{
      sequence.request, next_token(logits, sequence.seen, options_.sampling, key), std::nullopt};
  sequence.tokens.push_back(token.id);
  sequence.seen.insert(token.id);
  if (token.id == options_.end_of_document) {
    token.finish = Finish::end;
  } else if (std::ssize(sequence.tokens) - sequence.num_prompt == options_.max_tokens) {
    token.finish = Finish::length;
  }
  return token;
}

}  // namespace colossal
