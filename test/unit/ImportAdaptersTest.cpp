// LINK: pdcImport pdcOps
// What becomes of trained adapters: merged weights, PEFT's files, and the record that goes with them.
#include "ImportModels.h"
#include "pdc/Import/Adapters.h"
#include "pdc/Import/FrozenWeights.h"

#include <cmath>
#include <deque>
#include <fstream>

using namespace pdc;
using namespace pdc::test;

namespace {

/// Tensors that live as long as this object.
class Tensors {
public:
  void add(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
    const std::vector<float>& kept = values_.emplace_back(std::move(values));
    all[name] = {name, ElementType::f32, std::move(shape), std::as_bytes(std::span(kept))};
  }
  TrainedTensors all;

private:
  std::deque<std::vector<float>> values_;
};

std::vector<float> floatsOf(const pdcrt::TensorRecord& record) {
  return pdcrt::elementsOf<float>(record.values);
}

/// An adapter of rank 1 and factor 2 for one of three outputs of smallModel's weight, [inputs, outputs].
Adapter sliceAdapter(std::int64_t slice) {
  return {.path = "layer",
          .weight = "w",
          .outputsFirst = false,
          .outputsFirstInModule = false,
          .inputs = 2,
          .outputs = 3,
          .rank = 1,
          .alpha = 2,
          .slice = slice,
          .slices = 3};
}

struct Merged {
  std::optional<TrainedTensors> tensors;
  std::deque<std::vector<std::byte>> made;
  std::string messages;
};

Merged merge(const ModelMaker& maker, const Tensors& trained, const AdapterRecord& record) {
  TemporaryFolder folder;
  maker.write(folder / "m.onnx");
  Merged merged;
  Diagnostics diags(nullptr);
  if (Expected<TrainedTensors> tensors = mergeAdapters(folder / "m.onnx", trained.all, record, merged.made, diags))
    merged.tensors = *std::move(tensors);
  for (const Diagnostic& diagnostic : diags.all())
    merged.messages += diagnostic.location.node + ": " + diagnostic.message;
  return merged;
}

TEST(ImportAdapters, RecordIsReadAsItIsWritten) {
  Adapter adapter = sliceAdapter(2);
  adapter.dropout = 0.05;
  adapter.outputsFirstInModule = true;
  const AdapterRecord record{{sliceAdapter(0), adapter}, {"head.weight"}};
  Diagnostics diags(nullptr);
  const Expected<AdapterRecord> read = adaptersFromJson(toJson(record), "adapters.json", diags);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->adapters, record.adapters);
  EXPECT_EQ(read->trained, record.trained);
  for (const std::string text : {"", "[]", "{\"adapters\": []}", "{\"adapters\": [{}], \"trained\": []}"})
    EXPECT_FALSE(adaptersFromJson(text, "adapters.json", diags)) << text;
}

TEST(ImportAdapters, SlicesAreMergedIntoTheirOutputs) {
  Tensors trained;
  trained.add("layer.slice0.lora_A.weight", {1, 2}, {10, 100});
  trained.add("layer.slice0.lora_B.weight", {1, 1}, {1});
  trained.add("layer.slice2.lora_A.weight", {1, 2}, {1, 0});
  trained.add("layer.slice2.lora_B.weight", {1, 1}, {-3});
  const Merged merged = merge(smallModel(), trained, {{sliceAdapter(0), sliceAdapter(2)}, {}});
  ASSERT_TRUE(merged.tensors) << merged.messages;
  ASSERT_EQ(merged.tensors->size(), 1U); // the weight of the model, and no adapters
  EXPECT_EQ(floatsOf(merged.tensors->at("w")), (std::vector<float>{21, 2, -3, 204, 5, 6}));
}

TEST(ImportAdapters, SumsAreRoundedOnce) {
  // 1 + 2 · (2⁻²⁵ + 2⁻²⁵) is 1 + 2⁻²³, which two roundings would lose.
  Adapter adapter = sliceAdapter(0);
  adapter.slices = 1;
  adapter.rank = 2;
  adapter.alpha = 4;
  const float small = std::ldexp(1.F, -25);
  Tensors trained;
  trained.add("w", {2, 3}, {1, 1, 1, 1, 1, 1});
  trained.add("layer.lora_A.weight", {2, 2}, {small, 0, small, 0});
  trained.add("layer.lora_B.weight", {3, 2}, {1, 1, 0, 0, 0, 0});
  const Merged merged = merge(smallModel(), trained, {{adapter}, {}});
  ASSERT_TRUE(merged.tensors) << merged.messages;
  EXPECT_EQ(floatsOf(merged.tensors->at("w"))[0], 1 + std::ldexp(1.F, -23));
}

