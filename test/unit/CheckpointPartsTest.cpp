// LINK: pdcrt_base
// Tensors that files hold in parts: what is read from them, and what metadata and sets of files are refused.
#include "ScratchFolder.h"

#include "pdcrt/Checkpoint.h"
#include "pdcrt/StoredTensor.h"

#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

using namespace pdcrt;

namespace {

std::vector<float> numbers(const Shape& shape) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<float>(i + 1));
  return values;
}

std::vector<std::int64_t> dims(const Shape& shape) {
  return {shape.dims, shape.dims + shape.rank};
}

/// What a member has of numbers(whole).
std::vector<float> partOf(const Shape& whole, const MemberPart& part) {
  std::vector<float> own(static_cast<std::size_t>(localShape(whole, part.part).elements()));
  const std::vector<float> all = numbers(whole);
  copyPart(whole, 4, {}, std::as_bytes(std::span(all)), part, std::as_writable_bytes(std::span(own)));
  return own;
}

const Shape whole{4, 6};
const Part columns{.axis = 1, .blocks = 3, .of = 2, .wholeSize = 6}, rows{.axis = 0, .of = 3, .wholeSize = 4};
constexpr std::int32_t order[] = {2, 0, 3, 1};
const Part placed{.axis = 0, .of = 2, .wholeSize = 4, .order = order};

/// The files of a stage whose tensor "w" is divided so: FOLDER/stage0[.memberM].safetensors.
class StageFiles : public testing::Test {
protected:
  std::string fileOf(int member) const { return folder.path + "/stage0" + memberSuffix(member) + ".safetensors"; }
  void write(const Part& part, int member, const Shape& shape = whole) {
    write(fileOf(member), partMetadata("w", {part, member}, shape).second, localShape(shape, part),
          partOf(shape, {part, member}));
  }
  void write(const std::string& path, const std::string& metadata, const Shape& shape,
             const std::vector<float>& values) {
    const TensorRecord record = {"w", Element::f32, dims(shape), std::as_bytes(std::span(values))};
    std::map<std::string, std::string> all;
    if (!metadata.empty()) all["part/w"] = metadata;
    ASSERT_TRUE(writeSafetensors(path, std::span(&record, 1), all));
  }
  void writeAll(const Part& part) {
    for (int member = 0; member < part.of; ++member) write(part, member);
  }
  Status open(StoredTensors& tensors, const std::vector<int>& members) const {
    std::vector<std::string> paths;
    for (int member : members) paths.push_back(fileOf(member));
    return tensors.open(paths);
  }
  /// The message, without the folder's path.
  std::string problem(const std::vector<int>& members) const {
    StoredTensors tensors;
    const Status status = open(tensors, members);
    EXPECT_EQ(status.code(), Exit::badData);
    EXPECT_NE(status.help(), "");
    std::string text = status.message();
    for (std::size_t at; (at = text.find(folder.path + "/")) != std::string::npos;)
      text.erase(at, folder.path.size() + 1);
    return text;
  }
  ScratchFolder folder;
};

TEST_F(StageFiles, AreOneWholeTensor) {
  for (const Part& part : {columns, rows}) {
    writeAll(part);
    StoredTensors tensors;
    ASSERT_TRUE(tensors.open(memberFiles(fileOf(0))));
    ASSERT_EQ(tensors.whole().size(), 1u);
    const TensorRecord& record = tensors.whole().at("w");
    EXPECT_EQ(record.shape, dims(whole));
    const std::vector<float> expected = numbers(whole);
    ASSERT_EQ(record.values.size(), 4 * expected.size());
    EXPECT_EQ(std::memcmp(record.values.data(), expected.data(), record.values.size()), 0);
  }
}

TEST_F(StageFiles, GiveAnyPart) {
  for (const Part& from : {Part{}, columns, rows, placed}) {
    if (from.isWhole())
      write(fileOf(0), "", whole, numbers(whole));
    else
      writeAll(from);
    std::vector<int> members;
    for (int member = static_cast<int>(from.of); member-- > 0;) members.push_back(member); // any order
    StoredTensors tensors;
    ASSERT_TRUE(open(tensors, members));
    for (const Part& to : {Part{}, columns, rows, placed, Part{.axis = 1, .of = 4, .wholeSize = 6}})
      for (int member = 0; member < to.of; ++member) {
        const Shape local = localShape(whole, to);
        std::vector<float> own(static_cast<std::size_t>(local.elements()), -1);
        ASSERT_TRUE(
            tensors.find("w")->read({Element::f32, local, {to, member}}, std::as_writable_bytes(std::span(own))));
        EXPECT_EQ(own, partOf(whole, {to, member}));
      }
  }
}

