// kubectl on objects: create, change, delete.
#include <gtest/gtest.h>

#include "tests/e2e/kubectl_fixture.h"

namespace lockstep::test {
namespace {

std::string map_text(const std::string& data, const std::string& name = "settings") {
  return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: " + data + "\n";
}

class KubectlObjectsTest : public KubectlTest {
 protected:
  // Creates a ConfigMap `settings` with this data.
  void make_map(const std::string& data) { ok("create -f " + file("made.yaml", map_text(data))); }
  Json data() { return object("configmap settings")["data"]; }
};

TEST_P(KubectlObjectsTest, ApplyCreatesChangesAndLeavesAlone) {
  const std::string path = file("map.yaml", map_text("{a: '1', b: '2'}"));
  EXPECT_EQ(ok("apply -f " + path), "configmap/settings created\n");
  EXPECT_EQ(ok("apply -f " + path), "configmap/settings unchanged\n");
  ok("patch configmap settings --type=merge -p {\"data\":{\"c\":\"other\"}}");
  file("map.yaml", map_text("{a: '3'}"));
  EXPECT_EQ(ok("apply -f " + path), "configmap/settings configured\n");
  EXPECT_EQ(data(), Json({{"a", "3"}, {"c", "other"}})) << "b was the file's, c is not";
}

TEST_P(KubectlObjectsTest, ApplyOfATrainingJobTakesOutWhatTheFileNoLongerHas) {
  const std::string path = job_file({.more = "  suspend: true\n  failure: {maxRestarts: 3}\n"});
  EXPECT_EQ(ok("apply -f " + path), "trainingjob.lockstep.dev/tiny created\n");
  EXPECT_EQ(ok("apply -f " + path), "trainingjob.lockstep.dev/tiny unchanged\n");
  EXPECT_EQ(object("tj tiny")["metadata"]["generation"], 1);
  job_file({.more = "  suspend: true\n"});
  EXPECT_EQ(ok("apply -f " + path), "trainingjob.lockstep.dev/tiny configured\n");
  const Json job = object("tj tiny");
  EXPECT_FALSE(job["spec"].contains("failure"));
  EXPECT_EQ(job["metadata"]["generation"], 2);
}

TEST_P(KubectlObjectsTest, ApplyTakesAFileOfSeveralObjects) {
  const std::string path =
      file("both.yaml", map_text("{a: '1'}") + "---\n" + map_text("{a: '2'}", "more"));
  EXPECT_EQ(ok("apply -f " + path), "configmap/settings created\nconfigmap/more created\n");
  EXPECT_EQ(ok("delete -f " + path + " --wait=false -o name"),
            "configmap/settings\nconfigmap/more\n");
}

TEST_P(KubectlObjectsTest, ServerSideApplyKeepsManagersApart) {
  const std::string mine = file("mine.yaml", map_text("{a: '1', b: '1'}"));
  const std::string theirs = file("theirs.yaml", map_text("{a: '2', c: '2'}"));
  EXPECT_EQ(ok("apply --server-side -f " + mine), "configmap/settings serverside-applied\n");
  const std::string error = refused("apply --server-side --field-manager=them -f " + theirs);
  EXPECT_TRUE(has(error, "conflict"));
  EXPECT_TRUE(has(error, "\"kubectl\""));
  EXPECT_TRUE(has(error, ".data.a"));
  EXPECT_EQ(data(), Json({{"a", "1"}, {"b", "1"}}));
  ok("apply --server-side --field-manager=them --force-conflicts -f " + theirs);
  EXPECT_EQ(data(), Json({{"a", "2"}, {"b", "1"}, {"c", "2"}}));
  file("mine.yaml", map_text("{d: '1'}"));
  ok("apply --server-side -f " + mine);
  EXPECT_EQ(data(), Json({{"a", "2"}, {"c", "2"}, {"d", "1"}})) << "b was mine alone";
}

TEST_P(KubectlObjectsTest, ServerSideApplyOfATrainingJob) {
  const std::string path = job_file({.more = "  suspend: true\n"});
  EXPECT_EQ(ok("apply --server-side -f " + path),
            "trainingjob.lockstep.dev/tiny serverside-applied\n");
  EXPECT_EQ(ok("apply --server-side -f " + path),
            "trainingjob.lockstep.dev/tiny serverside-applied\n");
  EXPECT_EQ(object("tj tiny")["metadata"]["generation"], 1);
  ok("patch tj tiny --type=merge -p {\"spec\":{\"suspend\":false,\"nodes\":2}}");
  const std::string error = refused("apply --server-side -f " + path);
  EXPECT_TRUE(has(error, ".spec.nodes"));
  EXPECT_TRUE(has(error, ".spec.suspend"));
  EXPECT_TRUE(has(error, "--force-conflicts"));
}

TEST_P(KubectlObjectsTest, CreateRefusesWhatIsThere) {
  const std::string path = file("map.yaml", map_text("{a: '1'}"));
  EXPECT_EQ(ok("create -f " + path), "configmap/settings created\n");
  EXPECT_TRUE(has(refused("create -f " + path), "(AlreadyExists): error when creating \"" + path +
                                                    "\": configmaps \"settings\" already exists"));
}

TEST_P(KubectlObjectsTest, CreateMakesSmallObjectsFromItsArguments) {
  EXPECT_EQ(ok("create configmap m --from-literal=a=b"), "configmap/m created\n");
  EXPECT_EQ(object("configmap m")["data"], Json({{"a", "b"}}));
  EXPECT_EQ(ok("create secret generic s --from-literal=a=b"), "secret/s created\n");
  EXPECT_EQ(object("secret s")["data"], Json({{"a", "Yg=="}}));
  EXPECT_EQ(object("secret s")["type"], "Opaque");
  EXPECT_EQ(ok("create service clusterip v --tcp=80:8080"), "service/v created\n");
  EXPECT_EQ(table("get service v").cell("v", "PORT(S)"), "80/TCP");
  EXPECT_EQ(ok("create namespace " + namespace_name() + "-x"),
            "namespace/" + namespace_name() + "-x created\n");
  EXPECT_TRUE(has(ok("delete namespace " + namespace_name() + "-x"), "deleted"));
}

TEST_P(KubectlObjectsTest, ANameCanBeLeftToTheServer) {
  const std::string path = file("map.yaml",
                                "apiVersion: v1\nkind: ConfigMap\n"
                                "metadata: {generateName: settings-}\n");
  const std::string made = ok("create -f " + path);
  EXPECT_TRUE(made.starts_with("configmap/settings-")) << made;
  EXPECT_NE(made, ok("create -f " + path));
}

TEST_P(KubectlObjectsTest, ReplaceWritesTheWholeObject) {
  make_map("{a: '1', b: '2'}");
  EXPECT_EQ(ok("replace -f " + file("map.yaml", map_text("{c: '3'}"))),
            "configmap/settings replaced\n");
  EXPECT_EQ(data(), Json({{"c", "3"}}));
}

TEST_P(KubectlObjectsTest, PatchesOfThreeKinds) {
  make_map("{a: '1', b: '2'}");
  EXPECT_EQ(ok("patch configmap settings -p {\"data\":{\"a\":\"9\",\"b\":null}}"),
            "configmap/settings patched\n");
  EXPECT_EQ(data(), Json({{"a", "9"}}));
  EXPECT_EQ(ok("patch configmap settings --type=merge -p {\"data\":{\"c\":\"3\"}}"),
            "configmap/settings patched\n");
  EXPECT_EQ(ok("patch configmap settings --type=merge -p {\"data\":{\"c\":\"3\"}}"),
            "configmap/settings patched (no change)\n");
  ok("patch configmap settings --type=json -p "
     "'[{\"op\":\"test\",\"path\":\"/data/c\",\"value\":\"3\"},"
     "{\"op\":\"move\",\"from\":\"/data/c\",\"path\":\"/data/d\"}]'");
  EXPECT_EQ(data(), Json({{"a", "9"}, {"d", "3"}}));
  refused(
      "patch configmap settings --type=json -p "
      "'[{\"op\":\"test\",\"path\":\"/data/d\",\"value\":\"4\"}]'");
  EXPECT_TRUE(has(refused("patch configmap nope --type=merge -p {\"data\":{}}"),
                  "configmaps \"nope\" not found"));
}

TEST_P(KubectlObjectsTest, AStrategicPatchMergesContainersByName) {
  ok("apply -f " + file("pod.yaml", R"(
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  nodeSelector: {nowhere: 'true'}
  containers:
  - {name: one, image: first, command: [sleep, '1']}
  - {name: two, image: first, command: [sleep, '1']}
)"));
  ok("patch pod p -p {\"spec\":{\"containers\":[{\"name\":\"two\",\"image\":\"second\"}]}}");
  EXPECT_EQ(ok("get pod p -o jsonpath='{.spec.containers[*].name} {.spec.containers[*].image}'"),
            "one two first second");
}

TEST_P(KubectlObjectsTest, AStrategicPatchOfACustomResourceIsRefusedWithWords) {
  ok("apply -f " + job_file({.more = "  suspend: true\n"}));
  const std::string error = refused("patch tj tiny -p {\"spec\":{\"nodes\":2}}");
  EXPECT_TRUE(has(error, "accepted media types include"));
  EXPECT_TRUE(has(error, "merge-patch+json"));
  EXPECT_EQ(ok("patch tj tiny --type=merge -p {\"spec\":{\"nodes\":2}}"),
            "trainingjob.lockstep.dev/tiny patched\n");
  ok("patch tj tiny --type=json -p "
     "[{\"op\":\"replace\",\"path\":\"/spec/nodes\",\"value\":1}]");
  EXPECT_EQ(object("tj tiny")["spec"]["nodes"], 1);
}

TEST_P(KubectlObjectsTest, EditWritesBackWhatTheEditorLeft) {
  make_map("{a: 'before'}");
  editor("sed -i s/before/after/ \"$1\"");
  EXPECT_EQ(ok("edit configmap settings"), "configmap/settings edited\n");
  EXPECT_EQ(data(), Json({{"a", "after"}}));
  editor("true");
  EXPECT_TRUE(has(kubectl("edit configmap settings").errors, "no changes made"));
  ok("apply -f " + job_file({.more = "  suspend: true\n"}));
  editor("sed -i 's/nodes: 1/nodes: 2/' \"$1\"");
  EXPECT_EQ(ok("edit trainingjob tiny"), "trainingjob.lockstep.dev/tiny edited\n");
  EXPECT_EQ(object("tj tiny")["spec"]["nodes"], 2);
}

TEST_P(KubectlObjectsTest, LabelAndAnnotate) {
  make_map("{a: '1'}");
  EXPECT_EQ(ok("label configmap settings tier=front"), "configmap/settings labeled\n");
  EXPECT_TRUE(has(refused("label configmap settings tier=back"), "--overwrite is false"));
  ok("label configmap settings tier=back --overwrite");
  EXPECT_EQ(object("configmap settings")["metadata"]["labels"], Json({{"tier", "back"}}));
  ok("label configmap settings tier-");
  EXPECT_FALSE(object("configmap settings")["metadata"].contains("labels"));
  EXPECT_EQ(ok("annotate configmap settings why=because"), "configmap/settings annotated\n");
  EXPECT_EQ(object("configmap settings")["metadata"]["annotations"]["why"], "because");
  refused("label configmap settings 'tier=not a label'");
}

TEST_P(KubectlObjectsTest, DiffSaysWhatApplyWouldChange) {
  const std::string path = file("map.yaml", map_text("{a: '1'}"));
  ok("apply -f " + path);
  EXPECT_EQ(ok("diff -f " + path), "");
  file("map.yaml", map_text("{a: '7'}"));
  const Outcome diff = kubectl("diff -f " + path);
  EXPECT_EQ(diff.code, 1) << diff.errors;
  EXPECT_TRUE(has(diff.output, "-  a: \"1\""));
  EXPECT_TRUE(has(diff.output, "+  a: \"7\""));
  EXPECT_EQ(data(), Json({{"a", "1"}}));
}

TEST_P(KubectlObjectsTest, ADryRunChangesNothing) {
  const std::string path = file("map.yaml", map_text("{a: '1'}"));
  EXPECT_EQ(ok("apply --dry-run=server -f " + path),
            "configmap/settings created (server dry run)\n");
  EXPECT_EQ(ok("apply --dry-run=client -f " + path), "configmap/settings created (dry run)\n");
  EXPECT_TRUE(has(refused("get configmap settings"), "NotFound"));
  ok("apply -f " + path);
  file("map.yaml", map_text("{a: '2'}"));
  EXPECT_TRUE(has(ok("apply --dry-run=server -o yaml -f " + path), "a: \"2\""));
  ok("delete configmap settings --dry-run=server");
  EXPECT_EQ(data(), Json({{"a", "1"}}));
  EXPECT_TRUE(
      has(ok("create configmap other --from-literal=a=b --dry-run=client -o yaml"), "name: other"));
}

TEST_P(KubectlObjectsTest, ADryRunOnTheServerFindsMistakes) {
  const std::string path = job_file({.nodes = 0});
  EXPECT_TRUE(has(refused("create --dry-run=server -f " + path), "spec.nodes"));
}

TEST_P(KubectlObjectsTest, AMistakeIsNamedByItsPath) {
  // The wording differs by version: old ones check before they send, new ones ask the server.
  EXPECT_TRUE(has(refused("apply -f " + job_file({.more = "  nodez: 3\n"})), "nodez"));
  EXPECT_TRUE(has(refused("apply -f " + job_file({.more = "  suspend: perhaps\n"})), "suspend"));
  const std::string range = refused("apply -f " + job_file({.nodes = 100'000}));
  EXPECT_TRUE(has(range, "The TrainingJob \"tiny\" is invalid"));
  EXPECT_TRUE(has(range, "spec.nodes: Invalid value: 100000"));
  EXPECT_TRUE(has(range, "less than or equal to 4096"));
  EXPECT_TRUE(has(refused("get tj tiny"), "trainingjobs.lockstep.dev \"tiny\" not found"));
}

TEST_P(KubectlObjectsTest, WithoutValidationAnUnknownFieldIsDropped) {
  ok("apply --validate=false -f " + job_file({.more = "  suspend: true\n  nodez: 3\n"}));
  EXPECT_FALSE(object("tj tiny")["spec"].contains("nodez"));
}

TEST_P(KubectlObjectsTest, DeleteByNameLabelFileAndAll) {
  for (const char* name : {"a", "b", "c", "d", "e"})
    ok("create configmap " + std::string(name) + " --from-literal=a=b");
  ok("label configmap b c tier=front");
  EXPECT_TRUE(has(ok("delete configmap a"), "configmap \"a\" deleted"));
  const std::string labelled = ok("delete configmap -l tier=front");
  EXPECT_TRUE(has(labelled, "configmap \"b\" deleted"));
  EXPECT_TRUE(has(labelled, "configmap \"c\" deleted"));
  EXPECT_TRUE(has(ok("delete configmap d -o name"), "configmap/d"));
  EXPECT_TRUE(has(refused("delete configmap d"), "configmaps \"d\" not found"));
  ok("delete configmap d --ignore-not-found");
  EXPECT_TRUE(has(ok("delete configmap --all"), "configmap \"e\" deleted"));
  EXPECT_EQ(ok("get configmap -o name"), "");
}

TEST_P(KubectlObjectsTest, DeleteOfAnOwnerTakesOrLeavesItsDependents) {
  for (const char* cascade : {"background", "foreground", "orphan"}) {
    SCOPED_TRACE(cascade);
    make_map("{a: '1'}");
    const std::string uid = object("configmap settings")["metadata"]["uid"];
    ok("create -f " + file("child.yaml",
                           "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: child\n"
                           "  ownerReferences: [{apiVersion: v1, kind: ConfigMap, "
                           "name: settings, uid: " +
                               uid + ", blockOwnerDeletion: true}]\n"));
    ok("delete configmap settings --cascade=" + std::string(cascade));
    refused("get configmap settings");
    if (std::string(cascade) == "orphan") {
      EXPECT_FALSE(object("configmap child")["metadata"].contains("ownerReferences"));
      ok("delete configmap child");
    } else if (std::string(cascade) == "foreground") {
      refused("get configmap child");
    } else {
      EXPECT_TRUE(eventually_gone("configmap child"));
    }
  }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Kubectl, KubectlObjectsTest, testing::ValuesIn(kubectls()),
                         [](const auto& info) { return version_of(info.param); });

}  // namespace lockstep::test
