// LINK: pdcrt_base
// .npy files: what is written is what NumPy writes, and nothing hostile in a header gets further than a message.
#include "pdcrt/Npy.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace pdcrt;

namespace {

std::string temporary(const char* name) {
  return testing::TempDir() + "npy-test-" + name + ".npy";
}

void writeBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A file of version 1 with this dictionary, and `values` bytes of zeros.
std::string file(const std::string& dictionary, std::size_t values) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(dictionary.size() & 0xFF);
  bytes += static_cast<char>(dictionary.size() >> 8);
  return bytes + dictionary + std::string(values, '\0');
}

TEST(Npy, WritesWhatNumpyWrites) {
  const std::string path = temporary("written");
  const std::int64_t shape[] = {2, 3};
  const std::int32_t values[] = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(writeNpy(path, Element::i32, shape, std::as_bytes(std::span(values))));
  std::string bytes;
  ASSERT_TRUE(readText(path, bytes));
  // numpy.save(path, numpy.arange(1, 7, dtype='i4').reshape(2, 3))
  std::string expected =
      std::string("\x93NUMPY\x01\x00\x76\x00", 10) + "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }";
  expected += std::string(127 - expected.size(), ' ') + "\n";
  EXPECT_EQ(bytes.substr(0, 128), expected);
  EXPECT_EQ(std::memcmp(bytes.data() + 128, values, sizeof values), 0);
}

TEST(Npy, ReadsWhatItWrites) {
  const std::string path = temporary("read");
  for (Element element : {Element::f64, Element::f32, Element::f16, Element::i64, Element::i32, Element::i16,
                          Element::i8, Element::u64, Element::u32, Element::u16, Element::u8, Element::boolean})
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {4}, {2, 0, 3}, {2, 3, 4}}) {
      std::size_t bytes = bytesOf(element);
      for (std::int64_t dim : shape) bytes *= static_cast<std::size_t>(dim);
      std::vector<std::byte> values(bytes);
      for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 7);
      ASSERT_TRUE(writeNpy(path, element, shape, values));
      NpyFile read;
      Status status = read.open(path);
      ASSERT_TRUE(status) << status.message();
      EXPECT_EQ(read.element(), element);
      EXPECT_EQ(read.shape(), shape);
      EXPECT_TRUE(std::equal(values.begin(), values.end(), read.values().begin(), read.values().end()));
    }
}

TEST(Npy, RefusesWhatItCannotRead) {
  const std::string path = temporary("bad");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is not a .npy file"},
      {"PK\x03\x04 a zip archive", "is not a .npy file"},
      {std::string("\x93NUMPY\x04\x00\x10\x00", 10), "has format version 4, known are 1 to 3"},
      {std::string("\x93NUMPY\x01\x00\xFF\x00", 10), "ends inside its header"},
      {file("{'descr': '<f4', 'shape': (2,), }", 8), "has a header without"},
      {file("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8), "has the element type '>f4'"},
      {file("{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", 16), "has the element type '<c8'"},
      {file("{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", 8), "is in Fortran order"},
      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", 8), "has no readable shape"},
      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (2", 8), "has no readable shape"},
      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 8),
       "holds 8 bytes of values, its shape [3] needs 12"},
      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", 8),
       "needs more than can be addressed"},
  };
  for (const auto& [bytes, message] : cases) {
    writeBytes(path, bytes);
    NpyFile read;
    Status status = read.open(path);
    EXPECT_FALSE(status);
    EXPECT_EQ(status.code(), Exit::badData);
    EXPECT_NE(status.message().find(path + ": "), std::string::npos);
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }
}

TEST(Npy, RefusesEveryTruncation) {
  const std::string path = temporary("cut");
  const std::int64_t shape[] = {5};
  const float values[5] = {1, 2, 3, 4, 5};
  ASSERT_TRUE(writeNpy(path, Element::f32, shape, std::as_bytes(std::span(values))));
  std::string bytes;
  ASSERT_TRUE(readText(path, bytes));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    writeBytes(path, bytes.substr(0, length));
    NpyFile read;
    EXPECT_FALSE(read.open(path)) << length;
  }
}

TEST(Npy, SaysWhyAFileCannotBeOpened) {
  NpyFile read;
  Status status = read.open("/no/such/file.npy");
  EXPECT_EQ(status.message(), "/no/such/file.npy: cannot be read: No such file or directory");
  status = read.open(testing::TempDir());
  EXPECT_NE(status.message().find("is not a regular file"), std::string::npos);
}

TEST(Npy, LeavesTheOldFileWhereItCannotWrite) {
  const std::int64_t shape[] = {1};
  const float value[] = {1};
  Status status = writeNpy("/no/such/folder/x.npy", Element::f32, shape, std::as_bytes(std::span(value)));
  EXPECT_EQ(status.code(), Exit::cannotWrite);
  EXPECT_NE(status.message().find("/no/such/folder/x.npy: cannot be written"), std::string::npos);
}

/// Looks at a file that becomes shorter meanwhile: one page of two is left.
void readWhatIsLost(const std::string& path) {
  writeBytes(path, std::string(8192, 'x'));
  MappedFile other, file;
  ASSERT_TRUE(file.open(path, Exit::invalid));
  writeBytes(path + "2", std::string(8192, 'y'));
  ASSERT_TRUE(other.open(path + "2"));
  lastWords = [](int code) { static_cast<void>(::write(2, code == 1 ? "one" : "?", code == 1 ? 3 : 1)); };
  ASSERT_EQ(::truncate(path.c_str(), 4096), 0);
  volatile std::byte last = file.bytes()[4095];
  last = file.bytes()[4096];
  static_cast<void>(last);
}

TEST(MappedFiles, WhoseBytesAreLostAreNamed) {
  EXPECT_EXIT(readWhatIsLost(temporary("lost")), testing::ExitedWithCode(1),
              "error: .*lost.npy: has become shorter, or its disk has failed, while it was being read\nhelp: .*\none$");
}

/// A fault that is none of a mapped file's.
void readWhatIsNobodys() {
  MappedFile file;
  writeBytes(temporary("whole"), "x");
  ASSERT_TRUE(file.open(temporary("whole")));
  std::raise(SIGBUS);
}

TEST(MappedFiles, LeaveOtherFaultsAlone) {
  EXPECT_DEATH(readWhatIsNobodys(), "");
}

} // namespace