TEST_F(StageFiles, OfWhichOneIsMissingAreRefused) {
  writeAll(rows);
  EXPECT_EQ(problem({0, 2}), "stage0.safetensors: tensor 'w' is divided over 3 members, the files have 2 parts of it, "
                             "none of member 1");
  EXPECT_EQ(problem({1}), "stage0.member1.safetensors: tensor 'w' is divided over 3 members, the files have 1 part of "
                          "it, none of member 0");
}

TEST_F(StageFiles, ThatOverlapAreRefused) {
  writeAll(columns);
  write(fileOf(2), partMetadata("w", {columns, 1}, whole).second, localShape(whole, columns),
        partOf(whole, {columns, 1}));
  EXPECT_EQ(problem({0, 1, 2}), "stage0.member2.safetensors: tensor 'w' is the part of member 1 of 2, which "
                                "stage0.member1.safetensors holds, too");
}

TEST_F(StageFiles, OfSeveralDivisionsAreRefused) {
  writeAll(placed);
  write(Part{.axis = 0, .of = 2, .wholeSize = 4}, 1);
  EXPECT_EQ(problem({0, 1}),
            "stage0.member1.safetensors: tensor 'w' is a part of 2 of [4, 6], along axis 0 in 1 block, "
            "stage0.safetensors has a part of 2 of [4, 6], along axis 0 in 1 block in the order 2 0 3 1");
  writeAll(columns);
  write(rows, 1);
  EXPECT_EQ(problem({0, 1}),
            "stage0.member1.safetensors: tensor 'w' is a part of 3 of [4, 6], along axis 0 in 1 block, "
            "stage0.safetensors has a part of 2 of [4, 6], along axis 1 in 3 blocks");
  write(fileOf(1), "", whole, numbers(whole));
  EXPECT_EQ(problem({0, 1}),
            "stage0.member1.safetensors: tensor 'w' is the whole tensor [4, 6], stage0.safetensors has "
            "a part of 2 of [4, 6], along axis 1 in 3 blocks");
  write(columns, 1, {5, 6});
  EXPECT_EQ(problem({0, 1}),
            "stage0.member1.safetensors: tensor 'w' is a part of 2 of [5, 6], along axis 1 in 3 blocks, "
            "stage0.safetensors has a part of 2 of [4, 6], along axis 1 in 3 blocks");
}

TEST_F(StageFiles, WithAnotherShapeThanTheirPartAreRefused) {
  const std::vector<float> values(8);
  write(fileOf(0), partMetadata("w", {columns, 0}, whole).second, {4, 2}, values);
  EXPECT_EQ(problem({0}), "stage0.safetensors: tensor 'w' has the shape [4, 2], its part of [4, 6] has [4, 3]");
}

