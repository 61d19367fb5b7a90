#include "pdc/Plan/GradientBuckets.h"

std::vector<int> pdc::gradientBuckets(const std::vector<std::int64_t>& parameterBytes, std::int64_t mostBytes) {
  std::vector<int> buckets(parameterBytes.size());
  int bucket = 0;
  std::int64_t bytes = 0;
  for (std::size_t group = parameterBytes.size(); group-- > 0;) {
    if (bytes > 0 && parameterBytes[group] > mostBytes - bytes) {
      ++bucket;
      bytes = 0;
    }
    bytes += parameterBytes[group];
    buckets[group] = bucket;
  }
  return buckets;
}
