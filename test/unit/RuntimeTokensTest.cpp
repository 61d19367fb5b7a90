// LINK: pdcrt
// Minibatches from a token stream: windows, labels, their order on every rank, and what is refused.
#include "data/Data.h"
#include "pdcrt/Hash.h"
#include "pdcrt/Random.h"
#include "pdcrt/Training.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>

using namespace pdcrt;

namespace {

/// Two windows of three tokens of a vocabulary of 1000, and their labels; as one stage reads both, or two read one
/// each.
constexpr DataRow rows[] = {{"ids", Element::i64, {2, 3}, 0, false, 1000},
                            {"next", Element::i64, {2, 3}, 64, true, 1000}};
const Stage whole = {.index = 0, .count = 1, .data = rows};
const Stage* const stages[] = {&whole};
const Stage first = {.index = 0, .count = 2, .data = std::span(rows).first(1)};
const Stage last = {.index = 1, .count = 2, .data = std::span(rows).last(1)};
const Stage* const firstOnly[] = {&first};
const Stage* const lastOnly[] = {&last};

class Tokens : public testing::Test {
protected:
  Tokens() {
    std::string pattern = testing::TempDir() + "pdcrt-tokens-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~Tokens() override { std::filesystem::remove_all(folder); }

  /// Tokens 0, 1, 2, … from `begin` on, as raw integers of type T.
  template <class T>
  std::string raw(const std::string& name, int count, int begin = 0) {
    std::vector<T> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(static_cast<T>(begin + i));
    std::ofstream(folder + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(tokens.size() * sizeof(T)));
    return folder + "/" + name;
  }
  template <class T>
  std::string array(const std::string& name, Element element, const std::vector<std::int64_t>& shape,
                    const std::vector<T>& values) {
    const std::string path = folder + "/" + name;
    Status status = writeNpy(path, element, shape, std::as_bytes(std::span(values)));
    EXPECT_TRUE(status) << status.message();
    return path;
  }
  static std::vector<std::int64_t> read(DataSet& data, const DataRow& row, std::int64_t minibatch) {
    std::vector<std::int64_t> values(6);
    const Status status = data.read(row, minibatch, reinterpret_cast<std::byte*>(values.data()));
    EXPECT_TRUE(status) << status.message();
    return values;
  }
  /// "message|help", without the folder.
  std::string failureOf(const DataOptions& options, std::span<const Stage* const> read = stages) {
    DataSet data;
    const Status status = data.open(options, read);
    std::string text = status.message() + "|" + status.help();
    for (std::size_t at; (at = text.find(folder + "/")) != std::string::npos;) text.erase(at, folder.size() + 1);
    return text;
  }

  std::string folder;
};

using Ids = std::vector<std::int64_t>;

TEST_F(Tokens, AreWindowsWhoseLabelsAreTheNextTokens) {
  const Ids ids = {0, 1, 2, 3, 4, 5}, next = {1, 2, 3, 4, 5, 6};
  for (const auto& [path, type] : {std::pair(raw<std::uint16_t>("a.bin", 15), std::optional<Element>()),
                                   std::pair(raw<std::uint32_t>("b.bin", 15), std::optional(Element::u32)),
                                   std::pair(raw<std::uint8_t>("c.txt", 15), std::optional(Element::u8))}) {
    DataSet data;
    const Status status = data.open({.path = path, .batch = 2, .shuffle = false, .tokenType = type}, stages);
    ASSERT_TRUE(status) << status.message();
    EXPECT_EQ(data.samples(), 4) << "the last window would lack a label";
    EXPECT_EQ(data.minibatchesPerEpoch(), 2);
    EXPECT_EQ(read(data, rows[0], 0), ids);
    EXPECT_EQ(read(data, rows[1], 0), next);
    EXPECT_EQ(read(data, rows[0], 1), (Ids{6, 7, 8, 9, 10, 11}));
  }
}

TEST_F(Tokens, OfArraysHaveTheTypeOfTheArray) {
  for (const auto& path : {array("a.npy", Element::u16, {13}, std::vector<std::uint16_t>(13, 7)),
                           array("b.npy", Element::u32, {13}, std::vector<std::uint32_t>(13, 7)),
                           array("c.npy", Element::i64, {13}, std::vector<std::int64_t>(13, 7))}) {
    DataSet data;
    ASSERT_TRUE(data.open({.path = path, .batch = 2}, stages)) << path;
    EXPECT_EQ(data.samples(), 4);
    EXPECT_EQ(read(data, rows[0], 0), Ids(6, 7));
  }
}

TEST_F(Tokens, OfOneMoreWindowWithoutAShift) {
  DataSet data;
  ASSERT_TRUE(
      data.open({.path = raw<std::uint16_t>("a.bin", 15), .batch = 2, .shuffle = false, .labelShift = 0}, stages));
  EXPECT_EQ(data.samples(), 5);
  EXPECT_EQ(read(data, rows[1], 0), (Ids{0, 1, 2, 3, 4, 5}));
}

// Every rank opens the stream for its own stages: they must see the same samples in the same order, in every epoch, and
// from any minibatch on, as after a resumption.
TEST_F(Tokens, AreTheSameSamplesOnEveryRank) {
  const std::string path = raw<std::uint16_t>("a.bin", 3 * 7 + 1);
  const DataOptions options = {.path = path, .batch = 2, .seed = 9};
  DataSet one, input, label, later;
  ASSERT_TRUE(one.open(options, stages));
  ASSERT_TRUE(input.open(options, firstOnly));
  ASSERT_TRUE(label.open(options, lastOnly));
  ASSERT_TRUE(later.open(options, stages));
  EXPECT_EQ(input.samples(), 7);
  EXPECT_EQ(label.samples(), 7);
  std::set<Ids> orders;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<std::int64_t> order = permutation(9, static_cast<std::uint64_t>(epoch), 7);
    Ids seen;
    for (std::int64_t k = 0; k < 3; ++k) {
      const Ids ids = read(one, rows[0], 3 * epoch + k), next = read(one, rows[1], 3 * epoch + k);
      for (std::size_t i = 0; i < 6; ++i) {
        const std::int64_t window = order[static_cast<std::size_t>(2 * k) + i / 3];
        EXPECT_EQ(ids[i], 3 * window + static_cast<std::int64_t>(i % 3));
        EXPECT_EQ(next[i], ids[i] + 1);
      }
      EXPECT_EQ(read(input, rows[0], 3 * epoch + k), ids);
      EXPECT_EQ(read(label, rows[1], 3 * epoch + k), next);
      if (epoch == 2) {
        EXPECT_EQ(read(later, rows[0], 3 * epoch + k), ids);
      }
      seen.insert(seen.end(), ids.begin(), ids.end());
    }
    orders.insert(seen);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST_F(Tokens, OfAnEvaluationComeInOrderAndFillTheLastMinibatch) {
  DataSet data;
  ASSERT_TRUE(data.open({.path = raw<std::uint16_t>("a.bin", 10), .batch = 2, .seed = 9, .evaluation = true}, stages));
  EXPECT_EQ(data.minibatchesPerEpoch(), 2);
  EXPECT_EQ(read(data, rows[0], 0), (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read(data, rows[0], 1), (Ids{6, 7, 8, 6, 7, 8}));
}

// Time on the first axis.
TEST_F(Tokens, LieAlongTheAxisOfTheInput) {
  static constexpr DataRow turned[] = {{"ids", Element::i64, {3, 2}, 0, false, 1000},
                                       {"next", Element::i32, {2, 3}, 64, true, 1000}};
  static const Stage stage = {.index = 0, .count = 1, .data = turned};
  static const Stage* const turnedStages[] = {&stage};
  DataSet data;
  ASSERT_TRUE(
      data.open({.path = raw<std::uint16_t>("a.bin", 13), .batch = 2, .batchAxes = {{"ids", 1}}, .shuffle = false},
                turnedStages));
  EXPECT_EQ(read(data, turned[0], 0), (Ids{0, 3, 1, 4, 2, 5}));
  std::int32_t labels[6];
  ASSERT_TRUE(data.read(turned[1], 0, reinterpret_cast<std::byte*>(labels)));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(labels[i], i + 1);
}

TEST_F(Tokens, BeyondTheVocabularyAreRefused) {
  EXPECT_EQ(
      failureOf({.path = raw<std::uint16_t>("a.bin", 15, 990), .batch = 2}),
      "a.bin: token 10 is 1000, the model has 1000 rows to choose from|tokenise with the model's vocabulary; if the "
      "file does not hold uint16 tokens, name its type with --tokens=uint8, uint16 or uint32");
  EXPECT_EQ(failureOf({.path = array("a.npy", Element::i32, {7}, std::vector<std::int32_t>{0, 1, 2, -1, 4, 5, 6}),
                       .batch = 2}),
            "a.npy: token 3 is -1, the model has 1000 rows to choose from|tokenise with the model's vocabulary");
  // A stream is not read in advance as a whole.
  const int much = 3 * ((1 << 20) / 3 + 11); // an even number of windows
  std::vector<std::uint16_t> tokens(static_cast<std::size_t>(much + 1), 5);
  tokens[static_cast<std::size_t>(much) - 2] = 1000;
  DataSet data;
  ASSERT_TRUE(
      data.open({.path = array("b.npy", Element::u16, {much + 1}, tokens), .batch = 2, .shuffle = false}, stages));
  std::int64_t ids[6];
  EXPECT_TRUE(data.read(rows[0], 0, reinterpret_cast<std::byte*>(ids)));
  EXPECT_EQ(data.read(rows[0], data.minibatchesPerEpoch() - 1, reinterpret_cast<std::byte*>(ids)).message(),
            folder + "/b.npy: token " + std::to_string(much - 2) + " is 1000, the model has 1000 rows to choose from");
}

TEST_F(Tokens, OfAnotherTypeAreRefused) {
  raw<std::uint8_t>("odd.bin", 15);
  EXPECT_EQ(failureOf({.path = folder + "/odd.bin", .batch = 2}),
            "odd.bin: has 15 bytes, which is not a whole number of uint16 tokens of 2 bytes|name its type with "
            "--tokens=uint8, uint16 or uint32, or write it as x.astype(np.uint16).tofile('odd.bin')");
  EXPECT_EQ(failureOf({.path = raw<std::uint8_t>("a.txt", 15), .batch = 2}),
            "a.txt: its name does not tell the type of its tokens|say it with --tokens=uint8, uint16 or uint32 (uint8: "
            "the bytes of a text), or give a folder of .npy files");
  const std::string wide = raw<std::uint32_t>("wide.bin", 64);
  EXPECT_EQ(failureOf({.path = wide, .batch = 2}),
            "wide.bin: every second token is 0, as where uint32 tokens are read as uint16|name the type with "
            "--tokens=uint32; if it is uint16 indeed, with --tokens=uint16");
  EXPECT_EQ(failureOf({.path = wide, .batch = 2, .tokenType = Element::u16}), "|");
  EXPECT_EQ(failureOf({.path = array("f.npy", Element::f32, {13}, std::vector<float>(13)), .batch = 2}),
            "f.npy: holds no integers, tokens are uint16 or uint32|write it as np.save('f.npy', x.astype(np.uint16))");
  EXPECT_EQ(failureOf({.path = array("rows.npy", Element::u16, {2, 7}, std::vector<std::uint16_t>(14)), .batch = 2}),
            "rows.npy: has the shape [2, 7], a token stream has one dimension|write it as np.save('rows.npy', "
            "x.reshape(-1)), or give a folder with one .npy file per input");
  EXPECT_EQ(failureOf({.path = array("u.npy", Element::u16, {13}, std::vector<std::uint16_t>(13)),
                       .batch = 2,
                       .tokenType = Element::u32}),
            "u.npy: has tokens of uint16, --tokens says uint32|leave out --tokens: a .npy file names its type");
  EXPECT_EQ(failureOf({.path = folder + "/none.bin", .batch = 2}).substr(0, 26), "none.bin: cannot be read: ");
  static constexpr DataRow many[] = {{"ids", Element::i64, {2, 3}, 0, false, 100000}};
  static const Stage stage = {.index = 0, .count = 1, .data = many};
  static const Stage* const manyStages[] = {&stage};
  EXPECT_EQ(failureOf({.path = raw<std::uint16_t>("a.bin", 15, 1), .batch = 2}, manyStages),
            "a.bin: is read as uint16 tokens, the model has 100000 rows to choose from|name the type with "
            "--tokens=uint32; if it is uint16 indeed, with --tokens=uint16");
}

TEST_F(Tokens, TooFewForAMinibatchAreRefused) {
  const std::string path = raw<std::uint16_t>("a.bin", 6);
  EXPECT_EQ(failureOf({.path = path, .batch = 2}),
            "a.bin: has 6 tokens, which make 1 windows of 3; a minibatch of 2 takes 7 tokens|give a longer stream, or "
            "compile with a smaller --batch or sequence length (--dim NAME=V)");
  EXPECT_EQ(failureOf({.path = path, .batch = 2, .evaluation = true}), "|");
  EXPECT_EQ(failureOf({.path = raw<std::uint16_t>("b.bin", 3), .batch = 2, .evaluation = true}).substr(0, 84),
            "b.bin: has 3 tokens, which make 0 windows of 3; an evaluation takes 4 tokens|give a ");
  EXPECT_EQ(failureOf({.path = raw<std::uint16_t>("c.bin", 0), .batch = 2}).substr(0, 46),
            "c.bin: has 0 tokens, which make 0 windows of 3");
}

TEST_F(Tokens, FillOneInputOfIntegers) {
  const std::string path = raw<std::uint16_t>("a.bin", 50, 1);
  const auto failure = [&](std::initializer_list<DataRow> read, std::map<std::string, int> axes = {}) {
    const std::vector<DataRow> kept(read);
    const Stage stage = {.index = 0, .count = 1, .data = kept};
    const Stage* const theStages[] = {&stage};
    return failureOf({.path = path, .batch = 2, .batchAxes = std::move(axes)}, theStages);
  };
  const DataRow mask = {"mask", Element::i64, {2, 3}, 0, false, 0},
                image = {"image", Element::f32, {2, 3}, 0, false, 0};
  EXPECT_EQ(failure({mask, rows[0]}),
            "a.bin: the model reads 'mask' and 'ids', a token stream fills one input|make the others constants when "
            "compiling: pdc --bind attention_mask=1, pdc --bind position_ids=FILE.npy; or give a folder of .npy files "
            "(docs/Data.md)");
  EXPECT_EQ(failure({rows[0], rows[0]}), "|") << "two stages of a rank read it";
  EXPECT_EQ(failure({image}), "a.bin: input 'image' does not take integers, a token stream has no other numbers|give a "
                              "folder with one .npy file per input and label (docs/Data.md)");
  EXPECT_EQ(failure({mask}, {{"mask", noBatchAxis}}),
            "a.bin: input 'mask' has no samples, a token stream fills samples|make it a constant when compiling: pdc "
            "--bind mask=FILE.npy");
  EXPECT_EQ(
      failure({rows[0], {"class", Element::i64, {2}, 64, true, 4}}),
      "a.bin: label 'class' has a number for each sample, a token stream has one for each token|a token stream is "
      "for language models; for others, give a folder with one .npy file per input and label (docs/Data.md)");
  EXPECT_EQ(
      failure({rows[0], {"class", Element::i64, {2, 2}, 64, true, 4}}),
      "a.bin: label 'class' has 2 integers per sample, another input 3|a token stream has a label for every token "
      "of the input: give a folder with one .npy file per input and label (docs/Data.md)");
}

// A model that shifts its labels itself has them as an input like others.
TEST_F(Tokens, AreLabelsOfModelsThatShiftThem) {
  static constexpr DataRow both[] = {rows[0], {"labels", Element::i64, {2, 3}, 64, false, 0}};
  static const Stage stage = {.index = 0, .count = 1, .data = both};
  static const Stage* const bothStages[] = {&stage};
  DataOptions options = {.path = raw<std::uint16_t>("a.bin", 15), .batch = 2, .shuffle = false};
  EXPECT_EQ(failureOf(options, bothStages),
            "a.bin: the model computes with its label 'labels', as models that shift their labels themselves|if it "
            "shifts them, give --label-shift=0; else give a folder with one .npy file per input and label "
            "(docs/Data.md)");
  options.labelShift = 0;
  DataSet data;
  ASSERT_TRUE(data.open(options, bothStages));
  EXPECT_EQ(read(data, both[0], 1), (Ids{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(read(data, both[1], 1), (Ids{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(data.windows().input, hashOf("ids"));
}

// The file is sparse: 48 GiB, of which the last tokens are not 0.
TEST_F(Tokens, OfAStreamOf48GibibytesAreRead) {
  const std::string path = folder + "/large.npy";
  constexpr std::int64_t windows = std::int64_t{1} << 33, tokens = 3 * windows + 1;
  std::string header = "\x93NUMPY\x01";
  header.append({'\0', '\x76', '\0'});
  header += "{'descr': '<u2', 'fortran_order': False, 'shape': (" + std::to_string(tokens) + ",), }";
  header.resize(127, ' ');
  header += '\n';
  std::ofstream(path, std::ios::binary) << header;
  std::error_code error;
  std::filesystem::resize_file(path, 128 + 2 * tokens, error);
  if (error) GTEST_SKIP() << "the file system holds no sparse file of 48 GiB";
  const std::uint16_t end[] = {1, 2, 3, 4};
  std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
  out.seekp(128 + 2 * (tokens - 4)).write(reinterpret_cast<const char*>(end), sizeof end);
  out.close();
  DataSet data;
  const Status status = data.open({.path = path, .batch = 2, .shuffle = false}, stages);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(data.samples(), windows);
  EXPECT_EQ(read(data, rows[0], windows / 2 - 1), (Ids{0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(read(data, rows[1], windows / 2 - 1), (Ids{0, 0, 1, 2, 3, 4}));
}

TEST_F(Tokens, ThatAreWrittenToMeanwhileAreRefused) {
  const std::string path = raw<std::uint16_t>("a.bin", 15);
  DataSet data;
  ASSERT_TRUE(data.open({.path = path, .batch = 2}, stages));
  raw<std::uint16_t>("a.bin", 16);
  std::int64_t ids[6];
  EXPECT_NE(data.read(rows[0], 0, reinterpret_cast<std::byte*>(ids)).message().find("has been written to"),
            std::string::npos);
}

TEST_F(Tokens, InAFolderAreNamed) {
  raw<std::uint16_t>("train.bin", 15);
  raw<std::uint16_t>("val.bin", 15);
  const std::string failure = failureOf({.path = folder, .batch = 2});
  EXPECT_NE(failure.find("ids.npy: cannot be read"), std::string::npos) << failure;
  EXPECT_NE(failure.find("|a token stream is given by its file: --data=train.bin, val.bin"), std::string::npos)
      << failure;
}

} // namespace