TEST_F(StageFiles, WhoseMetadataIsNoneAreRefused) {
  const std::string fine = "axis 1 blocks 3 of 2 member 1 shape 4 6";
  ASSERT_EQ(partMetadata("w", {columns, 1}, whole), std::pair(std::string("part/w"), fine));
  MemberPart part;
  Shape shape;
  ASSERT_TRUE(parsePart(fine, part, shape));
  EXPECT_EQ(part.part, columns);
  EXPECT_EQ(part.member, 1);
  EXPECT_EQ(shape, whole);
  const std::string ordered = "axis 0 blocks 1 of 2 member 1 shape 4 6 order 2 0 3 1";
  ASSERT_TRUE(parsePart(ordered, part, shape));
  EXPECT_EQ(partMetadata("w", part, shape).second, ordered);
  EXPECT_EQ(std::vector(part.part.order.begin(), part.part.order.end()), (std::vector<std::int32_t>{2, 0, 3, 1}));
  for (const char* text : {"",
                           "axis 1",
                           "axis 0 blocks 1 of 2 member 1 shape 4 6 order",
                           "axis 0 blocks 1 of 2 member 1 shape 4 6 order 0 1 2",
                           "axis 0 blocks 1 of 2 member 1 shape 4 6 order 0 1 2 2",
                           "axis 0 blocks 1 of 2 member 1 shape 4 6 order 0 1 2 4",
                           "axis 0 blocks 1 of 2 member 1 shape 4 6 order 0 1 2 -1",
                           "axis 0 blocks 1 of 2 member 1 shape 4 6 order 0 1 2 99999999999",
                           "axis 0 blocks 1 of 2 member 1 shape 4 6 order 0 1 2 03",
                           "axis 0 blocks 1 of 2 member 1 shape 4 6 order 0 1 2 3 ",
                           "axis 0 blocks 2 of 2 member 1 shape 4 6 order 0 1 2 3",
                           "axis 0 blocks 1 of 3 member 1 shape 4 6 order 0 1 2 3",
                           "axis 1 blocks 3 of 2 member 1",
                           "axis 1 blocks 3 of 2 member 1 shape",
                           "axis 1 blocks 3 of 2 member 1 shape 4 6 ",
                           "axis 1 blocks 3 of 2 member 1 shape 4  6",
                           " axis 1 blocks 3 of 2 member 1 shape 4 6",
                           "axis 01 blocks 3 of 2 member 1 shape 4 6",
                           "axis +1 blocks 3 of 2 member 1 shape 4 6",
                           "axis 2 blocks 3 of 2 member 1 shape 4 6",
                           "axis -1 blocks 3 of 2 member 1 shape 4 6",
                           "axis 4294967297 blocks 3 of 2 member 1 shape 4 6",
                           "axis 1 blocks 0 of 2 member 1 shape 4 6",
                           "axis 1 blocks -3 of 2 member 1 shape 4 6",
                           "axis 1 blocks 4 of 2 member 1 shape 4 6",
                           "axis 1 blocks 12 of 2 member 1 shape 4 6",
                           "axis 1 blocks 3 of 1 member 0 shape 4 6",
                           "axis 1 blocks 3 of 0 member 0 shape 4 6",
                           "axis 1 blocks 3 of -2 member 1 shape 4 6",
                           "axis 1 blocks 3 of 65537 member 1 shape 4 6",
                           "axis 1 blocks 3 of 2 member 2 shape 4 6",
                           "axis 1 blocks 3 of 2 member -1 shape 4 6",
                           "axis 1 blocks 3 of 2 member 1 shape 4 -6",
                           "axis 0 blocks 1 of 2 member 1 shape 0 6",
                           "axis 0 blocks 1 of 2 member 1 shape 9223372036854775807",
                           "axis 0 blocks 1 of 2 member 1 shape 4 4611686018427387904",
                           "axis 0 blocks 1 of 2 member 1 shape 99999999999999999999",
                           "axis 1 blocks 3 of 2 member 1 shape 4 6 1 1 1 1 1 1 1",
                           "axis 0 blocks 1 of 2 member 1 shape 1048576 1048576 1048576 1048576"}) {
    EXPECT_FALSE(parsePart(text, part, shape)) << text;
    if (!*text) continue;
    write(fileOf(0), text, {4, 3}, std::vector<float>(12));
    EXPECT_EQ(problem({0}), "stage0.safetensors: tensor 'w' is a part that is none: '" + std::string(text) + "'");
  }
}

TEST_F(StageFiles, AreFoundByTheNameOfAny) {
  writeAll(rows);
  const std::vector<std::string> all = {fileOf(0), fileOf(1), fileOf(2)};
  EXPECT_EQ(memberFiles(fileOf(0)), all);
  EXPECT_EQ(memberFiles(fileOf(2)), all);
  EXPECT_EQ(memberFiles(folder.path + "/stage1.safetensors"), std::vector<std::string>());
}

TEST_F(StageFiles, OfSeveralStagesMayHaveOneTensor) {
  writeAll(rows);
  const std::string other = folder.path + "/stage1.safetensors";
  write(other, "", whole, numbers(whole));
  StoredTensors tensors;
  ASSERT_TRUE(tensors.open(std::vector{fileOf(0), fileOf(1), fileOf(2), other}));
  EXPECT_TRUE(tensors.find("w")->isDivided());
  ASSERT_TRUE(tensors.open(std::vector{other, fileOf(0), fileOf(1), fileOf(2)}));
  EXPECT_FALSE(tensors.find("w")->isDivided());
}

TEST_F(StageFiles, OfAnotherShapeThanIsWantedAreRefused) {
  writeAll(columns);
  StoredTensors tensors;
  ASSERT_TRUE(open(tensors, {0, 1}));
  std::vector<float> own(24);
  const auto read = [&](const WantedTensor& wanted) {
    return tensors.find("w")->read(wanted, std::as_writable_bytes(std::span(own))).message();
  };
  EXPECT_EQ(read({Element::f32, {4, 6}}), "");
  EXPECT_EQ(read({Element::f32, {4, 3}}),
            fileOf(0) + ": tensor 'w' has the shape [4, 6], the program needs [4, 3] of its own element type");
  EXPECT_NE(read({Element::i32, {4, 6}}), "");
  const Part other{.axis = 1, .of = 2, .wholeSize = 8};
  EXPECT_EQ(read({Element::f32, {4, 4}, {other, 0}}),
            fileOf(0) + ": tensor 'w' has the shape [4, 6], the program needs [4, 8] of its own element type");
}

