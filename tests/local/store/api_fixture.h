#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/base/clock.h"
#include "local/store/api.h"

namespace lockstep::local {

inline constexpr char kJobs[] = "/apis/lockstep.dev/v1alpha1/namespaces/default/trainingjobs";
inline constexpr char kPods[] = "/api/v1/namespaces/default/pods";
inline constexpr char kSecrets[] = "/api/v1/namespaces/default/secrets";

// An Api on a manual clock, with shorthands for requests.
class ApiTest : public testing::Test {
 protected:
  ApiResponse ask(const std::string& method, const std::string& target, const Json& body = Json()) {
    std::string type = method == "PATCH" ? "application/merge-patch+json" : "application/json";
    return api_.handle({method, target, type, body.is_null() ? "" : dump_json(body)});
  }
  ApiResponse send(const std::string& method, const std::string& target, const std::string& type,
                   const Json& body) {
    return api_.handle({method, target, type, dump_json(body)});
  }
  ApiResponse get(const std::string& target) { return ask("GET", target); }

  // Creates the object, or fails the test.
  Json make(const std::string& collection, const Json& object) {
    ApiResponse made = ask("POST", collection, object);
    EXPECT_EQ(made.code, 201) << made.body;
    return made.body;
  }

  static Json job(const std::string& name) {
    return {{"apiVersion", "lockstep.dev/v1alpha1"},
            {"kind", "TrainingJob"},
            {"metadata", {{"name", name}}},
            {"spec", {{"nodes", 1}, {"command", {"true"}}}}};
  }
  static Json pod(const std::string& name) {
    return {{"metadata", {{"name", name}}},
            {"spec", {{"containers", Json::array({{{"name", "node"}}})}}}};
  }
  static Json owned_by(Json object, const Json& owner, bool block = true) {
    object["metadata"]["ownerReferences"] = Json::array({{{"apiVersion", owner["apiVersion"]},
                                                          {"kind", owner["kind"]},
                                                          {"name", owner["metadata"]["name"]},
                                                          {"uid", owner["metadata"]["uid"]},
                                                          {"controller", true},
                                                          {"blockOwnerDeletion", block}}});
    return object;
  }
  void bind(const std::string& name) {
    ASSERT_EQ(
        ask("POST", std::string(kPods) + "/" + name + "/binding", {{"target", {{"name", "local"}}}})
            .code,
        201);
  }

  Watch watch(const std::string& target) {
    auto opened = api_.open_watch({"GET", target, "", ""});
    EXPECT_TRUE(std::holds_alternative<Watch>(opened));
    return std::get<Watch>(std::move(opened));
  }
  // Returns all pending events, as in "ADDED a, MODIFIED b".
  std::string events(Watch& watch) {
    std::string text;
    for (const Json& event : api_.next_events(watch, 1000)) {
      text += (text.empty() ? "" : ", ") + event["type"].get<std::string>();
      if (event["type"] == "ERROR")
        text += " " + event["object"]["reason"].get<std::string>();
      else
        text += " " + event["object"]["metadata"]["name"].get<std::string>();
    }
    return text;
  }

  ManualClock clock_;
  Api api_{clock_, 1, {.history_max = 50}};
};

}  // namespace lockstep::local
