#include <gtest/gtest.h>

#include <set>

#include "controller/plan/names.h"
#include "controller/plan/pod_template.h"
#include "controller/plan/pod_view.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

TEST(PodTemplate, TheAgentIsTheContainersCommandAndTheJobOwnsThePod) {
  const Scene scene;
  const Json pod = make_worker_pod(scene.seen.job, {.index = 1, .incarnation = 3, .round = 5});
  EXPECT_EQ(pod["metadata"]["name"], "job-worker-1-3");
  EXPECT_EQ(pod["metadata"]["labels"], (Json{{"lockstep.dev/job-name", "job"},
                                             {"lockstep.dev/role", "worker"},
                                             {"lockstep.dev/node-index", "1"},
                                             {"lockstep.dev/incarnation", "3"},
                                             {"app.kubernetes.io/managed-by", "lockstep"}}));
  const Json& owner = pod["metadata"]["ownerReferences"][0];
  EXPECT_EQ(owner["uid"], "uid-of-job");
  EXPECT_EQ(owner["controller"], true);
  EXPECT_EQ(owner["blockOwnerDeletion"], true);
  const Json& spec = pod["spec"];
  EXPECT_EQ(spec["restartPolicy"], "Never");
  EXPECT_EQ(spec["terminationGracePeriodSeconds"], 35);
  EXPECT_EQ(spec["automountServiceAccountToken"], false);
  EXPECT_EQ(spec["securityContext"]["runAsNonRoot"], true);
  const Json& node = spec["containers"][0];
  EXPECT_EQ(node["name"], "node");
  EXPECT_EQ(node["image"], "lockstep");
  EXPECT_EQ(node["command"], Json::array({"/opt/lockstep/bin/lockstep-agent"}));
  EXPECT_EQ(node["securityContext"]["allowPrivilegeEscalation"], false);
  EXPECT_FALSE(node.contains("resources"));
  std::map<std::string, std::string> env;
  for (const Json& entry : node["env"]) env[entry["name"]] = entry.value("value", "");
  EXPECT_EQ(env, (std::map<std::string, std::string>{{"POD_IP", ""},
                                                     {"LOCKSTEP_JOB_UID", "uid-of-job"},
                                                     {"LOCKSTEP_JOB_NAME", "job"},
                                                     {"LOCKSTEP_NODE_INDEX", "1"},
                                                     {"LOCKSTEP_INCARNATION", "3"}}));
}

TEST(PodTemplate, GetsTheTimeToSaveOnPreemptionIfThatIsLonger) {
  Scene scene;
  scene.seen.job.spec.checkpoint.path = "/ckpt";
  for (const auto& [text, seconds] :
       std::vector<std::pair<std::string, int64_t>>{{"", 35}, {"10s", 35}, {"2m", 125}}) {
    scene.seen.job.spec.checkpoint.onPreemption = text;
    const Json pod = make_worker_pod(scene.seen.job, {});
    EXPECT_EQ(pod["spec"]["terminationGracePeriodSeconds"], seconds) << text;
  }
}

TEST(PodTemplate, AJobMadeAgainUnderItsNameHasATokenOfItsOwn) {
  Scene scene;
  TrainingJob& job = scene.seen.job;
  std::set<std::string> names;
  for (const char* uid : {"11111111-2222-3333-4444-555555555555", "aaaaaaaa-2222", "aaaaaaaa-3"}) {
    job.metadata.uid = uid;
    const std::string name = make_token_secret(job, "token")["metadata"]["name"];
    EXPECT_TRUE(name.starts_with("job-token-")) << name;
    EXPECT_EQ(make_worker_pod(job, {})["spec"]["volumes"][0]["secret"]["secretName"], name);
    scene.status() = {};
    scene.settle();
    EXPECT_EQ(only<CreateSecret>(scene.plan()).at(0).name, name);
    names.insert(name);
  }
  EXPECT_EQ(names.size(), 3u);
}

