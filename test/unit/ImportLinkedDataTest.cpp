// LINK: pdcImport pdcOps
// External data in a cache of models: a folder of links to files that lie, under other names, in one other folder.
#include "ImportModels.h"

#include <filesystem>
#include <gtest/gtest.h>

using namespace pdc;
using namespace pdc::test;
namespace fs = std::filesystem;

namespace {

/// snapshots/1a2b/m.onnx and w.bin, which are links to blobs/00ff and blobs/00ee, and a file beside all.
class Cache {
public:
  Cache() {
    for (const char* name : {"blobs", "snapshots", "snapshots/1a2b"}) fs::create_directory(folder_ / name);
    writeFile(folder_ / "secret", std::string(24, 's'));
    writeFile(folder_ / "blobs/00ee", std::string(24, 'w'));
    ModelMaker maker = smallModel();
    onnx::TensorProto& tensor = *maker.graph().mutable_initializer(0);
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    onnx::StringStringEntryProto& entry = *tensor.add_external_data();
    entry.set_key("location");
    entry.set_value("w.bin");
    maker.write(folder_ / "blobs/00ff");
  }
  void link(const std::string& target, const std::string& name) {
    fs::remove(folder_ / ("snapshots/1a2b/" + name));
    fs::create_symlink(target, folder_ / ("snapshots/1a2b/" + name));
  }
  Imported import() { return importFile(model(), {.batch = 1}); }
  std::string model() const { return folder_ / "snapshots/1a2b/m.onnx"; }
  std::string data() const { return folder_ / "snapshots/1a2b/w.bin"; }

private:
  TemporaryFolder folder_;
};

TEST(ImportLinkedData, IsTakenWhereItLiesBesideTheModelItself) {
  Cache cache;
  cache.link("../../blobs/00ff", "m.onnx");
  cache.link("../../blobs/00ee", "w.bin");
  const Imported imported = cache.import();
  EXPECT_TRUE(imported.module) << imported.messages;
  pdcrt::MappedFile mapped;
  ASSERT_TRUE(mapExternalData(cache.model(), cache.data(), mapped));
  EXPECT_EQ(mapped.bytes().size(), 24u);
  EXPECT_EQ(static_cast<char>(mapped.bytes()[0]), 'w');
}

TEST(ImportLinkedData, IsRefusedWhereItLeadsElsewhere) {
  const std::string why = "external data 'w.bin' leaves the folder of the model by a symbolic link";
  Cache cache;
  cache.link("../../blobs/00ff", "m.onnx");
  for (const char* target : {"../../secret", "/etc/passwd", "../../blobs/nowhere", "../../snapshots"}) {
    cache.link(target, "w.bin");
    const Imported imported = cache.import();
    EXPECT_FALSE(imported.module) << target;
    EXPECT_NE(imported.messages.find(why), std::string::npos) << imported.messages;
  }
}

TEST(ImportLinkedData, IsRefusedWhereTheModelIsNoLink) {
  Cache cache;
  cache.link("../../blobs/00ff", "m.onnx");
  const std::string plain = fs::canonical(cache.model()).string();
  fs::remove(cache.model());
  fs::copy_file(plain, cache.model());
  cache.link("../../blobs/00ee", "w.bin");
  EXPECT_FALSE(cache.import().module);
}

} // namespace