/// FOLDER/stage0[.replicaR].safetensors with ranges of numbers(whole).
class RangeFiles : public testing::Test {
protected:
  std::string fileOf(int replica) const {
    return folder.path + "/stage0" + (replica > 0 ? ".replica" + std::to_string(replica) : "") + ".safetensors";
  }
  void write(int replica, const std::vector<ElementRange>& ranges, std::string metadata = {}) {
    std::vector<float> values;
    for (const ElementRange& range : ranges)
      for (std::int64_t i = 0; i < range.count; ++i) values.push_back(static_cast<float>(range.begin + i + 1));
    const TensorRecord record = {
        "w", Element::f32, {static_cast<std::int64_t>(values.size())}, std::as_bytes(std::span(values))};
    if (metadata.empty()) metadata = rangesMetadata("w", ranges, whole).second;
    ASSERT_TRUE(writeSafetensors(fileOf(replica), std::span(&record, 1), {{"ranges/w", metadata}}));
  }
  Status open(StoredTensors& tensors, int replicas) const {
    std::vector<std::string> paths;
    for (int replica = 0; replica < replicas; ++replica) paths.push_back(fileOf(replica));
    return tensors.open(paths);
  }
  std::string problem(int replicas) const {
    StoredTensors tensors;
    const Status status = open(tensors, replicas);
    EXPECT_EQ(status.code(), Exit::badData);
    EXPECT_NE(status.help(), "");
    return status.message().substr(status.message().find("tensor 'w'"));
  }
  ScratchFolder folder;
};

/// FOLDER/stage0[.replicaR][.memberM].safetensors with ranges of what a member has of numbers(whole).
class MemberRangeFiles : public testing::Test {
protected:
  std::string fileOf(int replica, int member) const {
    return folder.path + "/stage0" + (replica > 0 ? ".replica" + std::to_string(replica) : "") + memberSuffix(member) +
           ".safetensors";
  }
  void write(int replica, int member, const std::vector<ElementRange>& ranges, const Part& part = columns) {
    const std::vector<float> local = partOf(whole, {part, member});
    std::vector<float> values;
    for (const ElementRange& range : ranges)
      values.insert(values.end(), local.begin() + range.begin, local.begin() + range.begin + range.count);
    const TensorRecord record = {
        "w", Element::f32, {static_cast<std::int64_t>(values.size())}, std::as_bytes(std::span(values))};
    ASSERT_TRUE(writeSafetensors(
        fileOf(replica, member), std::span(&record, 1),
        {rangesMetadata("w", ranges, localShape(whole, columns)), partMetadata("w", {part, member}, whole)}));
  }
  void writeAll() {
    for (int member = 0; member < columns.of; ++member) {
      write(0, member, {{0, 4}, {6, 2}});
      write(1, member, {{4, 2}, {8, elements - 8}});
    }
  }
  Status open(StoredTensors& tensors) const {
    std::vector<std::string> paths;
    for (int replica : {1, 0})
      for (int member = 0; member < columns.of; ++member)
        if (std::filesystem::exists(fileOf(replica, member))) paths.push_back(fileOf(replica, member));
    return tensors.open(paths);
  }
  std::string problem() const {
    StoredTensors tensors;
    const Status status = open(tensors);
    EXPECT_EQ(status.code(), Exit::badData);
    EXPECT_NE(status.help(), "");
    return status.message().substr(status.message().find("tensor 'w'"));
  }
  const std::int64_t elements = localShape(whole, columns).elements();
  ScratchFolder folder;
};

TEST_F(MemberRangeFiles, AreOneTensorOfWhichAnyPartIsRead) {
  writeAll();
  StoredTensors tensors;
  ASSERT_TRUE(open(tensors));
  const TensorRecord& record = tensors.whole().at("w");
  EXPECT_EQ(record.shape, dims(whole));
  const std::vector<float> expected = numbers(whole);
  EXPECT_EQ(std::memcmp(record.values.data(), expected.data(), record.values.size()), 0);
  for (const Part& part : {columns, rows})
    for (int member = 0; member < part.of; ++member) {
      const std::vector<float> wanted = partOf(whole, {part, member});
      std::vector<float> own(wanted.size());
      ASSERT_TRUE(tensors.find("w")->read({Element::f32, localShape(whole, part), {part, member}},
                                          std::as_writable_bytes(std::span(own))));
      EXPECT_EQ(own, wanted);
    }
}

