// What is in a safetensors file? The length of the header, the header in JSON, and the bytes.
#include "checkpoint/safetensors.hpp"

#include "core/error.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMostHeaderBytes = 100'000'000;  // the limit of the reference reader
constexpr std::size_t kAlignment = 8;
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int64_t>::max();

struct TypeWord {
  std::string_view word;
  at::ScalarType dtype;
  std::int64_t item_bytes;
};

constexpr std::array<TypeWord, 13> kTypes = {{
    {"F64", at::kDouble, 8},
    {"F32", at::kFloat, 4},
    {"F16", at::kHalf, 2},
    {"BF16", at::kBFloat16, 2},
    {"I64", at::kLong, 8},
    {"I32", at::kInt, 4},
    {"I16", at::kShort, 2},
    {"I8", at::kChar, 1},
    {"U8", at::kByte, 1},
    {"BOOL", at::kBool, 1},
    {"F8_E4M3", at::ScalarType::Undefined, 1},
    {"F8_E5M2", at::ScalarType::Undefined, 1},
    {"U64", at::ScalarType::Undefined, 8},
}};

template <class... Args>
void require(bool ok,
             const fs::path& path,
             Message<std::type_identity_t<Args>...> message,
             Args&&... args) {
  if (!ok) {
    throw Error(ErrorKind::checkpoint,
                "weights-damaged",
                fmt::format("{} is not a whole safetensors file: {}\n  fix   copy it again",
                            path.string(),
                            fmt::format(message.text, std::forward<Args>(args)...)),
                message.where);
  }
}

[[noreturn]] void fail_read(const fs::path& path, int error) {
  check(error != ENOENT && error != ENOTDIR,
        ErrorKind::data,
        "file-not-found",
        "file not found: {}",
        path.string());
  fail(ErrorKind::data,
       "data-unreadable",
       "'{}' cannot be read: {}\n  fix   give this user the right to read it, on a disk that is "
       "sound",
       path.string(),
       std::generic_category().message(error));
}

