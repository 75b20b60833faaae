// How do tests make token files? Byte by byte, so that they can also be wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace colossal::test {

/// Appends a little-endian number.
template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Numbers as T, one after another.
template <class T>
std::string packed(const std::vector<std::int64_t>& values) {
  std::string bytes;
  for (const std::int64_t value : values) {
    append(bytes, static_cast<T>(value));
  }
  return bytes;
}

/// What a Megatron index holds.
struct IndexFields {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> pointers;
  std::vector<std::int64_t> boundaries;
};

/// The index of documents whose sequences have these numbers of tokens of `item` bytes.
inline IndexFields index_of(const std::vector<std::vector<std::int64_t>>& documents,
                            std::int64_t item = 2) {
  IndexFields fields;
  fields.boundaries.push_back(0);
  std::int64_t at = 0;
  for (const auto& document : documents) {
    for (const std::int64_t length : document) {
      fields.lengths.push_back(length);
      fields.pointers.push_back(at);
      at += length * item;
    }
    fields.boundaries.push_back(std::ssize(fields.lengths));
  }
  return fields;
}

inline std::string bytes_of(const IndexFields& fields) {
  std::string bytes = fields.magic;
  append(bytes, fields.version);
  append(bytes, fields.type);
  append(bytes, static_cast<std::uint64_t>(fields.lengths.size()));
  append(bytes, static_cast<std::uint64_t>(fields.boundaries.size()));
  return bytes + packed<std::int32_t>(fields.lengths) + packed<std::int64_t>(fields.pointers) +
         packed<std::int64_t>(fields.boundaries);
}

/// An llm.c file of these ids.
inline std::string llmc_bytes(const std::vector<std::int64_t>& ids,
                              std::int32_t magic = 20240520,
                              std::int32_t version = 1) {
  std::vector<std::int64_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = std::ssize(ids);
  return packed<std::int32_t>(header) + packed<std::uint16_t>(ids);
}

/// Writes NAME.bin and NAME.idx of uint16 ids, one sequence a document; returns the .bin's path.
inline std::string write_megatron(const std::filesystem::path& folder,
                                  const std::string& name,
                                  const std::vector<std::vector<std::int64_t>>& documents) {
  std::vector<std::vector<std::int64_t>> lengths;
  std::string ids;
  for (const auto& document : documents) {
    lengths.push_back({std::ssize(document)});
    ids += packed<std::uint16_t>(document);
  }
  const std::filesystem::path bin = folder / (name + ".bin");
  std::ofstream(folder / (name + ".idx"), std::ios::binary) << bytes_of(index_of(lengths));
  std::ofstream(bin, std::ios::binary) << ids;
  return bin.string();
}

/// Ids first, first + 1, ...
inline std::vector<std::int64_t> ids_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(first + i);
  }
  return ids;
}

}  // namespace colossal::test
