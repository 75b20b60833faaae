// How do documents flow from files to ids? Read in batches, encoded on all cores, written in order.
#include "data/prepare.hpp"

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/pace.hpp"
#include "core/text.hpp"
#include "data/detail/document_reader.hpp"
#include "data/detail/sources.hpp"
#include "data/megatron_writer.hpp"
#include "data/tokenizers/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace colossal {
namespace {

/// The output, whose folder exists from now on; what is wrong with it is told when it is opened.
const std::string& in_folder(const std::string& output) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(output).parent_path(), ignored);
  return output;
}

constexpr std::size_t kBatchBytesPerCore = 2U << 20U;
constexpr std::size_t kBatchPieces = 1U << 16U;
constexpr double kSecondsBetweenLines = 2;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::size_t num_cores() {
  return std::max(1U, std::thread::hardware_concurrency());
}

class Preparation {
 public:
  explicit Preparation(const PrepareOptions& options)
      : options_(options),
        tokenizer_(open_tokenizer(options.tokenizer)),
        reader_(options.inputs, options.split, *tokenizer_),
        writer_(in_folder(options.output), tokenizer_->size()) {
    if (options.end_documents) {
      eod_ = require_eod(*tokenizer_);
    }
  }

  PrepareReport run() {
    while (read_batch()) {
      encode_batch();
      say_progress();
    }
    check(report_.statistics.num_tokens > 0,
          ErrorKind::data,
          "data-empty",
          "{} holds no token ({} documents, all empty)\n  fix   name files that hold text",
          options_.inputs.front(),
          report_.statistics.num_empty);
    writer_.finish();
    report_.bin = writer_.bin().string();
    report_.type = detail::name_of(writer_.type());
    report_.seconds = seconds_since(start_);
    return report_;
  }

 private:
  bool read_batch() {
    pieces_.clear();
    for (std::size_t bytes = 0;
         bytes < num_cores() * kBatchBytesPerCore && pieces_.size() < kBatchPieces;) {
      std::optional<detail::DocumentPiece> piece = reader_.next();
      if (!piece) {
        break;
      }
      bytes += piece->text.size();
      pieces_.push_back(std::move(*piece));
    }
    return !pieces_.empty();
  }

  void encode_batch() {
    std::vector<std::string_view> texts;
    texts.reserve(pieces_.size());
    for (const detail::DocumentPiece& piece : pieces_) {
      texts.push_back(piece.text);
      report_.num_bytes += std::ssize(piece.text);
    }
    const auto ids = encode_all(*tokenizer_, texts, num_cores());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      add(pieces_[i], ids[i]);
    }
  }

  void add(const detail::DocumentPiece& piece, const std::vector<TokenId>& ids) {
    const bool separator = options_.tokenizer.type == TokenizerType::byte &&
                           std::ranges::find(ids, TokenId{0}) != ids.end();
    check(!separator,
          ErrorKind::data,
          "separator-in-text",
          "'{}' holds the byte 0, which ends documents; text files must not contain it (is this a "
          "binary file?)\n  fix   take the byte out, for example with tr -d '\\000', or name files "
          "of "
          "text",
          options_.inputs[piece.input]);
    writer_.add(ids);
    count(ids);
    document_tokens_ += std::ssize(ids);
    if (piece.ends_document) {
      end_document();
    }
  }

  void count(std::span<const TokenId> ids) {
    TokenStatistics& all = report_.statistics;
    for (const TokenId id : ids) {
      all.smallest = all.num_tokens == 0 ? id : std::min<std::int64_t>(all.smallest, id);
      all.largest = std::max<std::int64_t>(all.largest, id);
      ++all.num_tokens;
    }
  }

  void end_document() {
    TokenStatistics& all = report_.statistics;
    if (document_tokens_ == 0) {
      ++all.num_empty;
      return;
    }
    ++all.num_documents;
    all.num_short += document_tokens_ < kShortDocument ? 1 : 0;
    if (eod_) {
      writer_.add({&*eod_, 1});
      count({&*eod_, 1});
    }
    writer_.end_document();
    document_tokens_ = 0;
  }

  void say_progress() {
    if (!pace_.due(seconds_since(start_))) {
      return;
    }
    log::info("encoded {} MB, {} tokens, {:.1f} MB/s",
              thousands(report_.num_bytes / 1'000'000),
              thousands(report_.statistics.num_tokens),
              static_cast<double>(report_.num_bytes) / 1e6 / seconds_since(start_));
  }

  const PrepareOptions& options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  detail::DocumentReader reader_;
  MegatronWriter writer_;
  std::optional<TokenId> eod_;
  std::vector<detail::DocumentPiece> pieces_;
  std::int64_t document_tokens_ = 0;
  PrepareReport report_;
  Clock::time_point start_ = Clock::now();
  Pace pace_{kSecondsBetweenLines, kSecondsBetweenLines};
};

double rate(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

}  // namespace

PrepareReport prepare_dataset(const PrepareOptions& options) {
  return Preparation(options).run();
}

std::string to_text(const PrepareReport& report) {
  const TokenStatistics& all = report.statistics;
  return fmt::format(
      "{}: {}, {} ({})\n"
      "documents  {} empty (left out), {} of fewer than {} tokens\n"
      "ids        {} to {}\n"
      "speed      {:.1f} MB of text in {:.2f} s, {} tokens/s\n",
      report.bin,
      counted(all.num_documents, "document"),
      counted(all.num_tokens, "token"),
      report.type,
      thousands(all.num_empty),
      thousands(all.num_short),
      kShortDocument,
      all.smallest,
      all.largest,
      static_cast<double>(report.num_bytes) / 1e6,
      report.seconds,
      thousands(
          static_cast<std::int64_t>(rate(static_cast<double>(all.num_tokens), report.seconds))));
}

std::string to_json(const PrepareReport& report) {
  const TokenStatistics& all = report.statistics;
  const nlohmann::ordered_json json = {
      {"bin", report.bin},
      {"type", report.type},
      {"documents", all.num_documents},
      {"tokens", all.num_tokens},
      {"empty_documents", all.num_empty},
      {"short_documents", all.num_short},
      {"smallest_id", all.smallest},
      {"largest_id", all.largest},
      {"text_bytes", report.num_bytes},
      {"seconds", report.seconds},
      {"tokens_per_s", rate(static_cast<double>(all.num_tokens), report.seconds)}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

TokenizerConfig parse_tokenizer(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string type = text.substr(0, colon);
  const std::string path = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (type == "byte" && colon == std::string::npos) {
    return {.type = TokenizerType::byte, .path = {}};
  }
  if (type == "bpe" && !path.empty()) {
    return {.type = TokenizerType::bpe, .path = path};
  }
  if (type == "wordpiece" && !path.empty()) {
    return {.type = TokenizerType::wordpiece, .path = path};
  }
  fail(ErrorKind::usage,
       "bad-tokenizer",
       "--tokenizer '{}': give byte, bpe:PATH or wordpiece:PATH",
       text);
}

}  // namespace colossal
