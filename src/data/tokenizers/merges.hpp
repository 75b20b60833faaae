// How do symbols become tokens by byte-pair merging?
#pragma once

#include "data/tokenizers/tokenizer.hpp"

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// What becomes of two neighbours: the token of both; pairs of low rank merge first.
struct Merge {
  std::uint32_t rank = 0;
  TokenId id = 0;
};

/// Merges by pair of ids: open addressing, since this lookup is most of the work on new words.
class MergeTable {
 public:
  explicit MergeTable(std::size_t num_merges);
  /// A pair given twice keeps its last merge.
  void add(TokenId left, TokenId right, Merge merge);
  /// The merge of a pair; nullptr if it has none.
  [[nodiscard]] const Merge* find(TokenId left, TokenId right) const noexcept;

 private:
  struct Slot {
    std::uint64_t pair;
    Merge merge;
  };
  [[nodiscard]] std::size_t place(std::uint64_t pair) const noexcept;

  std::vector<Slot> slots_;
};

/// Buffers of merge_symbols(), kept from word to word.
struct MergeBuffers {
  /// A symbol of the word in a doubly linked list; `id` -1: merged into the one before it.
  struct Symbol {
    TokenId id;
    std::int32_t previous;
    std::int32_t next;
  };
  /// A pair that may be merged: rank in the high half, place of the left symbol in the low one.
  struct Candidate {
    std::uint64_t order;
    TokenId id;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

/// Symbols that a word may have: places in it are 32 bits wide, which keeps MergeBuffers small.
inline constexpr std::size_t kMostSymbols = std::numeric_limits<std::int32_t>::max();

/// Merges the pair of lowest rank, leftmost first, until none is left: O(n log n) for n symbols.
/// Replaces `ids` by the result. Precondition: at most kMostSymbols ids.
void merge_symbols(const MergeTable& table, std::vector<TokenId>& ids, MergeBuffers& buffers);

/// Remembers the ids of words. Forgets everything when full, so its memory is bounded (about 4 MB).
class WordCache {
 public:
  WordCache();
  /// Appends the ids of `word` and returns true, if it is known.
  bool append(std::string_view word, std::vector<TokenId>& ids) const;
  /// Stores a word; long ones are not worth their memory and are left out.
  void store(std::string_view word, const TokenId* ids, std::size_t num_ids);

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t text_begin = 0;
    std::uint32_t text_bytes = 0;  ///< 0: free
    std::uint32_t ids_begin = 0;
    std::uint32_t num_ids = 0;
  };
  [[nodiscard]] std::size_t place(std::string_view word, std::uint64_t hash) const;

  std::vector<Slot> slots_;
  std::vector<char> text_;
  std::vector<TokenId> ids_;
  std::size_t num_words_ = 0;
};

}  // namespace colossal::detail