TEST_F(MemberRangeFiles, OfAllMembersAndReplicasAreNeeded) {
  writeAll();
  std::filesystem::remove(fileOf(1, 1));
  EXPECT_EQ(problem(), "tensor 'w' is divided over replicas, no file has its elements from 4 to 5");
  std::filesystem::remove(fileOf(0, 1));
  EXPECT_EQ(problem(), "tensor 'w' is divided over " + std::to_string(columns.of) +
                           " members, the files have 2 parts of it, none of member 1");
  writeAll();
  write(0, 1, {{0, 6}, {6, 2}});
  EXPECT_EQ(problem(), "tensor 'w' has element 4, which another file holds, too");
  write(0, 1, {{0, 4}, {6, 2}}, rows);
  EXPECT_NE(problem().find("has ranges of "), std::string::npos);
}

TEST_F(RangeFiles, AreOneTensorOfWhichAnyPartIsRead) {
  write(0, {{0, 5}, {9, 6}});
  write(1, {{5, 4}, {15, 9}});
  StoredTensors tensors;
  ASSERT_TRUE(open(tensors, 2));
  EXPECT_TRUE(tensors.find("w")->isDivided());
  const TensorRecord& record = tensors.whole().at("w");
  EXPECT_EQ(record.shape, dims(whole));
  const std::vector<float> expected = numbers(whole);
  EXPECT_EQ(std::memcmp(record.values.data(), expected.data(), record.values.size()), 0);
  for (const Part& part : {columns, rows})
    for (int member = 0; member < part.of; ++member) {
      const std::vector<float> wanted = partOf(whole, {part, member});
      std::vector<float> own(wanted.size());
      ASSERT_TRUE(tensors.find("w")->read({Element::f32, localShape(whole, part), {part, member}},
                                          std::as_writable_bytes(std::span(own))));
      EXPECT_EQ(own, wanted);
    }
}

TEST_F(RangeFiles, ThatAreNotEveryElementOnceAreRefused) {
  write(0, {{0, 5}, {9, 6}});
  write(1, {{5, 4}, {15, 9}});
  EXPECT_EQ(problem(1), "tensor 'w' is divided over replicas, no file has its elements from 5 to 8");
  write(1, {{5, 4}, {15, 8}});
  EXPECT_EQ(problem(2), "tensor 'w' is divided over replicas, no file has its elements from 23 to 23");
  write(1, {{4, 5}, {15, 9}});
  EXPECT_EQ(problem(2), "tensor 'w' has element 4, which another file holds, too");
  write(1, {{5, 4}, {15, 9}}, "shape 6 4 ranges 5+4 15+9");
  EXPECT_NE(problem(2).find("has ranges of the whole tensor [6, 4], "), std::string::npos);
  write(1, {{5, 4}, {15, 9}}, "shape 4 6 ranges 5+4 15+8");
  EXPECT_EQ(problem(2), "tensor 'w' has the shape [13], its ranges have 12 elements");
}

TEST(RangeTexts, AreReadWhereTheyAreWhatIsWritten) {
  std::vector<ElementRange> ranges;
  Shape shape;
  ASSERT_TRUE(parseRanges("shape 4 6 ranges 0+5 9+6", ranges, shape));
  EXPECT_EQ(ranges, (std::vector<ElementRange>{{0, 5}, {9, 6}}));
  for (const char* text :
       {"", "shape 4 6", "shape 4 6 ranges", "shape 4 6 ranges ", "shape 4 6 ranges 0+0", "shape 4 6 ranges 0+25",
        "shape 4 6 ranges 9+6 0+5", "shape 4 6 ranges 0+5 4+2", "shape 4 6 ranges 00+5", "shape 4 6 ranges -1+5",
        "shape 4 6 ranges 0+5x", "shape 4 6 ranges 0-5", "shape 4 -6 ranges 0+5", "shape 4  6 ranges 0+5",
        "shape 4 6 ranges 9223372036854775807+1", "shape 9223372036854775807 4 ranges 0+5", "shape ranges 0+2",
        "shape 1 1 1 1 1 1 1 1 1 1 1 1 1 ranges 0+1"})
    EXPECT_FALSE(parseRanges(text, ranges, shape)) << text;
  EXPECT_TRUE(parseRanges("shape ranges 0+1", ranges, shape)) << "a scalar";
}