TEST(PodTemplate, GpusAreALimitAndCommandsMayRunAsRoot) {
  Scene scene;
  scene.seen.job.spec.gpusPerNode = 4;
  scene.seen.job.spec.image = "registry/mine:1";
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"python"};
  const Json spec = make_worker_pod(scene.seen.job, {})["spec"];
  EXPECT_EQ(spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "4");
  EXPECT_EQ(spec["containers"][0]["image"], "registry/mine:1");
  EXPECT_FALSE(spec["securityContext"].contains("runAsNonRoot"));
}

TEST(PodTemplate, AJobWithoutAnImageGetsTheInstallations) {
  Scene scene;
  scene.limits.job_image = "registry/lockstep:2";
  scene.settle();
  const std::vector<CreatePod> made = only<CreatePod>(scene.plan());
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(body_of(made[0])["spec"]["containers"][0]["image"], "registry/lockstep:2");
  scene.seen.job.spec.image = "mine:1";
  EXPECT_EQ(body_of(only<CreatePod>(scene.plan())[0])["spec"]["containers"][0]["image"], "mine:1");
}

TEST(PodTemplate, SaysWhereItsMetricsAreIfThatIsWanted) {
  Scene scene;
  scene.settle();
  const auto annotations = [&] {
    return body_of(only<CreatePod>(scene.plan())[0])["metadata"]["annotations"];
  };
  EXPECT_FALSE(annotations().contains("prometheus.io/scrape"));
  scene.limits.scrape_annotations = true;
  const Json said = annotations();
  EXPECT_EQ(said["prometheus.io/scrape"], "true");
  EXPECT_EQ(said["prometheus.io/port"], "29400");
  EXPECT_EQ(said["prometheus.io/path"], "/metrics");
}

TEST(PodTemplate, NamesThePortsOfTheAgentAndOfItsRanks) {
  Scene scene;
  scene.seen.job.spec.processesPerNode = 2;
  const Json ports = make_worker_pod(scene.seen.job, {})["spec"]["containers"][0]["ports"];
  EXPECT_EQ(ports, Json::parse(R"([{"name": "agent", "containerPort": 29400},
                                   {"name": "rank-0", "containerPort": 29500},
                                   {"name": "rank-1", "containerPort": 29501}])"));
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"sh"};
  EXPECT_EQ(make_worker_pod(scene.seen.job, {})["spec"]["containers"][0]["ports"], ports);
  scene.seen.job.spec.podTemplate = {{"spec", {{"hostNetwork", true}}}};
  const Json of_rounds = make_worker_pod(scene.seen.job, {})["spec"]["containers"][0]["ports"];
  EXPECT_EQ(of_rounds.size(), 1u + 2 * 8);
  EXPECT_EQ(of_rounds.back(), (Json{{"name", "rank-15"}, {"containerPort", 29515}}));
  scene.seen.job.spec.processesPerNode = 1000;
  const Json bounded = make_worker_pod(scene.seen.job, {})["spec"]["containers"][0]["ports"];
  EXPECT_EQ(bounded.size(), 65u);
}

TEST(PodTemplate, MergesListsByTheirKeysAndReplacesTheRest) {
  Scene scene;
  scene.seen.job.spec.podTemplate = {
      {"metadata", {{"labels", {{"team", "a"}}}, {"annotations", {{"note", "b"}}}}},
      {"spec",
       {{"nodeSelector", {{"zone", "x"}}},
        {"securityContext", {{"runAsNonRoot", nullptr}, {"fsGroup", 1000}}},
        {"tolerations", Json::array({{{"key", "gpu"}}})},
        {"volumes", Json::array({{{"name", "data"}, {"emptyDir", Json::object()}}})},
        {"containers",
         Json::array({{{"name", "node"},
                       {"env", Json::array({{{"name", "DEBUG"}, {"value", "1"}}})},
                       {"resources", {{"requests", {{"cpu", "4"}}}}},
                       {"volumeMounts", Json::array({{{"name", "data"}, {"mountPath", "/data"}}})}},
                      {{"name", "sidecar"}, {"image", "busybox"}}})}}}};
  ASSERT_TRUE(pod_template_problems(scene.seen.job.spec.podTemplate).empty());
  const Json pod = make_worker_pod(scene.seen.job, {});
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod["metadata"]["labels"]["lockstep.dev/role"], "worker");
  const Json& spec = pod["spec"];
  EXPECT_EQ(spec["nodeSelector"]["zone"], "x");
  EXPECT_EQ(spec["securityContext"]["fsGroup"], 1000);
  EXPECT_FALSE(spec["securityContext"].contains("runAsNonRoot"));
  EXPECT_EQ(spec["volumes"].size(), 4u);
  ASSERT_EQ(spec["containers"].size(), 2u);
  const Json& node = spec["containers"][0];
  EXPECT_EQ(node["env"].size(), 6u);
  EXPECT_EQ(node["volumeMounts"].size(), 4u);
  EXPECT_EQ(node["resources"]["requests"]["cpu"], "4");
  EXPECT_EQ(spec["containers"][1]["name"], "sidecar");
}

