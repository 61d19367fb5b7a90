// LINK: pdcrt_base
// safetensors files: the bytes of the format's definition, and headers that lie.
#include "pdcrt/Safetensors.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

std::string temporary(const char* name) {
  return testing::TempDir() + "safetensors-test-" + name;
}

std::string file(const std::string& header, std::size_t values) {
  std::string bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i));
  return bytes + header + std::string(values, '\1');
}

void writeBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Safetensors, ReadsAFileWrittenByHand) {
  const std::string path = temporary("by-hand");
  std::string bytes = file(R"({"__metadata__":{"step":"7"},"b":{"dtype":"I64","shape":[],"data_offsets":[8,16]},)"
                           R"("a/weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})",
                           0);
  const float a[] = {1.5f, -2};
  const std::int64_t b = 42;
  bytes.append(reinterpret_cast<const char*>(a), 8).append(reinterpret_cast<const char*>(&b), 8);
  writeBytes(path, bytes);
  SafetensorsFile read;
  Status status = read.open(path);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(read.metadata().at("step"), "7");
  ASSERT_TRUE(read.find("a/weight"));
  EXPECT_EQ(read.find("a/weight")->shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(std::memcmp(read.find("a/weight")->values.data(), a, 8), 0);
  EXPECT_EQ(read.find("b")->element, Element::i64);
  EXPECT_TRUE(read.find("b")->shape.empty());
  EXPECT_EQ(std::memcmp(read.find("b")->values.data(), &b, 8), 0);
  EXPECT_FALSE(read.find("c"));
}

TEST(Safetensors, ReadsWhatItWritesAndAlignsIt) {
  const std::string path = temporary("written");
  const std::uint8_t bytes[3] = {1, 2, 3};
  const float floats[3] = {1, 2, 3};
  const double doubles[1] = {4};
  const std::uint16_t words[2] = {1, 0xFFFF};
  const TensorRecord records[] = {{"u", Element::u8, {3}, std::as_bytes(std::span(bytes))},
                                  {"f", Element::f32, {3, 1}, std::as_bytes(std::span(floats))},
                                  {"d", Element::f64, {}, std::as_bytes(std::span(doubles))},
                                  {"w", Element::u16, {2}, std::as_bytes(std::span(words))},
                                  {"s", Element::i16, {2}, std::as_bytes(std::span(words))},
                                  {"l", Element::u32, {1}, std::as_bytes(std::span(words))},
                                  {"q", Element::u64, {1}, std::as_bytes(std::span(doubles))},
                                  {"empty", Element::f32, {0, 4}, {}}};
  ASSERT_TRUE(writeSafetensors(path, records, {{"format", "pt"}}));
  SafetensorsFile read;
  Status status = read.open(path);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(read.tensors().size(), std::size(records));
  EXPECT_EQ(read.metadata().at("format"), "pt");
  for (const TensorRecord& record : records) {
    const TensorRecord* found = read.find(record.name);
    ASSERT_TRUE(found) << record.name;
    EXPECT_EQ(found->element, record.element);
    EXPECT_EQ(found->shape, record.shape);
    ASSERT_EQ(found->values.size(), record.values.size());
    EXPECT_TRUE(std::equal(record.values.begin(), record.values.end(), found->values.begin()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found->values.data()) % bytesOf(record.element), 0u);
  }
}

TEST(Safetensors, RefusesHeadersThatLie) {
  const std::string path = temporary("bad");
  auto tensor = [](const std::string& entry) { return file("{\"w\":" + entry + "}", 16); };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is not a safetensors file: it has 0 bytes"},
      {std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10),
       "says its header has 18446744073709551615 bytes, the file has 10"},
      {file("[]", 0), "has a header that is not a JSON object"},
      {file("{\"w\":", 0), "has a header that is not a JSON object"},
      {tensor("3"), "tensor 'w' needs 'dtype', 'shape' and 'data_offsets'"},
      {tensor(R"({"dtype":"F31","shape":[4],"data_offsets":[0,16]})"), "tensor 'w' has the unknown type \"F31\""},
      {tensor(R"({"dtype":"F32","shape":4,"data_offsets":[0,16]})"), "has a shape that is not a list"},
      {tensor(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"), "has the shape [-4], which is not one"},
      {tensor(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]})"), "which is not one"},
      {tensor(R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})"), "lies at bytes [0,20], the file has 16"},
      {tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"), "has 16 bytes, its type and shape need 12"},
      {tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})"), "lies at bytes [16,0]"},
      {tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[0,1e3]})"), "'data_offsets' that are not two numbers"},
      {file(
           R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})",
           16),
       "tensors 'a' and 'b' overlap"},
      {file(
           R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
           16),
       "tensor 'a' appears twice"},
      {file(" {}", 0), "has a header that is not a JSON object"},
      {file("", 0), "has a header that is not a JSON object"},
      {file("{" + std::string(100'000'000, ' ') + "}", 0),
       "has 100000002 bytes, a safetensors file has at most 100000000"},
      {file(R"({"__metadata__":{"step":7}})", 0), "has metadata 'step' that is not a string"},
  };
  for (const auto& [bytes, message] : cases) {
    writeBytes(path, bytes);
    SafetensorsFile read;
    Status status = read.open(path);
    EXPECT_FALSE(status);
    EXPECT_EQ(status.code(), Exit::badData);
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string path = temporary("cut");
  const float values[4] = {1, 2, 3, 4};
  const TensorRecord record = {"w", Element::f32, {4}, std::as_bytes(std::span(values))};
  ASSERT_TRUE(writeSafetensors(path, std::span(&record, 1)));
  std::string bytes;
  ASSERT_TRUE(readText(path, bytes));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    writeBytes(path, bytes.substr(0, length));
    SafetensorsFile read;
    EXPECT_FALSE(read.open(path)) << length;
  }
}