TEST(ImportAdapters, WeightThatAnEmbeddingReadsIsNotMerged) {
  ModelMaker maker;
  maker.input("ids", {"batch"}, onnx::TensorProto::INT64);
  maker.weight("w", {4, 2});
  maker.node("Gather", {"w", "ids"}, {"h"}, "embedding");
  maker.node("Transpose", {"w"}, {"t"}, "transpose");
  maker.node("MatMul", {"h", "t"}, {"y"}, "head");
  maker.output("y", {"batch", "4"});
  Adapter adapter = sliceAdapter(0);
  adapter.path = "head";
  adapter.outputsFirst = true;
  adapter.outputs = 4;
  adapter.slices = 1;
  Tensors trained;
  trained.add("head.lora_A.weight", {1, 2}, {1, 1});
  trained.add("head.lora_B.weight", {4, 1}, {1, 1, 1, 1});
  const Merged merged = merge(maker, trained, {{adapter}, {}});
  EXPECT_FALSE(merged.tensors);
  EXPECT_EQ(merged.messages, "embedding: reads 'w', too, which cannot be merged with the adapter of 'head' alone");
}

TEST(ImportAdapters, LackingTensorsAreTold) {
  Tensors trained;
  trained.add("layer.slice0.lora_A.weight", {1, 2}, {1, 1});
  EXPECT_EQ(merge(smallModel(), trained, {{sliceAdapter(0)}, {}}).messages,
            "layer.slice0.lora_B.weight: is lacking among the trained weights, an adapter has it as f32[1, 1]");
  trained.add("layer.slice0.lora_B.weight", {2, 1}, {1, 1});
  EXPECT_EQ(merge(smallModel(), trained, {{sliceAdapter(0)}, {}}).messages,
            "layer.slice0.lora_B.weight: was trained as f32[2, 1], the adapter has it as f32[1, 1]");
}

/// A file whose header has a length that aligns none of its tensors, as strangers may write it.
void writeUnaligned(const std::string& path, const Tensors& tensors) {
  std::string header, values;
  for (const auto& [name, record] : tensors.all) {
    header += (header.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":"F32","shape":[)" +
              std::to_string(record.shape[0]) + "," + std::to_string(record.shape[1]) + R"(],"data_offsets":[)" +
              std::to_string(values.size()) + "," + std::to_string(values.size() + record.values.size()) + "]}";
    values.append(reinterpret_cast<const char*>(record.values.data()), record.values.size());
  }
  header += "}";
  while (header.size() % sizeof(float) != 1) header += " ";
  std::ofstream file(path, std::ios::binary);
  for (std::size_t i = 0; i < 8; ++i) file.put(static_cast<char>(header.size() >> (8 * i)));
  file << header << values;
}

// A build with ubsan sees what reads floats in place.
TEST(ImportAdapters, TensorsOfFilesNeedNoAlignment) {
  Tensors tensors;
  tensors.add("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  tensors.add("layer.lora_A.weight", {1, 2}, {10, 100});
  tensors.add("layer.lora_B.weight", {3, 1}, {1, 0, -1});
  TemporaryFolder folder;
  writeUnaligned(folder / "trained.safetensors", tensors);
  pdcrt::SafetensorsFile file;
  ASSERT_TRUE(file.open(folder / "trained.safetensors"));
  for (const auto& [name, record] : file.tensors())
    ASSERT_NE(reinterpret_cast<std::uintptr_t>(record.values.data()) % alignof(float), 0U) << name;
  Adapter adapter = sliceAdapter(0);
  adapter.slices = 1;
  const AdapterRecord record{{adapter}, {}};
  smallModel().write(folder / "m.onnx");
  Diagnostics diags(nullptr);
  std::deque<std::vector<std::byte>> made;
  const Expected<TrainedTensors> merged = mergeAdapters(folder / "m.onnx", file.tensors(), record, made, diags);
  ASSERT_TRUE(merged);
  EXPECT_EQ(floatsOf(merged->at("w")), (std::vector<float>{21, 2, -17, 204, 5, -194}));
  ASSERT_TRUE(writeAdapter(folder / "m.onnx", file.tensors(), record, folder / "adapter", "", diags));
  pdcrt::SafetensorsFile written;
  ASSERT_TRUE(written.open(folder / "adapter/adapter_model.safetensors"));
  EXPECT_EQ(floatsOf(*written.find("base_model.model.layer.lora_A.weight")), (std::vector<float>{10, 100}));
  EXPECT_EQ(floatsOf(*written.find("base_model.model.layer.lora_B.weight")), (std::vector<float>{1, 0, -1}));
}

TEST(ImportAdapters, FrozenWeightsAreThoseOfTheRun) {
  TemporaryFolder folder;
  smallModel().write(folder / "m.onnx");
  Tensors base;
  base.add("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  const std::map<std::string, pdcrt::FileSum> sums = {{"w", pdcrt::extended({}, base.all["w"].values)}};
  base.add("w", {2, 3}, {1, 2, 3, 4, 5, 7});
  const std::map<std::string, pdcrt::FileSum> others = {{"w", pdcrt::extended({}, base.all["w"].values)}};
  const auto taken = [&](const auto& wanted, const TrainedTensors& from) {
    TrainedTensors tensors;
    std::deque<std::vector<std::byte>> made;
    Diagnostics diags(nullptr);
    if (!takeFrozen(folder / "m.onnx", wanted, from, tensors, made, diags)) return -1.F;
    return floatsOf(tensors.at("w"))[5];
  };
  EXPECT_EQ(taken(sums, {}), 6);
  EXPECT_EQ(taken(others, base.all), 7);
  EXPECT_EQ(taken(others, {}), -1);
  EXPECT_EQ(taken(sums, base.all), -1);
}

} // namespace
