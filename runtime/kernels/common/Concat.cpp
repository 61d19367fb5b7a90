// See Concat.h.
#include "pdcrt/kernels/Concat.h"

namespace pdcrt {

Concat::Concat(Setup&, const Options& o) {
  std::int64_t row = 0, begin = 0;
  for (std::int64_t inner : o.inner) row += inner;
  for (std::int64_t inner : o.inner) {
    copies_.emplace_back(Shape{o.outer, inner}, Arrangement{0, {inner, 1}}, Arrangement{begin, {row, 1}});
    begin += inner;
  }
}

} // namespace pdcrt
