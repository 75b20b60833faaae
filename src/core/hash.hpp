// Which hash functions does the project use, and for what?
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace colossal {

/// splitmix64's output function on x + its increment: mixes seeds and ids. splitmix(0) =
/// e220a8397b1dcdaf.
[[nodiscard]] constexpr std::uint64_t splitmix64(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

/// FNV-1a, 64 bit: names of parameters and dropout sites to numbers.
[[nodiscard]] constexpr std::uint64_t fnv1a64(std::string_view text) noexcept {
  std::uint64_t h = 0xCBF29CE484222325ULL;
  for (const char c : text) {
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return h;
}

/// CRC-32C (Castagnoli), the checksum of checkpoint datasets; continue a sum by passing the
/// previous result.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t previous = 0) noexcept;

namespace detail {
/// crc32c() for processors without an instruction for it; declared for its tests.
[[nodiscard]] std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes,
                                             std::uint32_t previous = 0) noexcept;
}  // namespace detail

/// SHA-256 as 64 hexadecimal digits: config hashes and data fingerprints.
[[nodiscard]] std::string sha256(std::string_view bytes);

}  // namespace colossal
