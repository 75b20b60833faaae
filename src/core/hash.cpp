// How are CRC-32C and SHA-256 computed?
#include "core/hash.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace colossal {
namespace {

using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

/// Slicing-by-8 tables of the reflected polynomial 0x82F63B78.
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) {
      c = (c & 1U) != 0 ? (c >> 1U) ^ 0x82F63B78U : c >> 1U;
    }
    tables[0][i] = c;
  }
  for (std::uint32_t i = 0; i < 256; ++i) {
    for (std::size_t k = 1; k < 8; ++k) {
      const std::uint32_t c = tables[k - 1][i];
      tables[k][i] = (c >> 8U) ^ tables[0][c & 0xFFU];
    }
  }
  return tables;
}

constexpr CrcTables kCrc = make_crc_tables();

#if defined(__x86_64__)
/// The processor's own CRC-32C, eight bytes at a time.
__attribute__((target("sse4.2"))) std::uint32_t crc_by_instruction(std::uint32_t c,
                                                                   const unsigned char* p,
                                                                   std::size_t n) noexcept {
  std::uint64_t wide = c;
  for (; n >= 8; n -= 8, p += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  c = static_cast<std::uint32_t>(wide);
  for (; n > 0; --n, ++p) {
    c = __builtin_ia32_crc32qi(c, *p);
  }
  return c;
}
#endif

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS
/// 180-4, 4.2.2).
constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using ShaState = std::array<std::uint32_t, 8>;

void sha256_block(ShaState& state, const unsigned char* block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    w[i] = (std::uint32_t{block[4 * i]} << 24U) | (std::uint32_t{block[4 * i + 1]} << 16U) |
           (std::uint32_t{block[4 * i + 2]} << 8U) | std::uint32_t{block[4 * i + 3]};
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3U);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10U);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const ShaState add = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) {
    state[i] += add[i];
  }
}

}  // namespace

std::uint32_t detail::crc32c_by_tables(std::span<const std::byte> bytes,
                                       std::uint32_t previous) noexcept {
  std::uint32_t c = ~previous;
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t n = bytes.size();
  for (; n >= 8; n -= 8, p += 8) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= c;
    c = kCrc[7][low & 0xFFU] ^ kCrc[6][(low >> 8U) & 0xFFU] ^ kCrc[5][(low >> 16U) & 0xFFU] ^
        kCrc[4][low >> 24U] ^ kCrc[3][high & 0xFFU] ^ kCrc[2][(high >> 8U) & 0xFFU] ^
        kCrc[1][(high >> 16U) & 0xFFU] ^ kCrc[0][high >> 24U];
  }
  for (; n > 0; --n, ++p) {
    c = (c >> 8U) ^ kCrc[0][(c ^ *p) & 0xFFU];
  }
  return ~c;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) noexcept {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) {
    return ~crc_by_instruction(
        ~previous, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  }
#endif
  return detail::crc32c_by_tables(bytes, previous);
}

std::string sha256(std::string_view bytes) {
  ShaState state = {0x6a09e667,
                    0xbb67ae85,
                    0x3c6ef372,
                    0xa54ff53a,
                    0x510e527f,
                    0x9b05688c,
                    0x1f83d9ab,
                    0x5be0cd19};
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const std::size_t whole = bytes.size() / 64;
  for (std::size_t i = 0; i < whole; ++i) {
    sha256_block(state, data + 64 * i);
  }
  std::vector<unsigned char> tail(data + 64 * whole, data + bytes.size());
  tail.push_back(0x80);
  while (tail.size() % 64 != 56) {
    tail.push_back(0);
  }
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  for (unsigned shift = 64; shift > 0; shift -= 8) {
    tail.push_back(static_cast<unsigned char>(bits >> (shift - 8)));
  }
  for (std::size_t i = 0; i < tail.size(); i += 64) {
    sha256_block(state, tail.data() + i);
  }
  std::string hex;
  for (const std::uint32_t word : state) {
    hex += fmt::format("{:08x}", word);
  }
  return hex;
}

}  // namespace colossal
