// How is a dataset of HDF5 found in the bytes of its file? By the addresses of its chunks, which
// the library tells when no filter changes them.
#include "data/detail/token_hdf5.hpp"

#include "core/detail/hdf5.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace colossal::detail {
namespace {

using H5Id = Handle<&H5Fclose>;
using H5Attribute = Handle<&H5Aclose>;

constexpr std::array<std::uint8_t, 8> kSignature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
constexpr std::string_view kFormat = "colossal-tokens";
constexpr std::int64_t kHdf5Version = 1;
/// The library looks for the address of a chunk from the first one on.
constexpr std::int64_t kMostChunks = 10'000;

/// One file while it is read.
struct Reader {
  const std::filesystem::path& path;
  std::int64_t file_bytes;
  H5Id file;

  template <class... Args>
  void check_format(bool ok, fmt::format_string<Args...> what, Args&&... args) const {
    if (!ok) {
      fail(ErrorKind::data,
           "token-format",
           "'{}': {}",
           path.string(),
           fmt::format(what, std::forward<Args>(args)...));
    }
  }
  template <class... Args>
  void check_file(bool ok, fmt::format_string<Args...> what, Args&&... args) const {
    if (!ok) {
      fail(ErrorKind::data,
           "token-file",
           "'{}': {}; the file is damaged or incomplete, write it anew",
           path.string(),
           fmt::format(what, std::forward<Args>(args)...));
    }
  }
};

/// Name of a type for messages.
std::string_view class_name(H5T_class_t kind) {
  switch (kind) {
    case H5T_INTEGER:
      return "whole numbers";
    case H5T_FLOAT:
      return "floating point";
    case H5T_STRING:
      return "text";
    default:
      return "another type";
  }
}

std::optional<TokenType> token_type(std::size_t bytes, bool is_signed) {
  switch (bytes) {
    case 1:
      return is_signed ? TokenType::i8 : TokenType::u8;
    case 2:
      return is_signed ? TokenType::i16 : TokenType::u16;
    case 4:
      return is_signed ? TokenType::i32 : TokenType::u32;
    case 8:
      return is_signed ? std::optional(TokenType::i64) : std::nullopt;
    default:
      return std::nullopt;
  }
}

TokenType type_of(const Reader& in, const H5Dataset& dataset) {
  const H5Type type(H5Dget_type(dataset.id()));
  const H5T_class_t kind = H5Tget_class(type.id());
  in.check_format(
      kind == H5T_INTEGER, "'tokens' holds {}; ids are whole numbers", class_name(kind));
  const std::size_t bytes = H5Tget_size(type.id());
  const bool is_signed = H5Tget_sign(type.id()) == H5T_SGN_2;
  const std::optional<TokenType> known = token_type(bytes, is_signed);
  in.check_format(known.has_value(),
                  "'tokens' holds {} integers of {} bits; use uint16, or int32 for large "
                  "vocabularies",
                  is_signed ? "signed" : "unsigned",
                  8 * bytes);
  in.check_format(bytes == 1 || H5Tget_order(type.id()) == H5T_ORDER_LE,
                  "'tokens' is big-endian; write it little-endian");
  return *known;
}

/// Length of a dataset of one dimension.
std::int64_t length_of(const Reader& in, const H5Dataset& dataset, std::string_view name) {
  const H5Space space(H5Dget_space(dataset.id()));
  const int dims = H5Sget_simple_extent_ndims(space.id());
  in.check_format(dims == 1, "'{}' has {} dimensions; it must have one", name, dims);
  hsize_t length = 0;
  H5Sget_simple_extent_dims(space.id(), &length, nullptr);
  return static_cast<std::int64_t>(length);
}

/// Where the run of ids that begins at `first` is stored.
std::int64_t offset_of(const Reader& in,
                       const H5Dataset& dataset,
                       const Hdf5Tokens& tokens,
                       std::int64_t first) {
  const auto at = static_cast<hsize_t>(first);
  unsigned filters = 0;
  haddr_t address = HADDR_UNDEF;
  hsize_t size = 0;
  const bool found =
      H5Dget_chunk_info_by_coord(dataset.id(), &at, &filters, &address, &size) >= 0 &&
      address != HADDR_UNDEF;
  in.check_file(found, "ids {} and on of 'tokens' were never written", first);
  const std::int64_t ids = std::min(tokens.run, tokens.count - first);
  const std::int64_t end = static_cast<std::int64_t>(address) + ids * bytes_of(tokens.type);
  in.check_file(end <= in.file_bytes,
                "ids {} and on of 'tokens' end at byte {}, but the file has {}",
                first,
                end,
                in.file_bytes);
  return static_cast<std::int64_t>(address);
}

void find_chunks(const Reader& in,
                 const H5Dataset& dataset,
                 const H5Properties& layout,
                 Hdf5Tokens& tokens) {
  hsize_t run = 0;
  H5Pget_chunk(layout.id(), 1, &run);
  tokens.run = static_cast<std::int64_t>(run);
  in.check_format(H5Pget_nfilters(layout.id()) == 0,
                  "'tokens' is compressed or otherwise filtered, so it cannot be mapped into "
                  "memory; write it without filters");
  const std::int64_t chunks = (tokens.count + tokens.run - 1) / tokens.run;
  in.check_format(chunks <= kMostChunks,
                  "'tokens' has {} chunks of {} ids, at most {} can be read; write chunks of "
                  "1,048,576 ids, or none",
                  chunks,
                  tokens.run,
                  kMostChunks);
  for (std::int64_t first = 0; first < tokens.count; first += tokens.run) {
    tokens.offsets.push_back(offset_of(in, dataset, tokens, first));
  }
}

void find_ids(const Reader& in, const H5Dataset& dataset, Hdf5Tokens& tokens) {
  const H5Properties layout(H5Dget_create_plist(dataset.id()));
  const H5D_layout_t kind = H5Pget_layout(layout.id());
  if (kind == H5D_CHUNKED) {
    find_chunks(in, dataset, layout, tokens);
    return;
  }
  in.check_format(kind == H5D_CONTIGUOUS && H5Pget_external_count(layout.id()) == 0,
                  "'tokens' is stored inside its header or in other files; write it contiguous or "
                  "in chunks");
  const haddr_t address = H5Dget_offset(dataset.id());
  in.check_file(address != HADDR_UNDEF, "the ids of 'tokens' were never written");
  const std::int64_t end =
      static_cast<std::int64_t>(address) + tokens.count * bytes_of(tokens.type);
  in.check_file(
      end <= in.file_bytes, "'tokens' ends at byte {}, but the file has {}", end, in.file_bytes);
  tokens.run = tokens.count;
  tokens.offsets = {static_cast<std::int64_t>(address)};
}

void read_documents(const Reader& in, Hdf5Tokens& tokens) {
  if (H5Lexists(in.file.id(), "doc_offsets", H5P_DEFAULT) <= 0) {
    return;
  }
  const H5Dataset dataset(H5Dopen2(in.file.id(), "doc_offsets", H5P_DEFAULT));
  in.check_file(dataset.valid(), "'doc_offsets' cannot be opened: {}", hdf5_failure());
  const H5Type type(H5Dget_type(dataset.id()));
  const H5T_class_t kind = H5Tget_class(type.id());
  in.check_format(kind == H5T_INTEGER, "'doc_offsets' holds {}; it needs int64", class_name(kind));
  std::vector<std::int64_t>& begins = tokens.begins;
  begins.resize(static_cast<std::size_t>(length_of(in, dataset, "doc_offsets")));
  in.check_file(begins.size() >= 2, "'doc_offsets' has {} entries", begins.size());
  const bool read =
      H5Dread(dataset.id(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, begins.data()) >= 0;
  in.check_file(read, "'doc_offsets' cannot be read: {}", hdf5_failure());
  in.check_file(begins.front() == 0, "'doc_offsets' begins with {}, not with 0", begins.front());
  const auto falls = std::ranges::adjacent_find(begins, std::greater<>());
  in.check_file(falls == begins.end(),
                "entry {} of 'doc_offsets' is below the one before it",
                falls - begins.begin() + 1);
  in.check_file(begins.back() == tokens.count,
                "'doc_offsets' ends with {}, but there are {} ids",
                begins.back(),
                tokens.count);
}

/// Whether an attribute holds one value, as the reads below take it.
bool holds_one(const H5Attribute& attribute) {
  const H5Space space(H5Aget_space(attribute.id()));
  return H5Sget_simple_extent_npoints(space.id()) == 1;
}

/// A text of the file; empty if there is none of this name, or something else.
std::string text_attribute(const Reader& in, const char* name) {
  if (H5Aexists(in.file.id(), name) <= 0) {
    return {};
  }
  const H5Attribute attribute(H5Aopen(in.file.id(), name, H5P_DEFAULT));
  const H5Type type(H5Aget_type(attribute.id()));
  if (!holds_one(attribute) || H5Tget_class(type.id()) != H5T_STRING) {
    return {};
  }
  if (H5Tis_variable_str(type.id()) > 0) {
    char* text = nullptr;
    const bool read = H5Aread(attribute.id(), type.id(), static_cast<void*>(&text)) >= 0;
    const std::string copy = read && text != nullptr ? text : "";
    H5free_memory(text);
    return copy;
  }
  std::string text(H5Tget_size(type.id()), '\0');
  const bool read = H5Aread(attribute.id(), type.id(), text.data()) >= 0;
  return read ? text.substr(0, text.find('\0')) : "";
}

/// What a file of our own format says of itself. Attributes of other files mean something else.
void check_attributes(const Reader& in) {
  if (text_attribute(in, "format") != kFormat || H5Aexists(in.file.id(), "version") <= 0) {
    return;
  }
  const H5Attribute attribute(H5Aopen(in.file.id(), "version", H5P_DEFAULT));
  std::int64_t version = 0;
  const bool read =
      holds_one(attribute) && H5Aread(attribute.id(), H5T_NATIVE_INT64, &version) >= 0;
  in.check_format(read && version == kHdf5Version,
                  "its attribute 'version' is {}; this program reads {} version {}",
                  read ? std::to_string(version) : "not one number",
                  kFormat,
                  kHdf5Version);
}

}  // namespace

bool is_hdf5(std::span<const std::uint8_t> bytes) noexcept {
  return bytes.size() >= kSignature.size() &&
         std::ranges::equal(bytes.first(kSignature.size()), kSignature);
}

Hdf5Tokens read_hdf5_tokens(const std::filesystem::path& path, std::int64_t file_bytes) {
  prepare_hdf5();
  Reader in{path, file_bytes, H5Id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT))};
  if (!in.file.valid()) {
    fail(ErrorKind::data,
         "token-file",
         "'{}': HDF5 cannot open it: {}\n  fix   if a process is writing it, wait for its end; "
         "otherwise the file is damaged or incomplete, write it anew",
         path.string(),
         hdf5_failure());
  }
  check_attributes(in);
  const bool has_tokens = H5Lexists(in.file.id(), "tokens", H5P_DEFAULT) > 0;
  const H5Dataset dataset(has_tokens ? H5Dopen2(in.file.id(), "tokens", H5P_DEFAULT)
                                     : H5I_INVALID_HID);
  in.check_format(dataset.valid(), "it has no dataset 'tokens'");
  Hdf5Tokens tokens{.type = type_of(in, dataset), .count = length_of(in, dataset, "tokens")};
  if (tokens.count == 0) {
    fail(ErrorKind::data,
         "data-empty",
         "'{}': 'tokens' holds no id\n  fix   write the file anew, or take it out of the list",
         path.string());
  }
  find_ids(in, dataset, tokens);
  read_documents(in, tokens);
  return tokens;
}

}  // namespace colossal::detail
