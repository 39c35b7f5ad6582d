#include "common/api/schema.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "common/api/training_job.h"
#include "common/api/yaml.h"
#include "tests/common/api/field_row.h"

namespace lockstep {
namespace {

constexpr size_t kAnnotationBytesMax = 262144;  // kubectl apply keeps the document in an annotation
constexpr char kCrdFile[] = "/charts/lockstep/files/crds/trainingjobs.lockstep.dev.yaml";

Json crd() {
  const Result<Json> document = read_document(std::string(LOCKSTEP_SOURCE_DIR) + kCrdFile);
  EXPECT_TRUE(document.ok()) << document.error().message;
  return document.ok() ? *document : Json();
}

TEST(Crd, HasTheSchemaOfTheListOfFields) {
  const Json in_file = crd().at("spec").at("versions").at(0).at("schema").at("openAPIV3Schema");
  const Json expected = training_job_schema();
  EXPECT_TRUE(in_file == expected)
      << kCrdFile << " differs from the list of fields; tools/fields "
      << "writes it. The difference: " << Json::diff(in_file, expected).dump(1);
}

TEST(Crd, IsSmallEnoughForPlainKubectlApply) {
  EXPECT_LT(dump_json(crd()).size(), kAnnotationBytesMax);
}

TEST(Crd, HasTheNamesOfTheApi) {
  const Json document = crd();
  const Json& spec = document.at("spec");
  const Json& version = spec.at("versions").at(0);
  const std::string group = spec.at("group");
  EXPECT_EQ(group + "/" + version.at("name").get<std::string>(), kApiVersion);
  EXPECT_EQ(spec.at("names").at("kind"), kKind);
  EXPECT_EQ(document.at("metadata").at("name"),
            spec.at("names").at("plural").get<std::string>() + "." + group);
  EXPECT_EQ(spec.at("names").at("shortNames"), Json({"tj"}));
  EXPECT_TRUE(version.at("subresources").contains("status"));
}

// Returns the schema at a path such as .status.nodes.ready, or null.
Json schema_at(const Json& root, const std::string& path) {
  const Json* schema = &root;
  std::istringstream parts(path.substr(1));
  for (std::string part; std::getline(parts, part, '.');) {
    const bool is_list = part.ends_with("[]");
    if (is_list) part.resize(part.size() - 2);
    const Json* properties = find_member(*schema, "properties");
    schema = properties == nullptr ? nullptr : find_member(*properties, part);
    if (schema != nullptr && is_list) schema = find_member(*schema, "items");
    if (schema == nullptr) return {};
  }
  return *schema;
}

TEST(Crd, PathsOfColumnsAndOfTheScaleSubresourceAreFieldsOfTheirType) {
  const Json version = crd().at("spec").at("versions").at(0);
  const Json& schema = version.at("schema").at("openAPIV3Schema");
  std::vector<std::string> names;
  for (const Json& column : version.at("additionalPrinterColumns")) {
    names.push_back(column.at("name"));
    if (column.at("jsonPath") == ".metadata.creationTimestamp") continue;
    EXPECT_EQ(schema_at(schema, column.at("jsonPath")).value("type", ""), column.at("type"))
        << column;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"STATE", "NODES", "STEP", "LOSS", "TOKENS/S",
                                             "SAMPLES/S", "RESTARTS", "AGE"}));
  const Json& scale = version.at("subresources").at("scale");
  EXPECT_EQ(schema_at(schema, scale.at("specReplicasPath")).value("type", ""), "integer");
  EXPECT_EQ(schema_at(schema, scale.at("statusReplicasPath")).value("type", ""), "integer");
}

// Calls `check` for each schema in the document.
void walk(const Json& schema, const std::string& path,
          const std::function<void(const Json&, const std::string&)>& check) {
  check(schema, path);
  if (const Json* items = find_member(schema, "items")) walk(*items, path + "[]", check);
  if (const Json* properties = find_member(schema, "properties")) {
    for (const auto& [name, property] : properties->items()) {
      walk(property, path + "." + name, check);
    }
  }
}

TEST(Crd, IsStructuralAndDescribesEveryField) {
  // Structural: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/
  walk(training_job_schema(), "", [](const Json& schema, const std::string& path) {
    ASSERT_TRUE(schema.contains("type")) << path;
    EXPECT_FALSE(schema.contains("additionalProperties") && schema.contains("properties")) << path;
    const bool is_field =
        (path.starts_with(".spec") || path.starts_with(".status")) && !path.ends_with("[]");
    if (is_field) {
      EXPECT_FALSE(schema.value("description", "").empty()) << path;
    }
    if (schema.at("type") == "array") {
      EXPECT_TRUE(schema.contains("items")) << path;
    }
    const Json* keys = find_member(schema, "x-kubernetes-list-map-keys");
    if (keys != nullptr) {
      const Json required = schema.at("items").at("required");
      EXPECT_NE(std::find(required.begin(), required.end(), keys->at(0)), required.end()) << path;
    }
  });
}

