#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/conformance/support/server.h"

namespace lockstep::conformance {

// Skips a case that this server can't run: `NEEDS(server().collects_garbage(), "why")`. Fails the
// case on the embedded server: docs/api-server.md has to list what that one can't do.
#define NEEDS(condition, reason)                                                               \
  if (!(condition)) {                                                                          \
    if (server().target().embedded) FAIL() << (reason) << ", but docs/api-server.md says yes"; \
    GTEST_SKIP() << (reason);                                                                  \
  }

// Returns whether the reply is a whole metav1.Status of a failure, with this code and reason.
testing::AssertionResult is_failure(const Reply& reply, int code, const std::string& reason);
// Returns whether one of the failure's details.causes has this reason and field ("" for any).
testing::AssertionResult has_cause(const Reply& reply, const std::string& reason,
                                   const std::string& field);
testing::AssertionResult is_code(const Reply& reply, int code);

// Returns metadata.<key> as text; "" if there is none.
std::string meta(const Json& object, const char* key);

// An open watch.
class Watching {
 public:
  // Fails the case if the server refuses the watch.
  explicit Watching(const std::string& target, const std::string& accept = "application/json");

  // Returns the next event; null if the server has ended the watch. Fails the case if the stream is
  // not a valid watch.
  Json next();
  // Returns the next event that is not a bookmark, as "ADDED a"; "" at the end.
  std::string next_text();

  const Reply& head() const { return stream_->head(); }

 private:
  std::unique_ptr<ReplyStream> stream_;
};

// A case with its own namespace, which is removed at the end. Skipped on the embedded server if
// docs/api-server.md says that it doesn't support this case.
class Case : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Returns the path of the collection in the case's namespace.
  std::string path(const std::string& group_version, const std::string& plural) const;
  std::string secrets() const { return path("v1", "secrets"); }
  std::string configmaps() const { return path("v1", "configmaps"); }
  std::string pods() const { return path("v1", "pods"); }

  static Reply ask(const std::string& method, const std::string& target, const Json& body = Json(),
                   const std::string& content_type = "application/json") {
    return server().ask(method, target, body, content_type);
  }
  static Reply get(const std::string& target) { return ask("GET", target); }
  static Reply patch(const std::string& target, const Json& change,
                     const std::string& content_type = kMergePatch) {
    return ask("PATCH", target, change, content_type);
  }
  // Creates the object, or fails the case.
  static Json make(const std::string& collection, const Json& object);
  // Returns {"metadata": {"name": name, "labels": labels}}.
  static Json named(const std::string& name, const Json& labels = Json());
  // Returns a pod that no scheduler takes.
  static Json pod(const std::string& name);
  // Returns the names of a list's items, in order.
  static std::vector<std::string> names(const Reply& list);

  std::string namespace_;
};

}  // namespace lockstep::conformance
