// Tests the server's OpenAPI documents with kubectl's requests.
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

class OpenApiViewTest : public ApiTest {
 protected:
  ApiResponse read(const std::string& path, const std::string& accept = "application/json") {
    return api_.handle({.method = "GET", .target = path, .accept = accept});
  }
};

TEST_F(OpenApiViewTest, KubectlGetsProtobufAndOthersJson) {
  ApiResponse json = read("/openapi/v2?timeout=32s");
  EXPECT_EQ(json.code, 200);
  EXPECT_EQ(json.raw_type, "application/json");
  EXPECT_TRUE(parse_json(json.raw).ok());
  // The request of kubectl 1.20.
  ApiResponse protobuf =
      read("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf");
  EXPECT_EQ(protobuf.raw_type, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
  EXPECT_FALSE(protobuf.raw.empty());
  EXPECT_NE(protobuf.raw, json.raw);
}

TEST_F(OpenApiViewTest, TheIndexLeadsToEachGroup) {
  Json index = *parse_json(read("/openapi/v3").raw);
  for (const auto& [path, entry] : index["paths"].items()) {
    ApiResponse document = read(entry["serverRelativeURL"]);
    ASSERT_EQ(document.code, 200) << path;
    EXPECT_TRUE(parse_json(document.raw).ok()) << path;
  }
  EXPECT_TRUE(index["paths"].contains("apis/lockstep.dev/v1alpha1"));
  EXPECT_EQ(read("/openapi/v3/apis/nobody/v1").code, 404);
  EXPECT_EQ(read("/openapi/v4").code, 404);
}

TEST_F(OpenApiViewTest, ANewTypeIsInTheDocuments) {
  const std::string before = read("/openapi/v2").raw;
  EXPECT_EQ(read("/openapi/v2").raw, before);
  make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", *parse_json(R"({
      "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
      "metadata": {"name": "widgets.example.com"},
      "spec": {"group": "example.com", "scope": "Namespaced",
               "names": {"kind": "Widget", "plural": "widgets"},
               "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                 {"openAPIV3Schema": {"type": "object", "description": "Any size."}}}]}})"));
  EXPECT_NE(read("/openapi/v2").raw.find("Any size."), std::string::npos);
  EXPECT_NE(read("/openapi/v3/apis/example.com/v1").raw.find("Any size."), std::string::npos);
}

}  // namespace
}  // namespace lockstep::local