// Checks what a server with the CRD would report: unknown fields and wrong types.
void expect_valid(const Json& value, const Json& schema, const std::string& path) {
  const std::string type = schema.at("type");
  if (const Json* choices = find_member(schema, "enum")) {
    EXPECT_NE(std::find(choices->begin(), choices->end(), value), choices->end()) << path << value;
  }
  if (type == "object") {
    ASSERT_TRUE(value.is_object()) << path;
    if (schema.contains("x-kubernetes-preserve-unknown-fields") || path == ".metadata") return;
    for (const auto& [key, member] : value.items()) {
      const Json* property = find_member(schema.at("properties"), key);
      ASSERT_NE(property, nullptr) << path << "." << key;
      expect_valid(member, *property, path + "." + key);
    }
  } else if (type == "array") {
    ASSERT_TRUE(value.is_array()) << path;
    for (const Json& item : value) expect_valid(item, schema.at("items"), path + "[]");
  } else {
    const bool fits = type == "integer"  ? value.is_number_integer()
                      : type == "number" ? value.is_number()
                      : type == "string" ? value.is_string()
                                         : value.is_boolean();
    EXPECT_TRUE(fits) << path << ": " << value;
  }
}

TEST(Crd, AcceptsWhatOurCodecWrites) {
  TrainingJob job;
  job.metadata.name = "gpt";
  job.spec.train = TrainSpec{};
  job.spec.train->data.path = "/data";
  job.spec.processGroups = {{.name = "even", .ranks = "0::2"}};
  job.status.state = "Failed";
  job.status.rendezvous = RendezvousStatus{};
  job.status.progress = ProgressStatus{{.loss = 2.0}};
  job.status.lastFailure = FailureStatus{};
  job.status.failures = {{.recovery = {.detectSeconds = 0.5}}};
  job.spec.failure.rules = {{.exitCodes = {3}, .event = "Error", .action = "Fail"}};
  job.status.lastCheckpoint = CheckpointStatus{};
  job.status.conditions = {{.type = "Failed"}};
  expect_valid(to_json(job), training_job_schema(), "");
}

TEST(Crd, KeepsRefusedFieldsSoThatTheControllerCanRefuseThem) {
  const Json schema = training_job_schema();
  for (const FieldInfo& field : training_job_fields()) {
    if (field.refused) {
      EXPECT_FALSE(schema_at(schema, "." + field.path).is_null()) << field.path;
    }
  }
}

std::string cell(const std::string& row, size_t number) {
  std::vector<std::string> cells;
  std::istringstream stream(row);
  for (std::string text; std::getline(stream, text, '|');) cells.push_back(text);
  if (number + 1 >= cells.size()) return "";
  const std::string& text = cells[number + 1];
  return text.size() < 2 ? "" : text.substr(1, text.size() - 2);
}

TEST(Documentation, HasEveryFieldWithItsTypeDefaultAndMeaningAndNoOther) {
  std::ifstream file(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/trainingjob.md");
  ASSERT_TRUE(file.is_open());
  std::map<std::string, std::string> rows;  // by path
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `")) continue;
    const std::string path = cell(line, 0);
    EXPECT_TRUE(rows.emplace(path, line).second) << path << " is there twice";
  }
  for (const FieldInfo& field : training_job_fields()) {
    const std::string path = "`" + field.path + "`";
    EXPECT_EQ(rows[path], field_row(field)) << "docs/trainingjob.md; tools/fields writes it";
    rows.erase(path);
  }
  for (const auto& [path, row] : rows) {
    ADD_FAILURE() << "docs/trainingjob.md: " << path << " is no field; tools/fields removes it";
  }
}

// Returns the section of the field's object or, if it has none, of its nearest ancestor.
std::string expected_section(std::string path, const std::set<std::string>& sections) {
  do {
    const size_t end = path.find_last_of(".[");
    if (end == std::string::npos) return "a section of an ancestor";
    path.resize(end);
  } while (!sections.contains(path));
  return path;
}

TEST(Documentation, HasTheRowOfAFieldInTheSectionOfItsObject) {
  std::ifstream file(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/trainingjob.md");
  std::set<std::string> sections;
  std::map<std::string, std::string> found;  // the section by path
  std::string section;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) sections.insert(section = line.substr(3));
    if (line.starts_with("| `")) found[cell(line, 0)] = section;
  }
  for (const FieldInfo& field : training_job_fields()) {
    EXPECT_EQ(found["`" + field.path + "`"], expected_section(field.path, sections)) << field.path;
  }
}

TEST(Documentation, ItsExampleIsValid) {
  std::ifstream doc(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/trainingjob.md");
  std::stringstream text;
  text << doc.rdbuf();
  const std::string all = text.str();
  const size_t begin = all.find("```yaml\n");
  ASSERT_NE(begin, std::string::npos);
  const std::string yaml = all.substr(begin + 8, all.find("```", begin + 8) - begin - 8);
  const Result<Json> document = json_from_yaml(yaml);
  ASSERT_TRUE(document.ok()) << document.error().message;
  const Result<TrainingJob> job = valid_training_job_from_json(*document);
  EXPECT_TRUE(job.ok()) << job.error().message;
}

}  // namespace
}  // namespace lockstep
