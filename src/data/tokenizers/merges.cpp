// How are merges found fast? A flat table, a heap over a linked list, and a cache of whole words.
#include "data/tokenizers/merges.hpp"

#include "core/hash.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace colossal::detail {
namespace {

constexpr std::uint64_t kFree = ~0ULL;
constexpr std::size_t kCacheSlots = 1U << 16U;
constexpr std::size_t kCacheWords = kCacheSlots / 2;
constexpr std::size_t kLongestCached = 64;

std::uint64_t pair_of(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) |
         static_cast<std::uint32_t>(right);
}

using Candidate = MergeBuffers::Candidate;

/// Puts the lowest order on top of the heap.
bool later(const Candidate& a, const Candidate& b) {
  return a.order > b.order;
}

/// The candidate of the symbol at `at` and the one after it, if they merge.
void propose(const MergeTable& table, MergeBuffers& buffers, std::int32_t at) {
  const MergeBuffers::Symbol& left = buffers.symbols[static_cast<std::size_t>(at)];
  if (left.next < 0) {
    return;
  }
  const TokenId right = buffers.symbols[static_cast<std::size_t>(left.next)].id;
  if (const Merge* merge = table.find(left.id, right)) {
    buffers.heap.push_back(
        {(static_cast<std::uint64_t>(merge->rank) << 32U) | static_cast<std::uint32_t>(at),
         merge->id});
  }
}

void propose_sorted(const MergeTable& table, MergeBuffers& buffers, std::int32_t at) {
  const std::size_t before = buffers.heap.size();
  propose(table, buffers, at);
  if (buffers.heap.size() > before) {
    std::ranges::push_heap(buffers.heap, later);
  }
}

/// Carries out a candidate unless one of its symbols has changed since it was proposed.
void apply(const MergeTable& table, MergeBuffers& buffers, const Candidate& candidate) {
  auto& symbols = buffers.symbols;
  const auto at = static_cast<std::int32_t>(candidate.order & 0xFFFFFFFFU);
  MergeBuffers::Symbol& left = symbols[static_cast<std::size_t>(at)];
  if (left.id < 0 || left.next < 0) {
    return;
  }
  MergeBuffers::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
  const Merge* merge = table.find(left.id, right.id);
  if (merge == nullptr || merge->id != candidate.id) {
    return;
  }
  left.id = merge->id;
  left.next = right.next;
  right.id = -1;
  if (left.next >= 0) {
    symbols[static_cast<std::size_t>(left.next)].previous = at;
    propose_sorted(table, buffers, at);
  }
  if (left.previous >= 0) {
    propose_sorted(table, buffers, left.previous);
  }
}

}  // namespace

MergeTable::MergeTable(std::size_t num_merges)
    : slots_(std::bit_ceil(2 * num_merges + 2), Slot{kFree, {}}) {}

std::size_t MergeTable::place(std::uint64_t pair) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = splitmix64(pair) & mask;
  while (slots_[at].pair != pair && slots_[at].pair != kFree) {
    at = (at + 1) & mask;
  }
  return at;
}

void MergeTable::add(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t pair = pair_of(left, right);
  slots_[place(pair)] = {pair, merge};
}

const Merge* MergeTable::find(TokenId left, TokenId right) const noexcept {
  const Slot& slot = slots_[place(pair_of(left, right))];
  return slot.pair == kFree ? nullptr : &slot.merge;
}

void merge_symbols(const MergeTable& table, std::vector<TokenId>& ids, MergeBuffers& buffers) {
  buffers.symbols.clear();
  buffers.heap.clear();
  const auto count = static_cast<std::int32_t>(ids.size());
  for (std::int32_t i = 0; i < count; ++i) {
    buffers.symbols.push_back(
        {ids[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i + 1 < count; ++i) {
    propose(table, buffers, i);
  }
  std::ranges::make_heap(buffers.heap, later);
  while (!buffers.heap.empty()) {
    std::ranges::pop_heap(buffers.heap, later);
    const Candidate candidate = buffers.heap.back();
    buffers.heap.pop_back();
    apply(table, buffers, candidate);
  }
  ids.clear();
  for (const MergeBuffers::Symbol& symbol : buffers.symbols) {
    if (symbol.id >= 0) {
      ids.push_back(symbol.id);
    }
  }
}

WordCache::WordCache() : slots_(kCacheSlots) {}

std::size_t WordCache::place(std::string_view word, std::uint64_t hash) const {
  std::size_t at = hash & (kCacheSlots - 1);
  while (slots_[at].text_bytes != 0) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && slot.text_bytes == word.size() &&
        std::memcmp(text_.data() + slot.text_begin, word.data(), word.size()) == 0) {
      break;
    }
    at = (at + 1) & (kCacheSlots - 1);
  }
  return at;
}

bool WordCache::append(std::string_view word, std::vector<TokenId>& ids) const {
  if (word.size() > kLongestCached) {
    return false;
  }
  const Slot& slot = slots_[place(word, fnv1a64(word))];
  if (slot.text_bytes == 0) {
    return false;
  }
  const auto begin = ids_.begin() + slot.ids_begin;
  ids.insert(ids.end(), begin, begin + slot.num_ids);
  return true;
}

void WordCache::store(std::string_view word, const TokenId* ids, std::size_t num_ids) {
  if (word.empty() || word.size() > kLongestCached) {
    return;
  }
  if (num_words_ == kCacheWords) {
    std::ranges::fill(slots_, Slot{});
    text_.clear();
    ids_.clear();
    num_words_ = 0;
  }
  const std::uint64_t hash = fnv1a64(word);
  slots_[place(word, hash)] = {hash,
                               static_cast<std::uint32_t>(text_.size()),
                               static_cast<std::uint32_t>(word.size()),
                               static_cast<std::uint32_t>(ids_.size()),
                               static_cast<std::uint32_t>(num_ids)};
  text_.insert(text_.end(), word.begin(), word.end());
  ids_.insert(ids_.end(), ids, ids + num_ids);
  ++num_words_;
}

}  // namespace colossal::detail