TEST(PodTemplate, OfAnotherNodeIsMadeFromAPodAsFromTheJob) {
  Json many = Json::array();
  for (int i = 0; i < 100; ++i) many.push_back({{"name", "V" + std::to_string(i)}, {"value", "x"}});
  const auto with_node = [](Json node) {
    node["name"] = "node";
    return Json{{"spec", {{"containers", Json::array({{{"name", "first"}}, std::move(node)})}}}};
  };
  for (const Json& pod_template :
       {Json::object(), with_node({{"env", many}}), with_node({{"env", nullptr}}),
        Json{{"metadata", {{"labels", nullptr}}}}, Json{{"metadata", {{"labels", {{"a", "b"}}}}}},
        Json{{"spec", {{"containers", nullptr}}}}, Json{{"spec", {{"nodeName", "refused"}}}}}) {
    SCOPED_TRACE(pod_template.dump().substr(0, 80));
    Scene scene;
    scene.seen.job.spec.podTemplate = pod_template;
    const auto pod_of = [&](int64_t index, int64_t incarnation) {
      return make_worker_pod(
          scene.seen.job,
          {.index = index, .incarnation = incarnation, .round = 4, .avoid = {"bad"}});
    };
    EXPECT_EQ(pod_like(pod_of(0, 1), scene.seen.job.metadata.name, {.index = 12, .incarnation = 3}),
              pod_of(12, 3));
  }
}

TEST(PodTemplate, TheTextOfAPodIsThatOfItsDocument) {
  Scene scene;
  // Texts that look like the marks of the numbers.
  scene.seen.job.spec.podTemplate["metadata"]["annotations"] = {
      {"note", "1000000000000000 2000000000000000"}, {"other", "lockstep 10 2"}};
  const std::string& job = scene.seen.job.metadata.name;
  const PodText pods(make_worker_pod(scene.seen.job, {.index = 7, .incarnation = 2}), job);
  for (const auto& [index, incarnation] :
       {std::pair(0, 1), std::pair(4095, 1), std::pair(12, 345)}) {
    const Json pod = make_worker_pod(scene.seen.job, {.index = index, .incarnation = incarnation});
    EXPECT_EQ(pods.of(index, incarnation), dump_json(pod));
  }
}

TEST(PodTemplate, MergesTheFirstOfElementsWithOneKeyAndAppendsNewOnes) {
  Json base = Json::parse(R"({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})");
  merge_template(base, Json::parse(R"({"env": [{"name": "B"}, {"name": "A", "value": "3"},
                                               {"name": "B", "value": "4"}]})"));
  EXPECT_EQ(base, Json::parse(R"({"env": [{"name": "A", "value": "3"}, {"name": "A", "value": "2"},
                                          {"name": "B", "value": "4"}]})"));
}

