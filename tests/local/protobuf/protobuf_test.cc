// Tests bodies captured from kubectl 1.33, and malformed ones.
#include "local/protobuf/protobuf.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace lockstep::local {
namespace {

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

struct Case {
  const char* command;
  const char* hex;
  const char* json;
};

const std::vector<Case>& captured() {
  static const std::vector<Case> cases = {
      {"create namespace team",
       "6b3873000a0f0a02763112094e616d657370616365121c0a140a047465616d12001a0022002a003200380042"
       "0012001a020a001a002200",
       R"({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}, "spec": {},
           "status": {}})"},
      {"create configmap m --from-literal=a=b --from-literal=e=",
       "6b3873000a0f0a0276311209436f6e6669674d617012220a110a016d12001a0022002a0032003800420012060a"
       "016112016212050a016512001a002200",
       R"({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
           "data": {"a": "b", "e": ""}})"},
      {"create secret generic s --from-literal=a=b",
       "6b3873000a0c0a0276311206536563726574121d0a110a017312001a0022002a0032003800420012060a016112"
       "01621a001a002200",
       R"({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
           "data": {"a": "Yg=="}})"},
      {"create service clusterip s --tcp=80:8080",
       "6b3873000a0d0a02763112075365727669636512630a1b0a017312001a0022002a003200380042005a080a0361"
       "707012017312400a1b0a0738302d38303830120354435018502207080010903f1a00280012080a036170701201"
       "731a002209436c757374657249503a00420052005a00600068001a020a001a002200",
       R"({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"app": "s"}},
           "spec": {"type": "ClusterIP", "selector": {"app": "s"}, "ports": [
             {"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080}]}})"},
      {"create service externalname s --external-name=a.example",
       "6b3873000a0d0a02763112075365727669636512520a1b0a017312001a0022002a003200380042005a080a0361"
       "7070120173122f12080a036170701201731a00220c45787465726e616c4e616d653a0042005209612e6578616d"
       "706c655a00600068001a020a001a002200",
       R"({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"app": "s"}},
           "spec": {"type": "ExternalName", "selector": {"app": "s"},
                    "externalName": "a.example"}})"},
      {"drain n --force --grace-period=0",
       "6b3873000a130a027631120d44656c6574654f7074696f6e73120208001a002200",
       R"({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})"},
  };
  return cases;
}

TEST(ProtobufTest, ReadsWhatKubectlSends) {
  for (const Case& one : captured()) {
    Result<Json> object = json_from_protobuf(bytes_of(one.hex));
    ASSERT_TRUE(object.ok()) << one.command << ": " << object.error().message;
    EXPECT_EQ(*object, *parse_json(one.json)) << one.command;
  }
}

TEST(ProtobufTest, RefusesWithWordsWhatItDoesNotRead) {
  const std::string pod = bytes_of("6b3873000a090a0276311203506f641200");
  EXPECT_NE(json_from_protobuf(pod).error().message.find("kind Pod of v1"), std::string::npos);
  for (const std::string& body :
       {std::string(), std::string("{}"), std::string("k8s"), bytes_of("6b38730000"),
        bytes_of("6b387300ff"), bytes_of("6b3873000affffffffffffffffffff01"),
        bytes_of("6b3873000b")}) {
    Result<Json> read = json_from_protobuf(body);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kInvalid);
  }
}

TEST(ProtobufTest, ABodyOfWrongTypesIsRefused) {
  // A ConfigMap with a number as its metadata.
  EXPECT_FALSE(
      json_from_protobuf(bytes_of("6b3873000a0f0a0276311209436f6e6669674d617012020805")).ok());
}

TEST(ProtobufTest, BytesThatAreNotTextBecomeText) {
  // A ConfigMap with data {"a": 0xff}.
  Result<Json> map = json_from_protobuf(
      bytes_of("6b3873000a0f0a0276311209436f6e6669674d6170120812060a01611201ff"));
  ASSERT_TRUE(map.ok()) << map.error().message;
  EXPECT_EQ((*map)["data"]["a"], "\xEF\xBF\xBD");
}

TEST(ProtobufTest, SurvivesBodiesThatWereCutOrChanged) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const Case& one : captured()) {
    const std::string body = bytes_of(one.hex);
    for (size_t size = 0; size < body.size(); ++size)
      (void)json_from_protobuf(std::string_view(body).substr(0, size)).ok();
    for (int i = 0; i < 2000; ++i) {
      std::string changed = body;
      for (int j = 0; j < 3; ++j) changed[random() % changed.size()] = static_cast<char>(random());
      Result<Json> read = json_from_protobuf(changed);
      EXPECT_TRUE(!read.ok() || read->is_object());
    }
  }
}

}  // namespace
}  // namespace lockstep::local
