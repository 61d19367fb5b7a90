// LINK: pdcrt_base
// Names of data files, and what to type where one does not fit.
#include "pdcrt/DataFile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

using namespace pdcrt;

namespace {

TEST(DataFile, NamesStayInTheirFolder) {
  EXPECT_EQ(dataFileName("../x"), "_.._x");
  EXPECT_EQ(dataFileName("-rf"), "_-rf");
  EXPECT_EQ(dataFileName(""), "_");
  EXPECT_EQ(dataFileName("input.1"), "input.1");
  EXPECT_EQ(dataFileName("serving_default_x:0"), "serving_default_x_0");
  EXPECT_EQ(dataFileName("onnx::MatMul_7"), "onnx__MatMul_7");
  EXPECT_EQ(dataFileName(std::string(300, 'a')).size(), 200u);
}

TEST(DataFile, AFileThatKeepsOtherCharactersIsFound) {
  const std::string folder = testing::TempDir() + "data-file-names";
  std::filesystem::create_directories(folder);
  EXPECT_EQ(dataFile(folder, "a:b"), folder + "/a_b.npy") << "neither is there";
  std::ofstream(folder + "/a:b.npy") << "";
  EXPECT_EQ(dataFile(folder, "a:b"), folder + "/a:b.npy");
  std::ofstream(folder + "/a_b.npy") << "";
  EXPECT_EQ(dataFile(folder, "a:b"), folder + "/a_b.npy");
  std::filesystem::remove_all(folder);
}

std::string reshaped(std::vector<std::int64_t> found, std::vector<std::int64_t> wanted, int samplesAxis = 0) {
  return reshapeHelp("data/x.npy", found, wanted, samplesAxis);
}

TEST(DataFile, AReshapeIsAdvisedOnlyWhereSamplesStayWhole) {
  EXPECT_EQ(reshaped({10, 64}, {4, 1, 8, 8}), "write it as np.save('x.npy', x.reshape(-1, 1, 8, 8))");
  EXPECT_EQ(reshaped({10, 1}, {4}), "write it as np.save('x.npy', x.reshape(-1))");
  EXPECT_EQ(reshaped({4, 64}, {4, 8, 8}, -1), "write it as np.save('x.npy', x.reshape(4, 8, 8))");
  for (const auto& found : {std::vector<std::int64_t>{5, 128}, {10, 65}, {}, {0}})
    EXPECT_EQ(reshaped(found, {4, 1, 8, 8}).find("reshape"), std::string::npos);
}

TEST(DataFile, IntegersConvertToAllThatHaveTheirValues) {
  EXPECT_TRUE(converts(Element::u8, Element::f32));
  EXPECT_TRUE(converts(Element::i32, Element::i64));
  EXPECT_TRUE(converts(Element::f64, Element::f32));
  EXPECT_FALSE(converts(Element::f32, Element::i64));
  EXPECT_FALSE(converts(Element::i64, Element::i32));
  EXPECT_FALSE(converts(Element::f16, Element::f32));
  EXPECT_EQ(astypeHelp("data/x.npy", Element::i64), "write it as np.save('x.npy', x.astype(np.int64))");
}

} // namespace
