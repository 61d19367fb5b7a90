// LINK: pdcrt
// Minibatches from .npy files: order of samples, conversions, normalisation, labels.
#include "data/Data.h"
#include "data/Evaluation.h"
#include "pdcrt/Random.h"
#include "pdcrt/Training.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

/// A stage that reads images and labels: what a data set is opened for.
constexpr DataRow rows[] = {{"image", Element::f32, {2, 3, 2}, 0, false, 0}, {"label", Element::i64, {2}, 64, true, 4}};
const Stage stage = {.index = 0, .count = 1, .data = rows};
const Stage* const stages[] = {&stage};

class Data : public testing::Test {
protected:
  Data() {
    std::string pattern = testing::TempDir() + "pdcrt-data-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~Data() override { std::filesystem::remove_all(folder); }

  template <class T>
  void write(const std::string& name, Element element, const std::vector<std::int64_t>& shape,
             const std::vector<T>& values) {
    Status status = writeNpy(folder + "/" + name + ".npy", element, shape, std::as_bytes(std::span(values)));
    ASSERT_TRUE(status) << status.message();
  }
  /// `count` images of bytes, whose values tell sample and place, and labels sample mod 4.
  void writeSamples(std::int64_t count) {
    std::vector<std::uint8_t> images;
    std::vector<std::int32_t> labels;
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < 6; ++j) images.push_back(static_cast<std::uint8_t>(i * 10 + j));
      labels.push_back(static_cast<std::int32_t>(i % 4));
    }
    write("image", Element::u8, {count, 3, 2}, images);
    write("label", Element::i32, {count}, labels);
  }
  /// The samples of a minibatch, by the first value of their images.
  std::vector<int> samplesOf(DataSet& data, std::int64_t minibatch) {
    float images[12];
    std::int64_t labels[2];
    EXPECT_TRUE(data.read(rows[0], minibatch, reinterpret_cast<std::byte*>(images)));
    EXPECT_TRUE(data.read(rows[1], minibatch, reinterpret_cast<std::byte*>(labels)));
    std::vector<int> samples;
    for (int i = 0; i < 2; ++i) {
      samples.push_back(static_cast<int>(images[i * 6]) / 10);
      EXPECT_EQ(labels[i], samples.back() % 4);
      for (int j = 0; j < 6; ++j) EXPECT_EQ(images[i * 6 + j], samples.back() * 10 + j);
    }
    return samples;
  }

  std::string folder;
};

TEST_F(Data, ComesInFileOrderWithoutShuffling) {
  writeSamples(5);
  DataSet data;
  ASSERT_TRUE(data.open({.path = folder, .batch = 2, .shuffle = false}, stages));
  EXPECT_EQ(data.samples(), 5);
  EXPECT_EQ(data.minibatchesPerEpoch(), 2);
  EXPECT_EQ(samplesOf(data, 0), (std::vector<int>{0, 1}));
  EXPECT_EQ(samplesOf(data, 1), (std::vector<int>{2, 3}));
  EXPECT_EQ(samplesOf(data, 2), (std::vector<int>{0, 1})); // sample 4 is left out of every epoch
}

