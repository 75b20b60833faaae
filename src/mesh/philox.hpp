// How is one block of random words computed? A function without branches, always inlined, so that a
// loop over counters becomes vector code in any kernel, whatever its target.
#pragma once

#include <array>
#include <cstdint>

namespace colossal {

/// Philox4x32-10: four 32-bit words from a 64-bit key and a 128-bit counter (least significant word
/// first). Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
[[nodiscard, gnu::always_inline]] inline std::array<std::uint32_t, 4> philox4x32(
    std::uint64_t key, std::array<std::uint32_t, 4> counter) noexcept {
  auto [c0, c1, c2, c3] = counter;
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32U);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32U) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32U) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

}  // namespace colossal
