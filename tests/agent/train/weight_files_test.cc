#include "agent/train/weights/weight_files.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "tests/agent/train/small_weights.h"

namespace lockstep::train {
namespace {

class WeightFilesTest : public WeightsTest {
 protected:
  // Writes the i-th tensor, with every element i, to the file given by `name_of`.
  template <class NameOf>
  void write_files(NameOf name_of) {
    const std::vector<WeightTensor> shapes = shapes_of(kSmallLlama);
    std::map<std::string, std::vector<size_t>> files;
    for (size_t i = 0; i < shapes.size(); ++i) {
      files[name_of(i)].push_back(i);
      map_[shapes[i].name] = name_of(i);
    }
    for (const auto& [name, tensors] : files) {
      std::vector<WeightTensor> of_file;
      for (const size_t i : tensors) of_file.push_back(shapes[i]);
      Result<WeightFileWriter> writer =
          WeightFileWriter::create(folder_.file(name), of_file, kernels::DType::kF32);
      ASSERT_TRUE(writer.ok());
      for (const size_t i : tensors) {
        const auto count = static_cast<size_t>(element_count(shapes[i].shape).value());
        ASSERT_TRUE(writer->put(std::vector<float>(count, static_cast<float>(i))).ok());
      }
      ASSERT_TRUE(writer->finish().ok());
    }
  }
  std::string write_index() {
    return folder_.write("w.index.json", Json{{"weight_map", map_}}.dump());
  }
  Status status_of_index() {
    const Result<std::vector<float>> result = imported(write_index(), kSmallLlama);
    return result.ok() ? Status() : Status(result.error());
  }

  Json map_ = Json::object();
};

TEST_F(WeightFilesTest, OfSeveralFilesAreReadByTheirIndex) {
  write_files([](size_t i) { return "part-" + std::to_string(i % 3); });
  const Result<std::vector<float>> parameters = imported(write_index(), kSmallLlama);
  ASSERT_TRUE(parameters.ok()) << parameters.error().message;
  const ParameterArena arena = parameter_arena(kSmallLlama, whole_model(kSmallLlama));
  size_t tensor = 0;
  for (const Parameter& parameter : parameter_table(kSmallLlama)) {
    const auto offset = static_cast<size_t>(arena.find(parameter.id)->offset);
    for (const StoredTensorInfo& stored : hugging_face_tensors(parameter)) {
      const auto columns = static_cast<size_t>(parameter.dims[1]);
      const size_t first = offset + static_cast<size_t>(stored.first_row) * columns;
      const size_t last = first + static_cast<size_t>(stored.rows) * columns - 1;
      EXPECT_EQ((*parameters)[first], static_cast<float>(tensor)) << stored.name;
      EXPECT_EQ((*parameters)[last], static_cast<float>(tensor)) << stored.name;
      ++tensor;
    }
  }
}

TEST_F(WeightFilesTest, AreRefusedWhereTheIndexSaysOtherwise) {
  write_files([](size_t i) { return i < 10 ? "one" : "two"; });
  const Json good = map_;
  map_["model.norm.weight"] = "one";
  expect_error(status_of_index(), Code::kInvalid, "model.norm.weight is not in one");
  map_ = good;
  map_["lm_head.weight"] = "three";
  expect_error(status_of_index(), Code::kNotFound, "three");
  map_["lm_head.weight"] = "../one";
  expect_error(status_of_index(), Code::kCorrupt, "expected the name of a file in the same folder");
  map_["lm_head.weight"] = 3;
  expect_error(status_of_index(), Code::kCorrupt, "lm_head.weight");
  map_ = Json::object();
  expect_error(status_of_index(), Code::kCorrupt, "weight_map");
  for (const char* text : {"", "[]", "{\"weight_map\": []}", "{\"weight_map\""}) {
    expect_error(import_status(folder_.write("none.json", text)), Code::kCorrupt, "none.json");
  }
  map_ = good;
  std::filesystem::copy_file(folder_.file("two"), folder_.file("copy"));
  map_["lm_head.weight"] = "copy";
  expect_error(status_of_index(), Code::kInvalid, "is in two files");
}

TEST_F(WeightsTest, OfFilesThatAreNoneAreRefusedWithThePath) {
  const std::string good = folder_.file("good");
  ASSERT_TRUE(export_weights(save_checkpoint(kSmall), good).ok());
  const std::string bytes = read_file(good);
  expect_error(import_status(folder_.file("nowhere")), Code::kNotFound, folder_.file("nowhere"));
  EXPECT_FALSE(import_status(folder_.path()).ok()) << "a folder";
  expect_error(import_status(folder_.write("empty", "")), Code::kCorrupt, folder_.file("empty"));
  expect_error(import_status(folder_.write("pickle", std::string(64, '\x80'))), Code::kCorrupt,
               folder_.file("pickle"));
  for (const size_t size : {size_t{7}, size_t{100}, bytes.size() - 1}) {
    expect_error(import_status(folder_.write("short", bytes.substr(0, size))), Code::kCorrupt,
                 folder_.file("short"));
  }
}

TEST_F(WeightsTest, OfMutatedFilesAreReadOrRefusedWithoutHarm) {
  const std::string file = folder_.file("weights");
  ASSERT_TRUE(export_weights(save_checkpoint(kSmall), file).ok());
  const std::string good = read_file(file);
  const size_t header = good.find("}}") + 2;
  Random random(5);
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string bytes = good;
    for (uint64_t n = random.below(3) + 1; n-- > 0;) {
      bytes[random.below(header)] = static_cast<char>(random.below(256));
    }
    refused += import_status(folder_.write("mutated", bytes)).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 400);
}

}  // namespace
}  // namespace lockstep::train
