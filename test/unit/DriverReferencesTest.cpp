// LINK: pdcDriver
// Which files weights are read from: any that the user names, and of those that a model names only what lies beneath
// the model's folder. What a diagnostic would say about a parameter has no part in it.
#include "Driver/OutputFolder.h"
#include "pdcrt/Safetensors.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

class References : public testing::Test {
protected:
  References() {
    fs::create_directories(folder_ + "/model");
    for (const std::string file : {"/secret.bin", "/model/w.bin"}) {
      const float values[2] = {1.5F, -2.0F};
      std::ofstream(folder_ + file, std::ios::binary).write(reinterpret_cast<const char*>(values), sizeof values);
    }
    std::ofstream(model_) << "a model";
  }
  ~References() override { fs::remove_all(folder_); }

  Reference reference(const std::string& file, ReferenceOrigin origin) const {
    return {.file = folder_ + file, .offset = 0, .length = 8, .stored = {2}, .origin = origin, .model = model_};
  }

  /// Whether the values that `reference` means can be written; messages about them would name `location`.
  bool canBeWritten(const Reference& reference, const std::string& location) {
    const Parameter parameter = {.name = "w",
                                 .type = {ElementType::f32, {2}},
                                 .reference = reference,
                                 .location = {.file = location, .node = "w"},
                                 .drawn = {}};
    Diagnostics diags(nullptr);
    const bool written = static_cast<bool>(writeWeights(folder_ + "/out.safetensors", {&parameter}, diags));
    EXPECT_NE(written, diags.hasErrors());
    return written;
  }

  const std::string folder_ = testing::TempDir() + "pdc-references-" + std::to_string(::getpid());
  const std::string model_ = folder_ + "/model/m.onnx";
};

} // namespace

TEST_F(References, TheUserNamesAnyFile) {
  EXPECT_TRUE(canBeWritten(reference("/secret.bin", ReferenceOrigin::namedByUser), model_));
  EXPECT_TRUE(canBeWritten(reference("/model/w.bin", ReferenceOrigin::namedByUser), "elsewhere.onnx"));
}

TEST_F(References, AModelNamesFilesBeneathItsFolder) {
  EXPECT_TRUE(canBeWritten(reference("/model/w.bin", ReferenceOrigin::externalData), model_));
  EXPECT_TRUE(canBeWritten(reference("/model/w.bin", ReferenceOrigin::externalData), ""));
}

TEST_F(References, NoLocationGivesAModelAFileOutsideOfItsFolder) {
  for (const std::string& location : {model_, folder_ + "/secret.bin", folder_ + "/model/../secret.bin", std::string()})
    EXPECT_FALSE(canBeWritten(reference("/secret.bin", ReferenceOrigin::externalData), location)) << location;
  EXPECT_FALSE(canBeWritten(reference("/model/../secret.bin", ReferenceOrigin::externalData), model_));
}

TEST_F(References, AReferenceWithoutOriginIsNotTrusted) {
  const Reference forgotten = {.file = folder_ + "/secret.bin", .offset = 0, .length = 8, .stored = {2}};
  EXPECT_FALSE(canBeWritten(forgotten, folder_ + "/secret.bin"));
}