bool isRead(const Manifest& manifest) {
  Manifest read;
  return parseManifest(toJson(manifest), "m", read) && read == manifest;
}

TEST(Manifests, OfShardsHaveFormat3) {
  Manifest manifest;
  manifest.replicas = {2, 1};
  manifest.members = {1, 1};
  manifest.owners = {2, 1};
  for (const Shard& shard : {Shard{ShardKind::weights, 0, 0, {}, 0}, Shard{ShardKind::weights, 0, 1, {}, 0},
                             Shard{ShardKind::optimizer, 0, 0, {}, 0}, Shard{ShardKind::optimizer, 0, 1, {}, 0},
                             Shard{ShardKind::weights, 1, 0, {}, 0}, Shard{ShardKind::optimizer, 1, 0, {}, 0}})
    manifest.shards.push_back(shard);
  EXPECT_TRUE(isRead(manifest));
  EXPECT_NE(toJson(manifest).find("\"format\": 3"), std::string::npos);
  EXPECT_EQ(fileOf(manifest.shards[1]), "stage0.replica1.safetensors");
  EXPECT_EQ(fileOf(manifest.shards[3]), "stage0.optimizer.replica1.safetensors");
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    Manifest other = manifest;
    other.shards.erase(other.shards.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_FALSE(isRead(other)) << i;
  }
  Manifest other = manifest;
  other.owners = {3, 1};
  EXPECT_FALSE(isRead(other)) << "all replicas, or one";
  other.owners = {2};
  EXPECT_FALSE(isRead(other));
}

TEST(Manifests, OfTeamsHaveFormat2) {
  Manifest manifest;
  manifest.replicas = {2, 1};
  manifest.members = {2, 1};
  manifest.owners = {1, 1};
  for (const Shard& shard : {Shard{ShardKind::weights, 0, 0, {}, 0}, Shard{ShardKind::weights, 0, 0, {}, 1},
                             Shard{ShardKind::optimizer, 0, 0, {}, 0}, Shard{ShardKind::optimizer, 0, 0, {}, 1},
                             Shard{ShardKind::state, 0, 1, {}, 0}, Shard{ShardKind::state, 0, 1, {}, 1},
                             Shard{ShardKind::weights, 1, 0, {}, 0}, Shard{ShardKind::optimizer, 1, 0, {}, 0}})
    manifest.shards.push_back(shard);
  EXPECT_TRUE(isRead(manifest));
  EXPECT_NE(toJson(manifest).find("\"format\": 2"), std::string::npos);
  EXPECT_EQ(fileOf(manifest.shards[1]), "stage0.member1.safetensors");
  EXPECT_EQ(fileOf(manifest.shards[3]), "stage0.optimizer.member1.safetensors");
  EXPECT_EQ(fileOf(manifest.shards[5]), "stage0.replica1.member1.safetensors");

  // State that is whole, or none.
  Manifest other = manifest;
  other.shards.erase(other.shards.begin() + 5);
  EXPECT_TRUE(isRead(other));
  other.shards.erase(other.shards.begin() + 4);
  EXPECT_TRUE(isRead(other));
  // One shard less or more, or another number.
  for (std::size_t i : {0, 1, 2, 3, 4, 6, 7}) {
    other = manifest;
    other.shards.erase(other.shards.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_FALSE(isRead(other)) << i;
    other = manifest;
    other.shards.insert(other.shards.begin() + static_cast<std::ptrdiff_t>(i), other.shards[i]);
    EXPECT_FALSE(isRead(other)) << i;
    other = manifest;
    other.shards[i].member += 1;
    EXPECT_FALSE(isRead(other)) << i;
  }
  for (const std::vector<int>& members : {std::vector{1, 1}, {3, 1}, {2, 2}, {2}, {2, 1, 1}, {0, 1}, {-2, 1}}) {
    other = manifest;
    other.members = members;
    EXPECT_FALSE(isRead(other));
  }
  // A run in which nothing is divided.
  other = manifest;
  other.members = {1, 1};
  std::erase_if(other.shards, [](const Shard& shard) { return shard.member > 0; });
  EXPECT_TRUE(isRead(other));
  EXPECT_NE(toJson(other).find("\"format\": 1"), std::string::npos);
  EXPECT_EQ(toJson(other).find("member"), std::string::npos);
}

} // namespace