TEST(PodTemplate, RefusesByPathWhatWouldBreakTheJob) {
  struct Case {
    Json patch;
    const char* path;
  };
  const Case cases[] = {
      {{{"metadata", {{"name", "x"}}}}, "spec.podTemplate.metadata.name"},
      {{{"metadata", {{"labels", {{"lockstep.dev/role", "x"}}}}}},
       "spec.podTemplate.metadata.labels.lockstep.dev/role"},
      {{{"metadata", {{"labels", nullptr}}}}, "spec.podTemplate.metadata.labels"},
      {{{"metadata", {{"annotations", {{"lockstep.dev/created-in-round", "-1"}}}}}},
       "spec.podTemplate.metadata.annotations.lockstep.dev/created-in-round"},
      {{{"metadata", {{"annotations", nullptr}}}}, "spec.podTemplate.metadata.annotations"},
      {{{"metadata", {{"annotations", "none"}}}}, "spec.podTemplate.metadata.annotations"},
      {{{"spec", {{"restartPolicy", "Always"}}}}, "spec.podTemplate.spec.restartPolicy"},
      {{{"spec", {{"terminationGracePeriodSeconds", 1}}}},
       "spec.podTemplate.spec.terminationGracePeriodSeconds"},
      {{{"spec", {{"containers", Json::array({{{"name", "node"}, {"command", {"sh"}}}})}}}},
       "spec.podTemplate.spec.containers[0].command"},
      {{{"spec",
         {{"containers",
           Json::array({{{"name", "node"}, {"env", Json::array({{{"name", "POD_IP"}}})}}})}}}},
       "spec.podTemplate.spec.containers[0].env"},
      {{{"spec",
         {{"containers", Json::array({{{"name", "node"},
                                       {"ports", Json::array({{{"name", "rank-3"},
                                                               {"containerPort", 8080}}})}}})}}}},
       "spec.podTemplate.spec.containers[0].ports"},
      {{{"spec", {{"volumes", Json::array({{{"name", "token"}}})}}}},
       "spec.podTemplate.spec.volumes"},
      {{{"spec", {{"volumes", Json::array({{{"name", "lockstep-tmp"}}})}}}},
       "spec.podTemplate.spec.volumes"},
      {{{"spec", {{"volumes", Json::array({{{"emptyDir", Json::object()}}})}}}},
       "spec.podTemplate.spec.volumes[0].name"},
      {{{"spec", {{"containers", "node"}}}}, "spec.podTemplate.spec.containers"},
      {{{"status", Json::object()}}, "spec.podTemplate.status"},
      {{{"spec", 3}}, "spec.podTemplate.spec"},
      {Json::array(), "spec.podTemplate"},
  };
  for (const Case& test : cases) {
    const Problems problems = pod_template_problems(test.patch);
    ASSERT_FALSE(problems.empty()) << test.patch;
    EXPECT_EQ(problems[0].rfind(std::string(test.path) + ":", 0), 0u) << problems[0];
  }
  EXPECT_TRUE(pod_template_problems(Json::object()).empty());
}

TEST(PodTemplate, TakesTheUsersWordsInMapsForNoLists) {
  const Json labels = {{"env", "prod"}, {"ports", "open"}, {"volumes", "two"}};
  const Json patch = {
      {"spec",
       {{"nodeSelector", labels},
        {"topologySpreadConstraints",
         Json::array({{{"topologyKey", "zone"}, {"labelSelector", {{"matchLabels", labels}}}}})},
        {"volumes", Json::array({{{"name", "data"},
                                  {"csi", {{"driver", "x"}, {"volumeAttributes", labels}}}}})}}}};
  EXPECT_EQ(pod_template_problems(patch), Problems());
  TrainingJob job = Scene().seen.job;
  job.spec.podTemplate = patch;
  EXPECT_EQ(make_worker_pod(job, {})["spec"]["nodeSelector"], labels);
}

TEST(PodView, ReadsWhatWeMadeAndWhatTheKubeletAdded) {
  const Scene scene;
  Json pod = make_worker_pod(scene.seen.job, {.index = 1, .incarnation = 3, .round = 5});
  pod["metadata"]["uid"] = "u";
  std::optional<PodView> view = pod_view_from_json(pod);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->node_index, 1);
  EXPECT_EQ(view->incarnation, 3);
  EXPECT_EQ(view->created_in_round, 5);
  EXPECT_EQ(view->owner_uid, "uid-of-job");
  EXPECT_EQ(view->phase, "Pending");
  EXPECT_TRUE(view->live());
  pod["spec"]["nodeName"] = "m";
  pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z";
  pod["status"] = {
      {"phase", "Failed"},
      {"podIP", "1.2.3.4"},
      {"containerStatuses",
       Json::array({{{"name", "node"},
                     {"state",
                      {{"terminated",
                        {{"exitCode", 137}, {"reason", "OOMKilled"}, {"message", "m"}}}}}}})}};
  view = pod_view_from_json(pod);
  EXPECT_EQ(view->ip, "1.2.3.4");
  EXPECT_EQ(view->node_name, "m");
  EXPECT_EQ(view->exit_code, 137);
  EXPECT_EQ(view->reason, "OOMKilled");
  EXPECT_EQ(view->message, "m");
  EXPECT_TRUE(view->terminating);
  EXPECT_TRUE(view->scheduled);
  EXPECT_TRUE(view->gone_by.has_value());
  EXPECT_FALSE(view->live());
}

