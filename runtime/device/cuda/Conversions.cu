// See Conversions.h. A thread converts four neighbours at a time, where both arrays begin at a multiple of 16 bytes.
#include "pdcrt/Conversions.h"

#include "Table.h"

namespace pdcrt {
namespace {

constexpr int packElements = 4;

/// The first `packs` packs move whole, the other elements one by one.
template <class T>
struct Row {
  Conversion<T> conversion;
  std::int64_t packs;
};

template <int n, class T>
__device__ void convertPack(const Conversion<T>& c, std::int64_t i) {
  const auto values = loadPack<n>(c.from, i);
  Pack<T, n> rounded;
  for (int j = 0; j < n; ++j) rounded[j] = T(values[j]);
  storePack(c.to, i, rounded);
}

template <class T>
__global__ void convertRows(cuda::Table<Row<T>> table) {
  const unsigned at = table.row();
  const Row<T>& row = table.rows[at];
  const cuda::RowShare own = table.shareOf(at);
  for (std::int64_t i = own.first; i < row.packs; i += own.step)
    convertPack<packElements>(row.conversion, i * packElements);
  for (std::int64_t i = row.packs * packElements + own.first; i < row.conversion.count; i += own.step)
    convertPack<1>(row.conversion, i);
}

template <class T>
Row<T> rowOf(const Conversion<T>& c) {
  const auto addresses = reinterpret_cast<std::uintptr_t>(c.from.data) | reinterpret_cast<std::uintptr_t>(c.to.data);
  return {c, addresses % (packElements * sizeof(float)) == 0 ? c.count / packElements : 0};
}

/// As many that a thread converts eight packs: a block does something before the first.
template <class T>
unsigned blocksOf(const Row<T>& row) {
  constexpr std::int64_t each = 8;
  return blocksFor((std::max(row.packs, row.conversion.count - row.packs * packElements) + each - 1) / each);
}

} // namespace

template <class T>
void convertAll(Stream& q, std::span<const Conversion<T>> conversions) {
  cuda::launchTables<Row<T>>(q, "conversions", convertRows<T>, conversions, rowOf<T>, blocksOf<T>);
}
template void convertAll(Stream& q, std::span<const Conversion<bfloat16>> conversions);
template void convertAll(Stream& q, std::span<const Conversion<float16>> conversions);

} // namespace pdcrt
