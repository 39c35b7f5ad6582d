#include "tests/conformance/support/case.h"

#include "tests/conformance/support/table.h"

namespace lockstep::conformance {

testing::AssertionResult is_code(const Reply& reply, int code) {
  if (reply.code == code) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "expected " << code << ", found " << reply.code << " " << reply.text.substr(0, 2000);
}

testing::AssertionResult is_failure(const Reply& reply, int code, const std::string& reason) {
  const Json& body = reply.body;
  auto found = testing::AssertionFailure()
               << "expected a Status " << code << " " << reason << ", found " << reply.code << " "
               << reply.text.substr(0, 2000);
  if (reply.code != code || !body.is_object()) return found;
  bool whole = string_or(body, "kind", "") == "Status" &&
               string_or(body, "apiVersion", "") == "v1" &&
               string_or(body, "status", "") == "Failure" && int_or(body, "code", 0) == code &&
               !string_or(body, "message", "").empty() && body.contains("metadata") &&
               body["metadata"].is_object();
  if (!whole || string_or(body, "reason", "") != reason) return found;
  return testing::AssertionSuccess();
}

testing::AssertionResult has_cause(const Reply& reply, const std::string& reason,
                                   const std::string& field) {
  const Json* details = find_member(reply.body, "details");
  const Json* causes = details == nullptr ? nullptr : find_member(*details, "causes");
  if (causes != nullptr && causes->is_array()) {
    for (const Json& cause : *causes) {
      if ((reason.empty() || string_or(cause, "reason", "") == reason) &&
          (field.empty() || string_or(cause, "field", "") == field) &&
          !string_or(cause, "message", "").empty())
        return testing::AssertionSuccess();
    }
  }
  return testing::AssertionFailure() << "expected a cause " << reason << " of " << field
                                     << ", found " << reply.text.substr(0, 2000);
}

std::string meta(const Json& object, const char* key) {
  const Json* metadata = find_member(object, "metadata");
  return metadata == nullptr ? "" : string_or(*metadata, key, "");
}

Watching::Watching(const std::string& target, const std::string& accept) {
  Result<std::unique_ptr<ReplyStream>> opened = server().open(target, accept);
  if (!opened.ok()) {
    ADD_FAILURE() << target << ": " << opened.error().message;
    return;
  }
  stream_ = *std::move(opened);
  EXPECT_EQ(stream_->code(), 200) << target;
}

Json Watching::next() {
  if (!stream_) return {};
  Result<std::optional<std::string>> line = stream_->read_line();
  if (!line.ok()) {
    ADD_FAILURE() << line.error().message;
    return {};
  }
  if (!line->has_value()) return {};
  Result<Json> event = parse_json(**line);
  if (!event.ok() || !event->is_object() || !event->contains("type") ||
      !event->contains("object")) {
    ADD_FAILURE() << "expected a watch event, found " << **line;
    return {};
  }
  return *std::move(event);
}

std::string Watching::next_text() {
  while (true) {
    Json event = next();
    if (event.is_null()) return "";
    if (event["type"] == "BOOKMARK") continue;
    std::string about = event["type"] == "ERROR" ? string_or(event["object"], "reason", "")
                                                 : meta(event["object"], "name");
    return event["type"].get<std::string>() + " " + about;
  }
}

void Case::SetUp() {
  const testing::TestInfo& self = *testing::UnitTest::GetInstance()->current_test_info();
  std::string reason =
      reason_not_supported(std::string(self.test_suite_name()) + "." + self.name());
  const Target& target = server().target();
  if (target.embedded && !target.run_unsupported_cases && !reason.empty())
    GTEST_SKIP() << "not supported by the embedded server: " << reason;
  Json made = make("/api/v1/namespaces", {{"metadata", {{"generateName", "conformance-"}}}});
  namespace_ = meta(made, "name");
  ASSERT_FALSE(namespace_.empty());
  // A server with service accounts refuses pods until the namespace has its default one.
  if (server().serves("v1", "serviceaccounts"))
    (void)ask("POST", path("v1", "serviceaccounts"), named("default"));
}

void Case::TearDown() {
  if (!namespace_.empty()) remove_namespace(namespace_);
}

std::string Case::path(const std::string& group_version, const std::string& plural) const {
  std::string prefix = group_version.find('/') == std::string::npos ? "/api/" : "/apis/";
  return prefix + group_version + "/namespaces/" + namespace_ + "/" + plural;
}

Json Case::make(const std::string& collection, const Json& object) {
  Reply made = ask("POST", collection, object);
  EXPECT_TRUE(is_code(made, 201)) << "POST " << collection << " " << object;
  return made.body;
}

Json Case::named(const std::string& name, const Json& labels) {
  Json object = {{"metadata", {{"name", name}}}};
  if (!labels.is_null()) object["metadata"]["labels"] = labels;
  return object;
}

Json Case::pod(const std::string& name) {
  Json object = named(name);
  object["spec"] = {{"schedulerName", "lockstep-conformance"},
                    {"automountServiceAccountToken", false},
                    {"containers", Json::array({{{"name", "node"}, {"image", "none"}}})}};
  return object;
}

std::vector<std::string> Case::names(const Reply& list) {
  EXPECT_TRUE(is_code(list, 200));
  std::vector<std::string> found;
  for (const Json& item : list.body.value("items", Json::array()))
    found.push_back(meta(item, "name"));
  return found;
}

}  // namespace lockstep::conformance
