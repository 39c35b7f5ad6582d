#include "tests/conformance/support/widgets.h"

#include <cctype>
#include <random>

#include "common/api/yaml.h"

namespace lockstep::conformance {
namespace {

// Uses every feature of schemas that the cases test.
constexpr char kSpecSchema[] = R"({
  "type": "object",
  "required": ["color"],
  "properties": {
    "color": {"type": "string", "enum": ["red", "green"]},
    "size": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1},
    "note": {"type": "string", "maxLength": 10, "pattern": "^[a-z]*$"},
    "ratio": {"type": "number"},
    "maybe": {"type": "string", "nullable": true},
    "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
    "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    "list": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "parts": {
      "type": "array",
      "x-kubernetes-list-type": "map",
      "x-kubernetes-list-map-keys": ["name"],
      "items": {
        "type": "object",
        "required": ["name"],
        "properties": {
          "name": {"type": "string"},
          "count": {"type": "integer", "default": 5},
          "label": {"type": "string"}
        }
      }
    }
  }
})";

constexpr char kColumns[] = R"([
  {"name": "COLOR", "type": "string", "jsonPath": ".spec.color", "description": "Its color."},
  {"name": "SIZE", "type": "integer", "jsonPath": ".spec.size"},
  {"name": "PHASE", "type": "string", "jsonPath": ".status.phase", "priority": 1},
  {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
])";

Json parsed(const char* text) {
  Result<Json> value = parse_json(text);
  CHECK(value.ok());
  return *value;
}

class Uninstall : public testing::Environment {
 public:
  explicit Uninstall(std::string name) : name_(std::move(name)) {}
  void TearDown() override {
    (void)server().ask("DELETE", std::string(kDefinitions) + "/" + name_);
  }

 private:
  std::string name_;
};

std::string random_label() {
  std::random_device device;
  std::string text = "r";
  for (int i = 0; i < 8; ++i) text += static_cast<char>('a' + device() % 26);
  return text;
}

bool is_established(const std::string& name) {
  Json found = server().ask("GET", std::string(kDefinitions) + "/" + name).body;
  const Json* status = find_member(found, "status");
  if (status == nullptr) return false;
  for (const Json& one : status->value("conditions", Json::array()))
    if (one["type"] == "Established" && one["status"] == "True") return true;
  return false;
}

}  // namespace

Json definition_of(const std::string& group, const std::string& kind, const Json& spec_schema) {
  std::string singular = kind;
  singular[0] = static_cast<char>(std::tolower(singular[0]));
  std::string plural = singular + "s";
  Json schema = {{"type", "object"},
                 {"properties",
                  {{"spec", spec_schema},
                   {"status",
                    {{"type", "object"},
                     {"properties",
                      {{"phase", {{"type", "string"}}},
                       {"replicas", {{"type", "integer"}}},
                       {"selector", {{"type", "string"}}}}}}}}}};
  Json version = {{"name", "v1"},
                  {"served", true},
                  {"storage", true},
                  {"schema", {{"openAPIV3Schema", std::move(schema)}}},
                  {"subresources",
                   {{"status", Json::object()},
                    {"scale",
                     {{"specReplicasPath", ".spec.size"},
                      {"statusReplicasPath", ".status.replicas"},
                      {"labelSelectorPath", ".status.selector"}}}}},
                  {"additionalPrinterColumns", parsed(kColumns)}};
  return {{"apiVersion", "apiextensions.k8s.io/v1"},
          {"kind", "CustomResourceDefinition"},
          {"metadata", {{"name", plural + "." + group}}},
          {"spec",
           {{"group", group},
            {"scope", "Namespaced"},
            {"names", {{"kind", kind}, {"plural", plural}, {"singular", singular}}},
            {"versions", Json::array({std::move(version)})}}}};
}

void install_definition(const Json& definition) {
  std::string name = meta(definition, "name");
  Reply made = server().ask("POST", kDefinitions, definition);
  ASSERT_TRUE(is_code(made, 201));
  ASSERT_TRUE(eventually([&] { return is_established(name); })) << name;
  std::string collection = "/apis/" + definition["spec"]["group"].get<std::string>() + "/v1/" +
                           definition["spec"]["names"]["plural"].get<std::string>();
  ASSERT_TRUE(eventually([&] { return server().ask("GET", collection).code == 200; })) << name;
}

const std::string& WidgetCase::group() {
  static const std::string kGroup = random_label() + ".conformance.lockstep.dev";
  return kGroup;
}

void WidgetCase::SetUp() {
  Case::SetUp();
  if (IsSkipped() || HasFatalFailure()) return;
  static bool installed = false;
  if (installed) return;
  testing::AddGlobalTestEnvironment(new Uninstall("widgets." + group()));
  Json definition = definition_of(group(), "Widget", parsed(kSpecSchema));
  definition["spec"]["names"]["shortNames"] = {"wg" + group().substr(0, 9)};
  ASSERT_NO_FATAL_FAILURE(install_definition(definition));
  installed = true;
}

Json WidgetCase::widget(const std::string& name, const Json& spec) {
  Json object = {{"apiVersion", group_version()},
                 {"kind", "Widget"},
                 {"metadata", {{"name", name}}},
                 {"spec", {{"color", "red"}}}};
  object["spec"].update(spec);
  return object;
}

Json our_definition(const std::string& folder) {
  Result<Json> found = read_document(LOCKSTEP_SOURCE_DIR "/charts/lockstep/files/" + folder +
                                     "/trainingjobs.lockstep.dev.yaml");
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() ? *std::move(found) : Json();
}

Json our_definition() {
  constexpr int kFirstWithRules = 30;
  return our_definition(server().minor_version() < kFirstWithRules ? "crds" : "crds-cel");
}

}  // namespace lockstep::conformance
