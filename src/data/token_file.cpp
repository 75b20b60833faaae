// How are ids of any type read from a mapped file, and never one outside the vocabulary?
#include "data/token_file.hpp"

#include "core/error.hpp"
#include "core/hash.hpp"
#include "data/detail/mapped_file.hpp"
#include "data/detail/token_hdf5.hpp"
#include "data/detail/token_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace colossal {
namespace {

using detail::TokenType;

/// out[i] = the i-th T of `bytes`; whether all are in [0, vocabulary).
template <class T>
bool widen(const std::uint8_t* bytes, std::uint64_t vocabulary, std::span<std::int64_t> out) {
  bool inside = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    T id;
    std::memcpy(&id, bytes + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int64_t>(id);
    inside &= static_cast<std::uint64_t>(out[i]) < vocabulary;  // negative ids become huge
  }
  return inside;
}

using Widen = bool (*)(const std::uint8_t*, std::uint64_t, std::span<std::int64_t>);

Widen widen_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
      return widen<std::uint8_t>;
    case TokenType::i8:
      return widen<std::int8_t>;
    case TokenType::i16:
      return widen<std::int16_t>;
    case TokenType::i32:
      return widen<std::int32_t>;
    case TokenType::i64:
      return widen<std::int64_t>;
    case TokenType::u32:
      return widen<std::uint32_t>;
    case TokenType::u16:
      break;
  }
  return widen<std::uint16_t>;
}

/// The ids of one file: their type and places.
struct IdArray {
  TokenType type = TokenType::u16;
  std::int64_t count = 0;
  std::int64_t run = 0;                    ///< ids that lie together; the last run may be shorter
  std::vector<std::int64_t> offsets = {};  ///< bytes before each run
};

/// What all formats share: an array of ids in a mapped file.
class MappedTokens : public TokenFile {
 public:
  MappedTokens(std::filesystem::path path, detail::MappedFile file, std::int64_t vocabulary)
      : path_(std::move(path)), file_(std::move(file)), vocabulary_(vocabulary) {}

  [[nodiscard]] const std::filesystem::path& path() const override { return path_; }
  [[nodiscard]] std::int64_t num_tokens() const override { return ids_.count; }

  void copy(std::int64_t begin, std::span<std::int64_t> out) const override {
    file_.require_whole();
    while (!out.empty()) {
      const std::int64_t inside = begin % ids_.run;
      const std::int64_t count = std::min(std::ssize(out), ids_.run - inside);
      copy_run(ids_.offsets[static_cast<std::size_t>(begin / ids_.run)] + inside * bytes_per_id_,
               out.first(static_cast<std::size_t>(count)));
      begin += count;
      out = out.subspan(static_cast<std::size_t>(count));
    }
  }

  void scan() const override {
    constexpr std::int64_t kChunk = 8192;
    std::array<std::int64_t, kChunk> ids = {};
    for (std::int64_t begin = 0; begin < ids_.count; begin += kChunk) {
      const std::int64_t count = std::min(kChunk, ids_.count - begin);
      copy(begin, std::span(ids).first(static_cast<std::size_t>(count)));
    }
  }

  [[nodiscard]] std::string identity() const override { return detail::identity_of(file_.bytes()); }

 protected:
  void set_ids(IdArray ids) {
    ids_ = std::move(ids);
    widen_ = widen_of(ids_.type);
    bytes_per_id_ = detail::bytes_of(ids_.type);
  }
  /// Ids that all lie together.
  void set_ids(TokenType type, std::int64_t offset, std::int64_t count) {
    set_ids({.type = type,
             .count = count,
             .run = std::max<std::int64_t>(count, 1),
             .offsets = {offset}});
  }
  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return file_.bytes(); }
  [[nodiscard]] TokenType type() const { return ids_.type; }

 private:
  /// Ids that lie together from this byte on.
  void copy_run(std::int64_t offset, std::span<std::int64_t> out) const {
    const std::uint8_t* const bytes = file_.bytes().data() + offset;
    if (!widen_(bytes, static_cast<std::uint64_t>(vocabulary_), out)) {
      report_outside(offset, out);
    }
  }

  [[noreturn]] void report_outside(std::int64_t offset, std::span<const std::int64_t> ids) const {
    const auto outside =
        std::ranges::find_if(ids, [&](std::int64_t id) { return id < 0 || id >= vocabulary_; });
    fail(ErrorKind::data,
         "token-range",
         "'{}', byte {}: token id {} is outside the vocabulary of {} ids; check model.vocab_size "
         "and data.tokenizer against the tokenizer that made the file",
         path_.string(),
         offset + (outside - ids.begin()) * bytes_per_id_,
         *outside,
         vocabulary_);
  }

  std::filesystem::path path_;
  detail::MappedFile file_;
  std::int64_t vocabulary_;
  IdArray ids_;
  std::int64_t bytes_per_id_ = 0;
  Widen widen_ = widen<std::uint16_t>;
};

