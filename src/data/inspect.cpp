// How is a token file counted? In blocks, once, whatever its size.
#include "data/inspect.hpp"

#include "core/hash.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "data/detail/sources.hpp"
#include "data/token_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

namespace colossal {
namespace {

constexpr std::int64_t kBlockTokens = 1 << 16;
constexpr std::int64_t kSampleTokens = 48;
/// Without a tokenizer every id is taken that a model could have a row for.
constexpr std::int64_t kAnyId = std::numeric_limits<std::int32_t>::max();

void count_tokens(const TokenFile& file, TokenStatistics& all) {
  std::vector<std::int64_t> block;
  all.num_tokens = file.num_tokens();
  all.smallest = all.num_tokens == 0 ? 0 : kAnyId;
  for (std::int64_t at = 0; at < all.num_tokens; at += kBlockTokens) {
    block.resize(static_cast<std::size_t>(std::min(kBlockTokens, all.num_tokens - at)));
    file.copy(at, block);
    const auto [low, high] = std::ranges::minmax(block);
    all.smallest = std::min(all.smallest, low);
    all.largest = std::max(all.largest, high);
  }
}

/// `eod`: the id that may end a document; it is not part of its length.
void count_documents(const TokenFile& file, std::optional<TokenId> eod, TokenStatistics& all) {
  all.num_documents = file.num_documents();
  for (std::int64_t i = 0; i < all.num_documents; ++i) {
    const std::int64_t end = file.document_begin(i + 1);
    std::int64_t length = end - file.document_begin(i);
    if (length > 0 && eod) {
      std::int64_t last = 0;
      file.copy(end - 1, {&last, 1});
      length -= last == *eod ? 1 : 0;
    }
    all.num_empty += length == 0 ? 1 : 0;
    all.num_short += length > 0 && length < kShortDocument ? 1 : 0;
  }
}

std::string sample_of(const TokenFile& file, const Tokenizer* tokenizer) {
  std::vector<std::int64_t> ids(
      static_cast<std::size_t>(std::min(kSampleTokens, file.num_tokens())));
  file.copy(0, ids);
  if (tokenizer == nullptr) {
    return fmt::format("{}", fmt::join(ids, " "));
  }
  return tokenizer->decode(std::vector<TokenId>(ids.begin(), ids.end()));
}

DatasetReport inspect_one(const std::string& path, const Tokenizer* tokenizer) {
  const std::unique_ptr<TokenFile> file =
      open_token_file(path,
                      {.vocab_size = tokenizer == nullptr ? kAnyId : tokenizer->size(),
                       .validate = DataValidation::full});
  DatasetReport report;
  report.path = file->path().string();
  report.kind = file->kind();
  count_tokens(*file, report.statistics);
  count_documents(*file, tokenizer == nullptr ? std::nullopt : tokenizer->eod(), report.statistics);
  report.checksum = sha256(file->identity());
  report.sample = sample_of(*file, tokenizer);
  return report;
}

/// A line of text as it can be printed: line ends and other controls as escapes.
std::string printable(const std::string& text) {
  std::string shown =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return shown;
}

}  // namespace

std::vector<DatasetReport> inspect_datasets(const InspectDatasetOptions& options) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (options.tokenizer) {
    tokenizer = open_tokenizer(*options.tokenizer);
  }
  std::vector<DatasetReport> reports;
  for (const std::string& path : options.files) {
    reports.push_back(inspect_one(path, tokenizer.get()));
  }
  return reports;
}

std::string to_text(const DatasetReport& report) {
  const TokenStatistics& all = report.statistics;
  const std::string documents = all.num_documents == 0
                                    ? "not marked in this format"
                                    : fmt::format("{}, {} empty, {} of fewer than {} tokens",
                                                  thousands(all.num_documents),
                                                  thousands(all.num_empty),
                                                  thousands(all.num_short),
                                                  kShortDocument);
  return fmt::format(
      "{}: {} ({})\n"
      "documents  {}\n"
      "ids        {} to {}\n"
      "checksum   {}\n"
      "sample     {}\n",
      report.path,
      counted(all.num_tokens, "token"),
      report.kind,
      documents,
      all.smallest,
      all.largest,
      report.checksum,
      printable(report.sample));
}

std::string to_json(const DatasetReport& report) {
  const TokenStatistics& all = report.statistics;
  const nlohmann::ordered_json json = {{"path", report.path},
                                       {"kind", report.kind},
                                       {"documents", all.num_documents},
                                       {"tokens", all.num_tokens},
                                       {"empty_documents", all.num_empty},
                                       {"short_documents", all.num_short},
                                       {"smallest_id", all.smallest},
                                       {"largest_id", all.largest},
                                       {"checksum", report.checksum},
                                       {"sample", report.sample}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace colossal
