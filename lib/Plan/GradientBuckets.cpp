#include "pdc/Plan/GradientBuckets.h"

#include <algorithm>

using namespace pdc;

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

double pdc::exposedSyncMs(const std::vector<GradientBucket>& buckets, double backwardMs, double syncMs, double coreMs,
                          bool sharded) {
  syncMs = std::max(0.0, syncMs - coreMs);
  if (sharded) return syncMs / 2 + exposedSyncMs(buckets, backwardMs, syncMs / 2);
  double left = 0;
  for (const GradientBucket& bucket : buckets) left += static_cast<double>(bucket.bytes);
  if (left <= 0) return syncMs;
  const double msPerByte = syncMs / left;
  double endMs = 0;
  for (const GradientBucket& bucket : buckets) {
    endMs = std::max(endMs, bucket.final * backwardMs + msPerByte * left);
    left -= static_cast<double>(bucket.bytes);
  }
  return std::clamp(endMs - backwardMs, 0.0, syncMs);
}
