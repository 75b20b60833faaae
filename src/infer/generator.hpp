// How are several prompts continued at once? A new one starts as soon as another has ended.
#pragma once

#include "infer/decoder.hpp"
#include "infer/sampler.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace colossal {

/// Why a sequence ended: the model closed the document, or it has as many tokens as asked for.
enum class Finish : std::uint8_t { end, length };

/// One token of one sequence.
struct GeneratedToken {
  std::uint64_t request = 0;
  std::int64_t id = 0;
  std::optional<Finish> finish;  ///< set on the last one; after `end`, id is the end of document
};

/// What generation is told.
struct GeneratorOptions {
  SamplingOptions sampling;
  std::int64_t max_tokens = 1;                                 ///< new tokens of each sequence
  std::optional<std::int64_t> end_of_document = std::nullopt;  ///< id at which a sequence stops
  std::optional<std::int64_t> num_ids = std::nullopt;  ///< only ids below are chosen; unset: all
};

/// Continues sequences, each as if it were alone. A sequence may grow beyond what the model can
/// see: when its slot is full, the model goes on from the newer half of it.
class Generator {
 public:
  /// `decoder` must outlive the generator.
  Generator(Decoder& decoder, const GeneratorOptions& options);

  /// Is there a slot for another sequence?
  [[nodiscard]] bool has_room() const noexcept;
  [[nodiscard]] bool is_busy() const noexcept { return !sequences_.empty(); }
  /// Takes a sequence in. `request`: its number, part of its random key. Errors: data
  /// "empty-prompt", "prompt-too-long" for more tokens than the model can see, "token-range" for an
  /// id outside its vocabulary; internal "generator-full" without a slot.
  void add(std::uint64_t request, std::vector<std::int64_t> prompt);
  /// One more token of every sequence, in the order in which they were added. Errors: numerics
  /// "nonfinite-logits".
  [[nodiscard]] std::vector<GeneratedToken> step();

 private:
  struct Sequence {
    std::uint64_t request;
    std::int64_t slot;
    std::vector<std::int64_t> tokens;  // prompt, then what was generated
    std::set<std::int64_t> seen;       // the distinct ones of them
    std::int64_t num_prompt;
    bool fresh = true;  // nothing of it is in its slot
    std::vector<double> logits;
  };

  void run_alone(Sequence& sequence);
  void run_together(std::span<Sequence* const> sequences);
  [[nodiscard]] GeneratedToken choose(Sequence& sequence);

  Decoder& decoder_;
  GeneratorOptions options_;
  std::vector<Sequence> sequences_;
  std::vector<std::int64_t> free_slots_;
};

}  // namespace colossal
