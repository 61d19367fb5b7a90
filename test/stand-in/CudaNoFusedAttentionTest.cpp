// Attention in a runtime that was built without the headers of cudnn_frontend: nothing is to be chosen, and who asks
// for the fused algorithm is told.
#include "pdcrt/Setup.h"
#include "pdcrt/kernels/Attention.h"

#include <gtest/gtest.h>

#include <stdexcept>

using namespace pdcrt;

namespace {

const Attention::Options options = {.batch = 2,
                                    .heads = 4,
                                    .groups = 4,
                                    .queries = 24,
                                    .keys = 24,
                                    .size = 16,
                                    .valueSize = 16,
                                    .element = Element::bf16};

TEST(CudaNoFusedAttention, NothingIsTimed) {
  std::vector<KernelTime> times;
  pdcrt::Setup setup;
  setup.timing(&times);
  const Attention kernel(setup, options);
  EXPECT_TRUE(times.empty());
}

TEST(CudaNoFusedAttention, WhoAsksForItIsTold) {
  Attention::Options o = options;
  o.algorithms = {.forward = Attention::Algorithm::fused, .workspace = 1 << 20};
  pdcrt::Setup setup;
  try {
    const Attention kernel(setup, o);
    FAIL() << "it was not refused";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "attention of 2x4x24x16 to 2x4x24x16: there is no fused algorithm here (this runtime was "
                 "built without the headers of cudnn_frontend); measure on this device: pdc-profile");
  }
}

} // namespace