class MegatronFile : public MappedTokens {
 public:
  MegatronFile(const std::filesystem::path& bin,
               const std::filesystem::path& index,
               const TokenFileOptions& options)
      : MappedTokens(bin, detail::MappedFile(bin), options.vocab_size), index_(index) {
    const auto size = std::ssize(bytes());
    if (options.validate != DataValidation::none) {
      index_.check_entries(size);
    }
    check(index_.data_bytes() == size,
          ErrorKind::data,
          "token-file",
          "'{}' has {} bytes, but its index '{}' ends at byte {}; the pair is damaged or does not "
          "belong together, write it anew",
          bin.string(),
          size,
          index.string(),
          index_.data_bytes());
    set_ids(index_.type(), 0, size / detail::bytes_of(index_.type()));
  }

  [[nodiscard]] std::string kind() const override {
    return fmt::format("Megatron, {}", detail::name_of(type()));
  }
  [[nodiscard]] std::int64_t num_documents() const override { return index_.num_documents(); }
  [[nodiscard]] std::int64_t document_begin(std::int64_t document) const override {
    return index_.document_begin(document);
  }
  [[nodiscard]] std::string identity() const override {
    return MappedTokens::identity() + "+" + detail::identity_of(index_.bytes());
  }

 private:
  detail::MegatronIndex index_;
};

class LlmcFile : public MappedTokens {
 public:
  LlmcFile(const std::filesystem::path& path, detail::MappedFile file, std::int64_t vocabulary)
      : MappedTokens(path, std::move(file), vocabulary) {
    set_ids(TokenType::u16, detail::kLlmcHeaderBytes, detail::check_llmc(path, bytes()));
  }

  [[nodiscard]] std::string kind() const override { return "llm.c, uint16"; }
  [[nodiscard]] std::int64_t num_documents() const override { return 0; }
  [[nodiscard]] std::int64_t document_begin(std::int64_t /*document*/) const override {
    return num_tokens();
  }
};

class Hdf5File : public MappedTokens {
 public:
  Hdf5File(const std::filesystem::path& path, detail::MappedFile file, std::int64_t vocabulary)
      : MappedTokens(path, std::move(file), vocabulary) {
    detail::Hdf5Tokens tokens = detail::read_hdf5_tokens(path, std::ssize(bytes()));
    begins_ = std::move(tokens.begins);
    set_ids({tokens.type, tokens.count, tokens.run, std::move(tokens.offsets)});
  }

  [[nodiscard]] std::string kind() const override {
    return fmt::format("HDF5, {}", detail::name_of(type()));
  }
  [[nodiscard]] std::int64_t num_documents() const override {
    return begins_.empty() ? 0 : std::ssize(begins_) - 1;
  }
  [[nodiscard]] std::int64_t document_begin(std::int64_t document) const override {
    return begins_.empty() ? num_tokens() : begins_[static_cast<std::size_t>(document)];
  }

 private:
  std::vector<std::int64_t> begins_;
};

std::unique_ptr<TokenFile> open_any(const std::filesystem::path& path,
                                    const TokenFileOptions& options) {
  std::error_code ignored;
  const bool named = path.extension() == ".bin" || path.extension() == ".idx";
  // A folder may have the name of a prefix, and "books-v1.5" has no extension to be replaced.
  const bool prefix = !named && !std::filesystem::is_regular_file(path, ignored);
  const std::filesystem::path stem = named ? std::filesystem::path(path).replace_extension() : path;
  const std::filesystem::path bin = stem.string() + ".bin";
  const std::filesystem::path index = stem.string() + ".idx";
  const bool pair = path == index || prefix || std::filesystem::exists(index, ignored);
  if (options.format == TokenFormat::megatron ||
      (options.format == TokenFormat::automatic && pair)) {
    return std::make_unique<MegatronFile>(bin, index, options);
  }
  detail::MappedFile file(path);
  const bool hdf5 = detail::is_hdf5(file.bytes());
  check(hdf5 || options.format != TokenFormat::hdf5,
        ErrorKind::data,
        "token-format",
        "'{}' does not begin as an HDF5 file; remove data.format, or name the right file",
        path.string());
  if (hdf5 && options.format != TokenFormat::llmc) {
    return std::make_unique<Hdf5File>(path, std::move(file), options.vocab_size);
  }
  check(options.format == TokenFormat::llmc || detail::is_llmc(file.bytes()),
        ErrorKind::data,
        "token-format",
        "'{}' is no token file: '{}' of a Megatron pair is not there, and the file does not begin "
        "as one of llm.c or HDF5; `colossal-train dataset prepare` makes token files of text",
        path.string(),
        index.string());
  return std::make_unique<LlmcFile>(path, std::move(file), options.vocab_size);
}

}  // namespace

std::unique_ptr<TokenFile> open_token_file(const std::filesystem::path& path,
                                           const TokenFileOptions& options) {
  std::unique_ptr<TokenFile> file = open_any(path, options);
  if (options.validate == DataValidation::full) {
    file->scan();
  }
  return file;
}

}  // namespace colossal
