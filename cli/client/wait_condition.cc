#include "cli/client/wait_condition.h"

#include <algorithm>

#include "cli/client/command.h"
#include "common/api/conditions.h"

namespace lockstep::cli {
namespace {

bool is_same_word(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return std::tolower(x) == std::tolower(y); });
}

// Like find_condition(), but ignores case, because users type the name.
const Condition* find_ignoring_case(const TrainingJobStatus& status, const std::string& type) {
  for (const Condition& one : status.conditions) {
    if (is_same_word(one.type, type)) return &one;
  }
  return nullptr;
}

}  // namespace

Result<WaitCondition> parse_wait_condition(const std::string& text) {
  if (text == "delete") return WaitCondition{.deletion = true, .type = ""};
  std::string rest = text.starts_with("condition=") ? text.substr(10) : text;
  WaitCondition what;
  if (const size_t equals = rest.find('='); equals != std::string::npos) {
    what.status = rest.substr(equals + 1);
    rest.resize(equals);
  }
  what.type = rest;
  const bool is_word = !rest.empty() && std::all_of(rest.begin(), rest.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
  });
  if (is_word && !what.status.empty()) return what;
  return invalid("--for: found \"" + text +
                 "\", expected a condition such as Complete, Failed or Ready=False, or delete");
}

std::string ending_of(const TrainingJobStatus& status) {
  if (is_true(status, kComplete)) return kComplete;
  if (!is_true(status, kFailed)) return "";
  const Condition* failed = find_condition(status, kFailed);
  return "Failed: " + failed->reason + ": " + failed->message;
}

WaitState wait_state(const WaitCondition& what, const TrainingJobStatus& status) {
  if (what.deletion) return WaitState::kNotYet;
  const Condition* condition = find_ignoring_case(status, what.type);
  if (condition != nullptr && is_same_word(condition->status, what.status)) return WaitState::kMet;
  // A job that has ended can still lose a condition, but not gain one.
  return is_finished(status) && is_same_word(what.status, "True") ? WaitState::kNever
                                                                  : WaitState::kNotYet;
}

Result<int> wait_for_job(Connection& connection, const JobName& job_name, const WaitCondition& what,
                         std::optional<TimePoint> until, std::string& why) {
  const auto& [namespace_, name] = job_name;
  const Result<Json> first = connection.call({.path = job_path(namespace_, name)});
  if (!first.ok() && first.error().code == Code::kNotFound && what.deletion) return 0;
  if (!first.ok()) return first.error();
  const std::string uid = meta_text(*first, "uid");
  bool is_there = true;
  WaitState state = WaitState::kNotYet;
  const std::string shown = name;
  const auto update_state = [&](const Json& object) {
    const Result<TrainingJob> job = stored_training_job_from_json(object);
    if (!job.ok()) return;
    state = wait_state(what, job->status);
    if (state == WaitState::kNever) why = shown + " is " + ending_of(job->status);
  };
  bool was_listed = false;
  ApiCall call{.path = jobs_path(namespace_)};
  call.query["fieldSelector"] = "metadata.name=" + name;
  TRY_ASSIGN(const bool in_time, connection.watch(
                                     call,
                                     [&](const std::string& type, const Json& object) {
                                       if (type == "LISTED")
                                         is_there = std::exchange(was_listed, false);
                                       if (type != "LISTED" && meta_text(object, "name") == shown) {
                                         was_listed = true;
                                         is_there =
                                             type != "DELETED" && meta_text(object, "uid") == uid;
                                         if (is_there) update_state(object);
                                       }
                                       return is_there && state == WaitState::kNotYet;
                                     },
                                     until));
  if (!is_there && what.deletion) return 0;
  if (!is_there) {
    why = name + " was deleted";
    return kExitEnded;
  }
  if (in_time && state == WaitState::kMet) return 0;
  return in_time ? kExitEnded : kExitTimeout;
}

}  // namespace lockstep::cli