TEST(PodView, TheRoundOfItsCreationIsUnknownWhereNobodyCanReadIt) {
  const Scene scene;
  Json pod = make_worker_pod(scene.seen.job, {.round = 5});
  Json& annotations = pod["metadata"]["annotations"];
  for (const char* odd : {"-1", "x", "", "99999999999999999999"}) {
    annotations[kCreatedInRoundAnnotation] = odd;
    EXPECT_EQ(pod_view_from_json(pod)->created_in_round, std::nullopt) << odd;
  }
  annotations = nullptr;
  EXPECT_EQ(pod_view_from_json(pod)->created_in_round, std::nullopt);
}

TEST(PodView, ReadsAWarningOfAPreemptionFromWhatTheCacheKeeps) {
  const Scene scene;
  Json pod = make_worker_pod(scene.seen.job, {});
  EXPECT_FALSE(pod_view_from_json(pod)->is_warned);
  for (const auto& [value, expected] :
       {std::pair("ends at 12:00", true), std::pair("true", true), std::pair("false", false)}) {
    pod["metadata"]["annotations"][kPreemptionWarning] = value;
    EXPECT_EQ(pod_view_from_json(trimmed_pod(pod))->is_warned, expected) << value;
  }
}

TEST(PodView, ReadsWhyAPodCannotStartAndWhyItIsDisrupted) {
  const Scene scene;
  Json pod = make_worker_pod(scene.seen.job, {});
  const auto waits = [](const char* name, const char* reason) {
    return Json{{"name", name}, {"state", {{"waiting", {{"reason", reason}, {"message", "m"}}}}}};
  };
  pod["status"] = {{"phase", "Pending"},
                   {"initContainerStatuses", Json::array({waits("copy", "ErrImagePull")})},
                   {"containerStatuses", Json::array({waits("node", "PodInitializing")})}};
  EXPECT_EQ(pod_view_from_json(pod)->waiting, "ErrImagePull");
  EXPECT_EQ(pod_view_from_json(pod)->waiting_message, "m");
  pod["status"].erase("initContainerStatuses");
  EXPECT_EQ(pod_view_from_json(pod)->waiting, "");
  pod["status"]["conditions"] = Json::array(
      {{{"type", "DisruptionTarget"}, {"status", "False"}, {"reason", "EvictionByEvictionAPI"}}});
  EXPECT_EQ(pod_view_from_json(pod)->disruption, "");
  pod["status"]["conditions"][0]["status"] = "True";
  EXPECT_EQ(pod_view_from_json(pod)->disruption, "EvictionByEvictionAPI");
}