TEST_F(Data, ThatIsWrittenToMeanwhileIsRefused) {
  writeSamples(5);
  const std::string file = folder + "/image.npy";
  DataSet data;
  ASSERT_TRUE(data.open({.path = folder, .batch = 2, .shuffle = false}, stages));
  // Another file of that name is another matter.
  std::filesystem::copy_file(file, folder + "/copy");
  std::filesystem::rename(folder + "/copy", file);
  EXPECT_EQ(samplesOf(data, 0), (std::vector<int>{0, 1}));
  std::filesystem::remove(file);
  EXPECT_EQ(samplesOf(data, 1), (std::vector<int>{2, 3}));

  std::byte labels[16];
  std::filesystem::last_write_time(folder + "/label.npy",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  Status status = data.read(rows[1], 0, labels);
  EXPECT_EQ(status.code(), Exit::badData);
  EXPECT_NE(
      status.message().find("label.npy: has been written to while it was being read: it has 148 bytes, and had 148"),
      std::string::npos)
      << status.message();
  std::filesystem::resize_file(folder + "/label.npy", 140);
  status = data.read(rows[1], 0, labels);
  EXPECT_NE(status.message().find("it has 140 bytes, and had 148"), std::string::npos) << status.message();
}

TEST_F(Data, ComesInTheOrderOfThePermutationOfEachEpoch) {
  writeSamples(7);
  DataSet data;
  ASSERT_TRUE(data.open({.path = folder, .batch = 2, .seed = 9}, stages));
  std::vector<std::vector<int>> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<std::int64_t> order = permutation(9, static_cast<std::uint64_t>(epoch), 7);
    epochs.emplace_back();
    for (std::int64_t k = 0; k < 3; ++k) {
      const std::vector<int> samples = samplesOf(data, epoch * 3 + k);
      EXPECT_EQ(samples[0], order[static_cast<std::size_t>(2 * k)]);
      EXPECT_EQ(samples[1], order[static_cast<std::size_t>(2 * k + 1)]);
      epochs.back().insert(epochs.back().end(), samples.begin(), samples.end());
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST_F(Data, FillsTheLastMinibatchOfAnEvaluation) {
  writeSamples(5);
  DataSet data;
  ASSERT_TRUE(data.open({.path = folder, .batch = 2, .evaluation = true}, stages));
  EXPECT_EQ(data.minibatchesPerEpoch(), 3);
  EXPECT_EQ(samplesOf(data, 1), (std::vector<int>{2, 3}));
  EXPECT_EQ(samplesOf(data, 2), (std::vector<int>{4, 4}));
}

TEST_F(Data, NormalizesByChannel) {
  writeSamples(2);
  DataOptions options = {.path = folder, .batch = 2, .shuffle = false};
  ASSERT_TRUE(parseNormalize("1,2,3/2,4,8", options.mean, options.deviation));
  DataSet data;
  ASSERT_TRUE(data.open(options, stages));
  float images[12];
  ASSERT_TRUE(data.read(rows[0], 0, reinterpret_cast<std::byte*>(images)));
  const float expected[] = {-0.5f, 0, 0, 0.25f, 0.125f, 0.25f, 4.5f, 5, 2.5f, 2.75f, 1.375f, 1.5f};
  for (int i = 0; i < 12; ++i) EXPECT_EQ(images[i], expected[i]) << i;
  options.mean = options.deviation = {1, 1};
  EXPECT_EQ(DataSet().open(options, stages).message(),
            "--normalize gives 2 channels, input 'image' has the shape [samples, 3, 2]");
}

TEST_F(Data, RefusesNormalizationsThatAreNone) {
  for (const char* text : {"", "1", "/", "1/", "/1", "1/2/3", "1,2/3", "1/0", "1/-1", "a/b", "1 /2"}) {
    std::vector<double> mean, deviation;
    EXPECT_EQ(parseNormalize(text, mean, deviation).code(), Exit::usage) << text;
  }
}

TEST_F(Data, RefusesALabelOutOfRange) {
  writeSamples(4);
  write("label", Element::i64, {4}, std::vector<std::int64_t>{0, 3, 4, 1});
  DataSet data;
  const Status status = data.open({.path = folder, .batch = 2}, stages);
  EXPECT_EQ(status.code(), Exit::badData);
  EXPECT_EQ(status.message(), folder + "/label.npy: sample 2 has the label 4, the model has 4 classes");
  EXPECT_EQ(status.help(), "labels are 0 to 3");
  EXPECT_TRUE(DataSet().open({.path = folder, .batch = 2, .ignoredLabel = 4}, stages));
}

/// Words of a table of 5 rows.
constexpr DataRow words[] = {{"words", Element::i64, {2, 3}, 0, false, 5}};
const Stage reader = {.index = 0, .count = 1, .data = words};
const Stage* const readers[] = {&reader};

TEST_F(Data, RefusesAnIndexBeyondTheTable) {
  write("words", Element::i64, {2, 3}, std::vector<std::int64_t>{0, 4, -5, 1, 5, 2});
  const Status status = DataSet().open({.path = folder, .batch = 2}, readers);
  EXPECT_EQ(status.code(), Exit::badData);
  EXPECT_EQ(status.message(), folder + "/words.npy: sample 1 has the index 5, the model has 5 rows to choose from");
  EXPECT_EQ(status.help(), "indices are 0 to 4");
  write("words", Element::i64, {2, 3}, std::vector<std::int64_t>{0, 4, -5, 1, 4, 2}); // -5: the first row
  EXPECT_TRUE(DataSet().open({.path = folder, .batch = 2}, readers));
  write("words", Element::i64, {2, 3}, std::vector<std::int64_t>{0, 4, -6, 1, 4, 2});
  EXPECT_EQ(DataSet().open({.path = folder, .batch = 2}, readers).message(),
            folder + "/words.npy: sample 0 has the index -6, the model has 5 rows to choose from");
}

TEST_F(Data, SynthesizesIndicesOfAllRows) {
  DataSet data;
  ASSERT_TRUE(data.open({.path = "synthetic", .batch = 2, .syntheticSamples = 100}, readers));
  bool seen[5] = {};
  for (std::int64_t b = 0; b < 50; ++b) {
    std::int64_t read[6];
    ASSERT_TRUE(data.read(words[0], b, reinterpret_cast<std::byte*>(read)));
    for (std::int64_t word : read) {
      ASSERT_TRUE(word >= 0 && word < 5);
      seen[word] = true;
    }
  }
  EXPECT_TRUE(std::all_of(seen, seen + 5, [](bool one) { return one; }));
}

TEST_F(Data, RefusesElementsThatDoNotConvert) {
  writeSamples(4);
  write("label", Element::f32, {4}, std::vector<float>{0, 1, 2, 3});
  const Status status = DataSet().open({.path = folder, .batch = 2}, stages);
  EXPECT_EQ(status.message(), folder + "/label.npy: has elements of type f32, input 'label' needs i64");
}

TEST_F(Data, ReadsIntegersThatFitOnly) {
  writeSamples(4);
  write("label", Element::u32, {4}, std::vector<std::uint32_t>{0, 1, 2, 3});
  EXPECT_TRUE(DataSet().open({.path = folder, .batch = 2}, stages));
  write("label", Element::u64, {4}, std::vector<std::uint64_t>{0, 1, 2, 3});
  EXPECT_EQ(DataSet().open({.path = folder, .batch = 2}, stages).message(),
            folder + "/label.npy: has elements of type u64, input 'label' needs i64");
}

TEST_F(Data, RefusesLessThanAMinibatch) {
  writeSamples(1);
  EXPECT_EQ(DataSet().open({.path = folder, .batch = 2}, stages).message(),
            folder + "/image.npy: has 1 samples, a minibatch has 2");
  EXPECT_TRUE(DataSet().open({.path = folder, .batch = 2, .evaluation = true}, stages));
}

TEST_F(Data, SynthesizesTheSameNoiseForTheSameMinibatch) {
  DataSet data;
  ASSERT_TRUE(data.open({.path = "synthetic", .batch = 2, .syntheticSamples = 100}, stages));
  EXPECT_EQ(data.minibatchesPerEpoch(), 50);
  float once[12], again[12], other[12];
  std::int64_t labels[2];
  ASSERT_TRUE(data.read(rows[0], 3, reinterpret_cast<std::byte*>(once)));
  ASSERT_TRUE(data.read(rows[0], 4, reinterpret_cast<std::byte*>(other)));
  ASSERT_TRUE(data.read(rows[0], 3, reinterpret_cast<std::byte*>(again)));
  EXPECT_TRUE(std::equal(once, once + 12, again));
  EXPECT_FALSE(std::equal(once, once + 12, other));
  bool seen[4] = {};
  for (std::int64_t b = 0; b < 50; ++b) {
    ASSERT_TRUE(data.read(rows[1], b, reinterpret_cast<std::byte*>(labels)));
    for (std::int64_t label : labels) {
      ASSERT_TRUE(label >= 0 && label < 4);
      seen[label] = true;
    }
  }
  EXPECT_TRUE(seen[0] && seen[1] && seen[2] && seen[3]);
}

// Nor does any have what a dropout draws (Random.h): its mask would depend on the data.
TEST_F(Data, SynthesizesOtherNoiseForEachInput) {
  constexpr std::uint64_t seed = 7;
  DataSet data;
  ASSERT_TRUE(data.open({.path = "synthetic", .batch = 2, .seed = seed, .syntheticSamples = 100}, stages));
  DataRow other = rows[0];
  other.name = "another";
  constexpr std::int64_t minibatch = 3;
  float values[12], others[12];
  ASSERT_TRUE(data.read(rows[0], minibatch, reinterpret_cast<std::byte*>(values)));
  ASSERT_TRUE(data.read(other, minibatch, reinterpret_cast<std::byte*>(others)));
  EXPECT_FALSE(std::equal(values, values + 12, others));
  for (std::uint32_t operation = 0; operation < 100; ++operation) {
    const PhiloxBlock drawn = philox(philoxCounter(0, operation, minibatch), seed);
    EXPECT_NE(static_cast<float>(drawn[0]) / 4294967296.0F * 2 - 1, values[0]) << operation;
  }
}

// ---- Samples on another axis ----

/// Two steps of three samples of two numbers, a first state with the same samples, and a table that has none.
constexpr DataRow axisRows[] = {{"steps", Element::f32, {2, 3, 2}, 0, false, 0},
                                {"state", Element::f32, {1, 3}, 64, false, 0},
                                {"table", Element::f32, {2, 2}, 96, false, 0},
                                {"label", Element::i64, {2, 3}, 128, true, 4}};
const Stage axisStage = {.index = 0, .count = 1, .data = axisRows};
const Stage* const axisStages[] = {&axisStage};

class AxisData : public Data {
protected:
  /// Every number tells its step and its sample.
  void writeSamples(std::int64_t count) {
    std::vector<float> steps, state;
    std::vector<std::int64_t> labels;
    for (std::int64_t step = 0; step < 2; ++step)
      for (std::int64_t sample = 0; sample < count; ++sample) {
        for (int i = 0; i < 2; ++i) steps.push_back(static_cast<float>(100 * step + 10 * sample + i));
        labels.push_back((step + sample) % 4);
      }
    for (std::int64_t sample = 0; sample < count; ++sample) state.push_back(static_cast<float>(sample));
    write("steps", Element::f32, {2, count, 2}, steps);
    write("state", Element::f32, {1, count}, state);
    write("table", Element::f32, {2, 2}, std::vector<float>{1, 2, 3, 4});
    write("label", Element::i64, {2, count}, labels);
  }
  DataOptions options{
      .path = folder, .batch = 3, .batchAxes = {{"steps", 1}, {"state", 1}, {"table", noBatchAxis}, {"label", 1}}};
  std::string failureOf(const DataOptions& given) {
    DataSet data;
    const Status status = data.open(given, axisStages);
    return status.message() + "|" + status.help();
  }
};

TEST_F(AxisData, ReadsSamplesAlongTheAxisOfEachInput) {
  writeSamples(8);
  for (const bool shuffle : {false, true}) {
    options.shuffle = shuffle;
    DataSet data;
    ASSERT_TRUE(data.open(options, axisStages));
    EXPECT_EQ(data.samples(), 8);
    EXPECT_EQ(data.minibatchesPerEpoch(), 2);
    std::vector<int> seen;
    for (std::int64_t minibatch = 0; minibatch < 4; ++minibatch) {
      float steps[12], state[3], table[4];
      std::int64_t labels[6];
      ASSERT_TRUE(data.read(axisRows[0], minibatch, reinterpret_cast<std::byte*>(steps)));
      ASSERT_TRUE(data.read(axisRows[1], minibatch, reinterpret_cast<std::byte*>(state)));
      ASSERT_TRUE(data.read(axisRows[2], minibatch, reinterpret_cast<std::byte*>(table)));
      ASSERT_TRUE(data.read(axisRows[3], minibatch, reinterpret_cast<std::byte*>(labels)));
      EXPECT_EQ(std::vector<float>(table, table + 4), (std::vector<float>{1, 2, 3, 4}));
      for (int i = 0; i < 3; ++i) {
        const int sample = static_cast<int>(state[i]);
        seen.push_back(sample);
        for (int step = 0; step < 2; ++step) {
          EXPECT_EQ(steps[(step * 3 + i) * 2], 100 * step + 10 * sample);
          EXPECT_EQ(steps[(step * 3 + i) * 2 + 1], 100 * step + 10 * sample + 1);
          EXPECT_EQ(labels[step * 3 + i], (step + sample) % 4);
        }
      }
    }
    const std::vector<int> inOrder = {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
    EXPECT_EQ(seen == inOrder, !shuffle);
  }
}

TEST_F(AxisData, RefusesOtherShapesWithBoth) {
  writeSamples(8);
  write("steps", Element::f32, {8, 2, 2}, std::vector<float>(32));
  EXPECT_NE(
      failureOf(options).find("steps.npy: has the shape [8, 2, 2], input 'steps' needs [2, samples, 2]|its samples "
                              "lie along axis 0: numpy.save(file, numpy.ascontiguousarray(numpy.moveaxis(a, 0, 1)))"),
      std::string::npos)
      << failureOf(options);
  writeSamples(8);
  write("state", Element::f32, {1, 7}, std::vector<float>(7));
  EXPECT_NE(failureOf(options).find("state.npy: has 7 samples, "), std::string::npos) << failureOf(options);
  EXPECT_NE(failureOf(options).find("steps.npy has 8|samples are counted along axis 1 of 'state' and along axis 1 of "
                                    "'steps'"),
            std::string::npos)
      << failureOf(options);
  writeSamples(8);
  write("table", Element::f32, {8, 2}, std::vector<float>(16));
  EXPECT_NE(failureOf(options).find("table.npy: has the shape [8, 2], input 'table' needs [2, 2]|it has no samples"),
            std::string::npos)
      << failureOf(options);
}

TEST_F(AxisData, RefusesAxesThatAreNotTheProgramsOwn) {
  writeSamples(8);
  options.batchAxes.erase("state"); // axis 0, of one element
  EXPECT_NE(
      failureOf(options).find("input 'state' has the shape [1, 3], which has no minibatch of 3 samples on axis 0"),
      std::string::npos)
      << failureOf(options);
}

TEST_F(AxisData, ChannelsAreTheFirstAxisBesideTheSamples) {
  writeSamples(8);
  options.shuffle = false;
  options.mean = {0, 100};
  options.deviation = {1, 10};
  options.batchAxes["state"] = 1;
  const DataRow rowsOfSteps[] = {axisRows[0]};
  const Stage stageOfSteps = {.index = 0, .count = 1, .data = rowsOfSteps};
  const Stage* const stagesOfSteps[] = {&stageOfSteps};
  DataSet data;
  ASSERT_TRUE(data.open(options, stagesOfSteps));
  float steps[12];
  ASSERT_TRUE(data.read(rowsOfSteps[0], 0, reinterpret_cast<std::byte*>(steps)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(steps[i * 2], 10 * i);
    EXPECT_EQ(steps[6 + i * 2], i);
  }
}

} // namespace