TEST(Safetensors, ValuesAreAskedForOneAfterTheOther) {
  const std::string path = temporary("given.safetensors"), whole = temporary("whole.safetensors");
  const std::vector<float> floats = {1, 2, 3};
  const std::vector<std::int8_t> bytes = {4, 5};
  std::vector<TensorRecord> records = {{"b", Element::i8, {2}, {}}, {"f", Element::f32, {3}, {}}};
  std::vector<std::byte> room;
  std::vector<std::size_t> asked;
  const auto give = [&](std::size_t i, std::span<const std::byte>& values) {
    asked.push_back(i);
    const auto from = i == 0 ? std::as_bytes(std::span(bytes)) : std::as_bytes(std::span(floats));
    room.assign(from.begin(), from.end()); // where the last ones were
    values = room;
    return Status();
  };
  ASSERT_TRUE(writeSafetensors(path, records, give));
  EXPECT_EQ(asked, (std::vector<std::size_t>{1, 0})) << "the widest elements come first";
  records[0].values = std::as_bytes(std::span(bytes)), records[1].values = std::as_bytes(std::span(floats));
  ASSERT_TRUE(writeSafetensors(whole, records));
  std::string given, written;
  ASSERT_TRUE(readText(path, given));
  ASSERT_TRUE(readText(whole, written));
  EXPECT_EQ(given, written);
}

TEST(Safetensors, WhatCannotBeGivenLeavesTheFileThatWasThere) {
  const std::string path = temporary("kept.safetensors");
  const std::vector<float> floats = {1, 2, 3};
  const TensorRecord record{"f", Element::f32, {3}, std::as_bytes(std::span(floats))};
  ASSERT_TRUE(writeSafetensors(path, std::span(&record, 1)));
  std::string before, after;
  ASSERT_TRUE(readText(path, before));
  const Status status = writeSafetensors(path, std::span(&record, 1), [](std::size_t, std::span<const std::byte>&) {
    return Status(Exit::badData, "it has moved");
  });
  EXPECT_EQ(status.message(), "it has moved");
  ASSERT_TRUE(readText(path, after));
  EXPECT_EQ(before, after);
}

TEST(Safetensors, RefusesToWriteWhatDoesNotFit) {
  const float values[4] = {};
  const TensorRecord wrong = {"w", Element::f32, {5}, std::as_bytes(std::span(values))};
  EXPECT_EQ(writeSafetensors(temporary("never"), std::span(&wrong, 1)).code(), Exit::cannotWrite);
  const TensorRecord right = {"w", Element::f32, {4}, std::as_bytes(std::span(values))};
  const TensorRecord twice[] = {right, right};
  EXPECT_NE(writeSafetensors(temporary("never"), twice).message().find("'w' appears twice"), std::string::npos);
  EXPECT_FALSE(std::ifstream(temporary("never")).good());
}

} // namespace

/// Memory of this process that files fill, in bytes.
static std::int64_t bytesOfFiles() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssFile:")) return 1024 * std::stoll(line.substr(8));
  return -1;
}

// Weights are copied out of their file; a process must not hold both.
TEST(Safetensors, WhatIsCopiedOutTakesNoMemoryAndCanBeReadAgain) {
  constexpr std::size_t megabyte = 1 << 20;
  std::vector<std::byte> values(64 * megabyte, std::byte{7});
  const std::string path = temporary("forget");
  ASSERT_TRUE(writeSafetensors(path, std::vector<TensorRecord>{{"w", Element::f32, {16 * megabyte}, values}}));
  SafetensorsFile file;
  ASSERT_TRUE(file.open(path));
  const TensorRecord* record = file.find("w");
  auto isWhole = [&] { return std::equal(values.begin(), values.end(), record->values.begin()); };
  std::vector<std::byte> copy(values.size());
  const std::int64_t before = bytesOfFiles();
  if (before < 0) GTEST_SKIP() << "this kernel does not say what files take";
  EXPECT_TRUE(isWhole());
  EXPECT_GT(bytesOfFiles() - before, static_cast<std::int64_t>(60 * megabyte));
  file.copyOut(*record, copy.data());
  EXPECT_LT(bytesOfFiles() - before, static_cast<std::int64_t>(4 * megabyte));
  EXPECT_EQ(copy, values);
  EXPECT_TRUE(isWhole());
}