TEST(PodView, WhatIsKeptOfAPodSaysTheSame) {
  const Scene scene;
  Json pod = make_worker_pod(scene.seen.job, {.index = 1, .incarnation = 3, .round = 5});
  pod["metadata"].update({{"uid", "u"},
                          {"resourceVersion", "7"},
                          {"creationTimestamp", "2026-01-01T00:00:00Z"},
                          {"deletionTimestamp", "2026-01-02T00:00:00Z"},
                          {"managedFields", Json::array({{{"manager", "kubelet"}}})}});
  pod["spec"]["nodeName"] = "m";
  const Json ended = {{"exitCode", 137}, {"reason", "OOMKilled"}, {"message", "gone"}};
  const Json waits = {{"waiting", {{"reason", "ErrImagePull"}, {"message", "m"}}}};
  pod["status"] = {
      {"phase", "Failed"},
      {"podIP", "10.0.0.1"},
      {"hostIP", "10.0.0.2"},
      {"conditions", Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})},
      {"initContainerStatuses", Json::array({{{"name", "copy"}, {"state", waits}}})},
      {"containerStatuses", Json::array({{{"name", "node"}, {"state", {{"terminated", ended}}}}})}};
  const std::optional<PodView> before = pod_view_from_json(pod);
  ASSERT_TRUE(before);
  pod = trimmed_pod(pod);
  EXPECT_EQ(pod_view_from_json(pod), before);
  EXPECT_EQ(pod["metadata"]["resourceVersion"], "7");
  EXPECT_EQ(pod["spec"], Json({{"nodeName", "m"}}));
  EXPECT_FALSE(pod["metadata"].contains("managedFields"));
  for (Json odd : {Json(), Json::array({1}), Json{{"metadata", 1}, {"spec", Json::array()}}})
    EXPECT_EQ(trimmed_pod(odd), (Json{{"metadata", Json::object()}}));
}

TEST(PodView, WhatIsKeptOfAPodThatRunsIsLittle) {
  const Scene scene;
  Json pod = make_worker_pod(scene.seen.job, {.index = 1, .incarnation = 3, .round = 5});
  pod["status"] = {{"phase", "Running"}, {"podIP", "10.0.0.1"}};
  for (const char* type : {"Initialized", "Ready", "ContainersReady", "PodScheduled"}) {
    pod["status"]["conditions"].push_back({{"type", type}, {"status", "True"}});
  }
  const Json runs = {{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}};
  pod["status"]["containerStatuses"] = Json::array({{{"name", "node"}, {"state", runs}}});
  const Json kept = trimmed_pod(pod);
  EXPECT_EQ(pod_view_from_json(kept), pod_view_from_json(pod));
  const Json scheduled = {{"type", "PodScheduled"}, {"status", "True"}};
  EXPECT_EQ(kept.at("status"), (Json{{"phase", "Running"},
                                     {"podIP", "10.0.0.1"},
                                     {"conditions", Json::array({scheduled})},
                                     {"initContainerStatuses", Json::array()},
                                     {"containerStatuses", Json::array()}}));
}

TEST(PodView, OfWhatOthersPutOnAPodNothingIsKept) {
  const Scene scene;
  Json pod = make_worker_pod(scene.seen.job, {.index = 1, .incarnation = 3, .round = 5});
  const std::string large(100'000, 'x');
  pod["metadata"]["annotations"]["other/notes"] = large;
  pod["metadata"]["labels"]["other"] = large;
  pod["metadata"]["ownerReferences"].push_back({{"kind", "Thing"}, {"uid", large}});
  EXPECT_LT(dump_json(trimmed_pod(pod)).size(), 2000u);
  EXPECT_EQ(pod_view_from_json(trimmed_pod(pod)), pod_view_from_json(pod));
  pod["metadata"]["ownerReferences"][0]["kind"] = "Job";  // another owner's pod with our labels
  pod["metadata"]["uid"] = "u";
  EXPECT_EQ(trimmed_pod(pod), (Json{{"metadata",
                                     {{"name", "job-worker-1-3"},
                                      {"namespace", scene.seen.job.metadata.namespace_},
                                      {"uid", "u"}}}}));
}

TEST(PodView, DocumentsOfAnyShapeAreBorne) {
  EXPECT_FALSE(pod_view_from_json(Json()));
  EXPECT_FALSE(pod_view_from_json(Json::array()));
  EXPECT_FALSE(pod_view_from_json({{"metadata", {{"labels", {{kNodeIndexLabel, "x"}}}}}}));
  Json pod = {{"metadata", {{"labels", {{kNodeIndexLabel, "0"}, {kIncarnationLabel, "1"}}}}}};
  for (const char* key : {"status", "spec"}) {
    pod[key] = Json::array({1});
    EXPECT_TRUE(pod_view_from_json(pod));
    pod[key] = {{"containerStatuses", {{"a", 1}}}, {"conditions", 7}, {"phase", 3}};
    EXPECT_TRUE(pod_view_from_json(pod));
  }
}

}  // namespace
}  // namespace lockstep::plan