/// Product of the sizes and `item_bytes`, if it can be counted.
std::optional<std::int64_t> bytes_of(const Shape& shape, std::int64_t item_bytes) {
  std::int64_t bytes = item_bytes;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

/// One entry of the header; `offset` is data_offsets[0].
SafeTensor entry_from(const fs::path& path, const std::string& name, const Json& json) {
  const auto word = json.at("dtype").get<std::string>();
  const auto* type = std::ranges::find(kTypes, word, &TypeWord::word);
  check(type != kTypes.end(),
        ErrorKind::checkpoint,
        "weights-dtype",
        "{}: tensor '{}' has the unknown type {}",
        path.string(),
        name,
        word);
  SafeTensor tensor{.name = name, .dtype = type->dtype, .shape = {}};
  for (const Json& size : json.at("shape")) {
    require(size.is_number_unsigned(), path, "'{}' has a size {}", name, size.dump());
    tensor.shape.push_back(size.get<std::int64_t>());
  }
  const Json& range = json.at("data_offsets");
  require(range.is_array() && range.size() == 2 && range[0].is_number_unsigned() &&
              range[1].is_number_unsigned(),
          path,
          "'{}' lies at {}",
          name,
          range.dump());
  const auto begin = range[0].get<std::uint64_t>();
  const auto end = range[1].get<std::uint64_t>();
  const std::optional<std::int64_t> bytes = bytes_of(tensor.shape, type->item_bytes);
  require(bytes.has_value() && begin <= end && end <= kMostBytes &&
              end - begin == static_cast<std::uint64_t>(*bytes),
          path,
          "'{}' of type {} and shape {} lies at {}",
          name,
          word,
          tensor.shape,
          range.dump());
  tensor.offset = static_cast<std::int64_t>(begin);
  tensor.bytes = *bytes;
  return tensor;
}

/// The entries in the order of their bytes, which must fill `data_bytes` one behind the other.
std::vector<SafeTensor> entries_from(const fs::path& path,
                                     const Json& header,
                                     std::int64_t data_bytes) {
  require(header.is_object(), path, "its header is no JSON object");
  std::vector<SafeTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      tensors.push_back(entry_from(path, name, entry));
    }
  }
  // An empty tensor may stand at the place where another one begins.
  std::ranges::sort(tensors, [](const SafeTensor& a, const SafeTensor& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  std::int64_t end = 0;
  for (const SafeTensor& tensor : tensors) {
    require(tensor.offset == end,
            path,
            "'{}' begins at byte {} of the data, the one before it ends at {}",
            tensor.name,
            tensor.offset,
            end);
    end += tensor.bytes;
  }
  require(end == data_bytes,
          path,
          "its tensors have {} bytes, the file has {} for them",
          end,
          data_bytes);
  return tensors;
}

std::string header_of(std::vector<SafeTensor>& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};  // Python's transformers insists on it
  std::int64_t end = 0;
  for (SafeTensor& tensor : tensors) {
    tensor.offset = end;
    tensor.bytes = numel(tensor.shape) * static_cast<std::int64_t>(c10::elementSize(tensor.dtype));
    end += tensor.bytes;
    header[tensor.name] = {{"dtype", safetensors_word(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {tensor.offset, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

}  // namespace

std::string_view safetensors_word(at::ScalarType dtype) noexcept {
  const auto* type = std::ranges::find(kTypes, dtype, &TypeWord::dtype);
  return dtype == at::ScalarType::Undefined || type == kTypes.end() ? "?" : type->word;
}

SafetensorsFile::SafetensorsFile(fs::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat info = {};
  if (file_.get() < 0 || ::fstat(file_.get(), &info) != 0) {
    fail_read(path_, errno);
  }
  if (S_ISDIR(info.st_mode)) {
    fail_read(path_, EISDIR);
  }
  const std::int64_t size = info.st_size;
  require(size >= kLengthBytes, path_, "it has {} bytes", size);
  std::uint64_t length = 0;
  read_bytes(std::as_writable_bytes(std::span(&length, 1)), 0);
  require(length <= kMostHeaderBytes,
          path_,
          "its header would have {} bytes, more than the {} that are allowed",
          length,
          kMostHeaderBytes);
  data_begin_ = kLengthBytes + static_cast<std::int64_t>(length);
  require(data_begin_ <= size,
          path_,
          "its header has {} bytes, the whole file {}: it was cut off",
          length,
          size);
  std::string text(length, '\0');
  read_bytes(std::as_writable_bytes(std::span(text)), kLengthBytes);
  try {
    tensors_ = entries_from(path_, Json::parse(text), size - data_begin_);
  } catch (const Json::exception& error) {
    require(false, path_, "its header cannot be read: {}", error.what());
  }
}

const SafeTensor* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto it = std::ranges::find(tensors_, name, &SafeTensor::name);
  return it == tensors_.end() ? nullptr : &*it;
}

at::Tensor SafetensorsFile::read(const SafeTensor& tensor) const {
  check(tensor.dtype != at::ScalarType::Undefined,
        ErrorKind::checkpoint,
        "weights-dtype",
        "{}: tensor '{}' is stored in a type that this program cannot read",
        path_.string(),
        tensor.name);
  at::Tensor values = at::empty(tensor.shape, tensor.dtype);
  read_bytes({static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes()},
             data_begin_ + tensor.offset);
  return values;
}

void SafetensorsFile::read_bytes(std::span<std::byte> into, std::int64_t at) const {
  while (!into.empty()) {
    const ssize_t count = ::pread(file_.get(), into.data(), into.size(), at);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail_read(path_, errno);
    }
    require(count > 0, path_, "it became shorter while it was read");
    into = into.subspan(static_cast<std::size_t>(count));
    at += count;
  }
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<SafeTensor> tensors)
    : file_(path), tensors_(std::move(tensors)) {
  const std::string header = header_of(tensors_);
  file_.write_value(static_cast<std::uint64_t>(header.size()));
  file_.write(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::write(const at::Tensor& values) {
  const bool announced = next_ < tensors_.size() && tensors_[next_].dtype == values.scalar_type() &&
                         values.sizes() == at::IntArrayRef(tensors_[next_].shape);
  check(announced,
        ErrorKind::internal,
        "weights-order",
        "tensor {} of {} is not the announced one",
        next_,
        tensors_.size());
  ++next_;
  const at::Tensor plain = values.cpu().contiguous();
  file_.write({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()});
}

void SafetensorsWriter::commit() {
  check(next_ == tensors_.size(),
        ErrorKind::internal,
        "weights-order",
        "{} of {} tensors were written",
        next_,
        tensors_.size());
  file_.finish();
  file_.commit();
}

}  // namespace colossal
