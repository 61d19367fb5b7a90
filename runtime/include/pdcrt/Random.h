// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//
// Nothing here has a state. A number is a function of what it is for, so it is the same on every rank, in every plan
// and when a forward is computed again. The key is the seed; the counter's four words are
//
//   dropout       element / 4   number of the operation   minibatch, low word   minibatch, high word
//   permutation   word / 4      permutationStream         epoch, low word       epoch, high word
//   parameter     element / 4   initialValuesStream       hash of its name, low and high word (pdc/IR/InitialValues.h)
//   noise         element / 4   noiseStream               minibatch, hash of the input's name: synthetic data
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace pdcrt {

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// Second word of the counter of permutations; operations have smaller numbers.
inline constexpr std::uint32_t permutationStream = 0xFFFFFFFF;
/// The same of the values that parameters start with.
inline constexpr std::uint32_t initialValuesStream = 0xFFFFFFFE;
/// The same of synthetic data.
inline constexpr std::uint32_t noiseStream = 0xFFFFFFFD;

inline constexpr std::uint64_t philoxMultiplier0 = 0xD2511F53, philoxMultiplier1 = 0xCD9E8D57;
inline constexpr std::uint32_t philoxStep0 = 0x9E3779B9, philoxStep1 = 0xBB67AE85; ///< of the key, from round to round

/// Four uniform 32-bit words: the bijection Philox4x32 with 10 rounds and `key` (low word first), applied to `counter`.
constexpr PhiloxBlock philox(PhiloxBlock counter, std::uint64_t key) {
  std::uint32_t key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = philoxMultiplier0 * counter[0], product1 = philoxMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += philoxStep0;
    key1 += philoxStep1;
  }
  return counter;
}

/// Those of counters that follow each other in the first word, of `width` of them at once: word i of the block of
/// counter + lane is words[i][lane]. Lane by lane, so that it becomes vector code of the function that it is called in.
template <int width>
[[gnu::always_inline]] inline void philoxLanes(PhiloxBlock counter, std::uint64_t key,
                                               std::uint32_t (&words)[4][width]) {
  for (int lane = 0; lane < width; ++lane) {
    words[0][lane] = counter[0] + static_cast<std::uint32_t>(lane);
    words[1][lane] = counter[1];
    words[2][lane] = counter[2];
    words[3][lane] = counter[3];
  }
  std::uint32_t key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, key0 += philoxStep0, key1 += philoxStep1)
    for (int lane = 0; lane < width; ++lane) {
      const std::uint64_t product0 = philoxMultiplier0 * words[0][lane], product1 = philoxMultiplier1 * words[2][lane];
      words[0][lane] = static_cast<std::uint32_t>(product1 >> 32) ^ words[1][lane] ^ key0;
      words[1][lane] = static_cast<std::uint32_t>(product1);
      words[2][lane] = static_cast<std::uint32_t>(product0 >> 32) ^ words[3][lane] ^ key1;
      words[3][lane] = static_cast<std::uint32_t>(product0);
    }
}

/// The counter of block `block` of stream `stream` at `step`, in the table above.
constexpr PhiloxBlock philoxCounter(std::uint32_t block, std::uint32_t stream, std::uint64_t step) {
  return {block, stream, static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)};
}

/// The word that element `element` of a stream draws.
constexpr std::uint32_t philoxWord(std::int64_t element, std::uint32_t stream, std::uint64_t step, std::uint64_t key) {
  return philox(philoxCounter(static_cast<std::uint32_t>(element / 4), stream, step),
                key)[static_cast<std::size_t>(element % 4)];
}

/// The elements that a member of a team has of a tensor whose elements draw by their numbers in the whole: that is rows
/// of `members` shares of `run` elements, and the member has share `member` of each.
struct OwnElements {
  std::int64_t run = 0; ///< 0: it has all of them
  std::int64_t members = 1, member = 0;

  /// The number in the whole of element i of the part.
  constexpr std::int64_t at(std::int64_t i) const {
    return run == 0 ? i : (i / run * members + member) * run + i % run;
  }
  /// Whether four neighbours in the part that draw together, from a multiple of 4 on, do so in the whole.
  constexpr bool keepsBlocks() const { return run % 4 == 0; }
};

/// The order in which an epoch visits 0 … count - 1, every order equally likely (Fisher and Yates, in Durstenfeld's
/// form).
std::vector<std::int64_t> permutation(std::uint64_t seed, std::uint64_t epoch, std::int64_t count);

/// Writes that order to `order`, without allocating.
void permute(std::uint64_t seed, std::uint64_t epoch, std::span<std::int64_t> order);

} // namespace pdcrt
