// Are documents packed whole, once, and as first-fit decreasing says?
#include "data/packing.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

namespace colossal {
namespace {

/// A stream without tokens: only the places of documents matter here.
class Lengths : public TokenStream {
 public:
  explicit Lengths(const std::vector<std::int64_t>& lengths) {
    for (const std::int64_t length : lengths) {
      begins_.push_back(begins_.back() + length);
    }
  }
  [[nodiscard]] std::int64_t num_tokens() const override { return begins_.back(); }
  void copy(std::int64_t /*begin*/, std::span<std::int64_t> out) const override {
    std::ranges::fill(out, 0);
  }
  [[nodiscard]] std::int64_t num_documents() const override { return std::ssize(begins_) - 1; }
  [[nodiscard]] std::int64_t document_begin(std::int64_t document) const override {
    return begins_[static_cast<std::size_t>(document)];
  }
  [[nodiscard]] std::string identity() const override { return "lengths"; }

 private:
  std::vector<std::int64_t> begins_ = {0};
};

using Rows = std::vector<std::vector<std::int64_t>>;

/// Lengths of the pieces of all rows.
Rows rows_of(const RowPlan& plan) {
  Rows rows;
  for (std::int64_t i = 0; i < plan.num_rows(); ++i) {
    auto& row = rows.emplace_back();
    for (const Piece& piece : plan.row(i)) {
      row.push_back(piece.length);
    }
  }
  return rows;
}

std::vector<std::int64_t> many_lengths(std::int64_t count, std::int64_t largest) {
  std::vector<std::int64_t> lengths;
  std::uint64_t state = 99;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    lengths.push_back(
        static_cast<std::int64_t>((state >> 33U) % static_cast<std::uint64_t>(largest)));
  }
  return lengths;
}

/// First-fit decreasing as a text book has it, in quadratic time.
Rows first_fit_decreasing(std::vector<std::int64_t> lengths, std::int64_t sequence) {
  std::erase_if(lengths, [](std::int64_t length) { return length < 2; });
  std::ranges::stable_sort(lengths, std::greater());
  Rows rows;
  for (const std::int64_t length : lengths) {
    const auto fits = std::ranges::find_if(rows, [&](const auto& row) {
      return std::accumulate(row.begin(), row.end(), length) <= sequence;
    });
    (fits == rows.end() ? rows.emplace_back() : *fits).push_back(length);
  }
  return rows;
}

TEST_CASE("greedy packs by first-fit decreasing", "[data]") {
  CHECK(rows_of(RowPlan(Lengths({3, 7, 2, 5, 4, 2}), Packing::greedy, 8)) ==
        Rows{{7}, {5, 3}, {4, 2, 2}});
  for (const std::int64_t sequence : {2, 7, 16, 100}) {
    for (const std::int64_t count : {1, 2, 63, 64, 65, 500}) {
      const auto lengths = many_lengths(count, sequence + 1);
      CHECK(rows_of(RowPlan(Lengths(lengths), Packing::greedy, sequence)) ==
            first_fit_decreasing(lengths, sequence));
    }
  }
}

TEST_CASE("pad gives each document a row, in the order of the files", "[data]") {
  const RowPlan plan(Lengths({3, 7, 2}), Packing::pad, 8);
  CHECK(rows_of(plan) == Rows{{3}, {7}, {2}});
  CHECK(plan.row(2)[0].begin == 10);
  CHECK(plan.row(2)[0].ends);
  CHECK(plan.num_tokens() == 12);
}

TEST_CASE("a document longer than a row is cut; what predicts nothing is left out", "[data]") {
  const RowPlan plan(Lengths({0, 1, 9, 8, 12}), Packing::pad, 4);
  CHECK(rows_of(plan) == Rows{{4}, {4}, {4}, {4}, {4}, {4}, {4}});  // the ninth token stands alone
  std::vector<std::int64_t> begins;
  std::vector<bool> ends;
  for (std::int64_t i = 0; i < plan.num_rows(); ++i) {
    begins.push_back(plan.row(i)[0].begin);
    ends.push_back(plan.row(i)[0].ends);
  }
  CHECK(begins == std::vector<std::int64_t>{1, 5, 10, 14, 18, 22, 26});
  CHECK(ends == std::vector<bool>{false, false, false, true, false, false, true});
  CHECK(RowPlan(Lengths({1, 0, 1}), Packing::greedy, 4).num_rows() == 0);
  CHECK(RowPlan(Lengths({}), Packing::pad, 4).num_rows() == 0);
}

TEST_CASE("every token that predicts another is in exactly one row", "[data]") {
  const std::vector<std::int64_t> lengths = many_lengths(2000, 300);
  const Lengths stream(lengths);
  for (const Packing packing : {Packing::greedy, Packing::pad}) {
    const RowPlan plan(stream, packing, 128);
    std::vector<int> seen(static_cast<std::size_t>(stream.num_tokens()), 0);
    std::int64_t used = 0;
    for (std::int64_t i = 0; i < plan.num_rows(); ++i) {
      std::int64_t length = 0;
      for (const Piece& piece : plan.row(i)) {
        length += piece.length;
        for (std::int64_t at = piece.begin; at < piece.begin + piece.length; ++at) {
          ++seen[static_cast<std::size_t>(at)];
        }
      }
      REQUIRE(length <= 128);
      used += length;
    }
    CHECK(used == plan.num_tokens());
    for (std::int64_t document = 0; document < stream.num_documents(); ++document) {
      const std::int64_t end = stream.document_begin(document + 1);
      for (std::int64_t at = stream.document_begin(document); at < end - 1; ++at) {
        REQUIRE(seen[static_cast<std::size_t>(at)] == 1);
      }
    }
  }
}

TEST_CASE("greedy wastes little", "[data]") {
  const RowPlan plan(Lengths(many_lengths(20000, 500)), Packing::greedy, 1024);
  CHECK(static_cast<double>(plan.num_tokens()) >
        0.99 * static_cast<double>(plan.num_rows()) * 1024);
}

}  // namespace
}  // namespace colossal
