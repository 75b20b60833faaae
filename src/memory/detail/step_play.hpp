// What does a step hold at its fullest moment? It is played through with the rules of the store.
#pragma once

#include "memory/accounting.hpp"
#include "memory/detail/trace.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

namespace colossal::detail {

/// BlockPool without memory: what it holds, in use and free.
class PoolBytes {
 public:
  explicit PoolBytes(bool keeps) : keeps_(keeps) {}
  void get(std::int64_t bytes);
  void put(std::int64_t bytes);
  [[nodiscard]] std::int64_t held() const noexcept { return held_; }

 private:
  bool keeps_;
  std::multiset<std::int64_t> free_;
  std::int64_t held_ = 0;
};

/// A step of a ChunkStore without memory, micro-batch by micro-batch.
class StepPlay {
 public:
  /// `budgets`: MeasuredDecision::budgets; empty: none. `input` and `mesh` must outlive it.
  StepPlay(const AccountingInput& input, const Mesh& mesh, std::vector<std::int64_t> budgets = {});

  /// Plays a step of this many micro-batches three times: in the first nothing is known and nothing
  /// is left from before.
  void run(std::int64_t micro_batches);
  /// Evaluation after it: nothing is known ahead, and blocks keep nothing.
  void evaluate();

  /// At the fullest moment of the later steps and of evaluation.
  [[nodiscard]] std::int64_t borrowed() const noexcept { return borrowed_; }
  [[nodiscard]] std::int64_t activations() const noexcept { return activations_; }
  /// Lent gradients at that moment.
  [[nodiscard]] std::int64_t lent() const noexcept { return lent_; }
  /// This rank's parts gathered until the end of each micro-batch of a later step.
  [[nodiscard]] const std::vector<std::int64_t>& gathered() const noexcept { return gathered_; }
  /// By acquisition of the first step: most bytes beside gathered weights, and the weights that the
  /// block needs.
  [[nodiscard]] const std::vector<std::int64_t>& non_model() const noexcept { return non_model_; }
  [[nodiscard]] const std::vector<std::int64_t>& needs() const noexcept { return needs_; }

 private:
  [[nodiscard]] const ChunkSpec& spec(int chunk) const;
  [[nodiscard]] std::int64_t weight_bytes(int chunk) const;
  [[nodiscard]] std::int64_t staging_bytes(int chunk) const;
  [[nodiscard]] bool sums_in_place(int chunk) const;
  [[nodiscard]] BlockActivations activations_of(int block) const;
  [[nodiscard]] const std::vector<int>& chunks_of(int block) const;
  [[nodiscard]] std::int64_t missing_bytes(const std::vector<int>& chunks) const;
  [[nodiscard]] std::optional<std::int64_t> cache_budget() const;

  void play(bool last);
  void measure(std::int64_t activations);
  void gather(int chunk);
  void drop(int chunk);
  void make_room(const std::vector<int>& needed);
  void gather_ahead();
  void acquire(int block);
  void release(int block);
  void backward(int block, bool last);
  void open_gradients(const std::vector<int>& chunks);
  void count_reports();
  void lend_gradients(const std::vector<int>& chunks);
  void update();
  void report(const std::vector<int>& chunks, std::int64_t activations);
  void finish_reduce(int chunk);

  const AccountingInput& input_;
  const Mesh& mesh_;
  std::vector<std::int64_t> budgets_;
  StepTrace trace_;
  PoolBytes pool_;
  std::set<int> here_;        ///< gathered chunks
  std::int64_t cached_ = 0;   ///< their bytes
  std::vector<int> users_;    ///< acquisitions without release
  std::set<int> open_;        ///< chunks that take gradients
  std::set<int> borrowing_;   ///< of these: those with memory of their own for it
  std::deque<int> reducing_;  ///< in the order of their start
  std::int64_t staging_ = 0;  ///< of these, in the dtype of the reduction
  std::vector<int> blocks_left_;
  int next_ = 0;
  bool first_ = true;        ///< the first step is played
  bool first_batch_ = true;  ///< and of a step the first micro-batch
  std::int64_t borrowed_ = 0;
  std::int64_t activations_ = 0;
  std::int64_t lent_ = 0;
  std::set<int> lending_;      ///< chunks whose lent gradients have memory in this step
  std::int64_t lent_now_ = 0;  ///< theirs
  std::int64_t updating_ = 0;  ///< what the update takes
  std::int64_t gathered_now_ = 0;
  std::vector<std::int64_t> gathered_;
  std::vector<std::int64_t> non_model_;
  std::vector<std::int64_t> needs_;
};

}  // namespace colossal::detail
