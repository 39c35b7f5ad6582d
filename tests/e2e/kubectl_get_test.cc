// kubectl commands that read: tables, other outputs, selectors, watches, and discovery.
#include <gtest/gtest.h>

#include "tests/e2e/kubectl_fixture.h"

namespace lockstep::test {
namespace {

using Words = std::vector<std::string>;

class KubectlGetTest : public KubectlTest {
 protected:
  // Creates three ConfigMaps in this order: b (front), a (back), c (back).
  void make_maps() {
    for (const char* name : {"b", "a", "c"})
      ok("create configmap " + std::string(name) + " --from-literal=key=" + name);
    ok("label configmap b tier=front");
    ok("label configmap a c tier=back");
  }
  Words names(const std::string& options) {
    return table("get configmaps " + options).column("NAME");
  }
};

TEST_P(KubectlGetTest, PrintsATableOfEachKind) {
  make_maps();
  EXPECT_EQ(table("get configmaps").headers(), (Words{"NAME", "DATA", "AGE"}));
  EXPECT_EQ(table("get configmaps").cell("a", "DATA"), "1");
  EXPECT_EQ(table("get pods,tj").rows(), 0u);
  EXPECT_EQ(table("get nodes").headers(), (Words{"NAME", "STATUS", "ROLES", "AGE", "VERSION"}));
  EXPECT_EQ(table("get nodes").column("STATUS"), Words(2, "Ready"));
  EXPECT_TRUE(has(ok("get nodes -o wide"), "CONTAINER-RUNTIME"));
  EXPECT_EQ(table("get namespaces").cell("default", "STATUS"), "Active");
  EXPECT_EQ(table("get crd").headers(), (Words{"NAME", "CREATED AT"}));
  EXPECT_EQ(table("get leases -A").headers(), (Words{"NAMESPACE", "NAME", "HOLDER", "AGE"}));
  EXPECT_TRUE(has(kubectl("get tj").errors, "No resources found in " + namespace_name()));
}

TEST_P(KubectlGetTest, PrintsOtherOutputs) {
  make_maps();
  EXPECT_EQ(ok("get configmap a -o name"), "configmap/a\n");
  EXPECT_TRUE(has(ok("get configmap a -o yaml"), "data:\n  key: a\n"));
  EXPECT_EQ(object("configmap a")["kind"], "ConfigMap");
  EXPECT_EQ(object("configmap -l tier=back")["kind"], "List");
  EXPECT_EQ(ok("get configmap a -o jsonpath={.data.key}"), "a");
  EXPECT_EQ(ok("get configmap -o jsonpath='{range .items[*]}{.metadata.name};{end}'"), "a;b;c;");
  EXPECT_EQ(ok("get configmap a -o go-template={{.data.key}}"), "a");
  EXPECT_EQ(ok("get configmap a -o custom-columns=N:.metadata.name,K:.data.key"),
            "N     K\na     a\n");
  EXPECT_EQ(table("get configmap --show-labels").cell("b", "LABELS"), "tier=front");
  EXPECT_EQ(table("get configmap -L tier").cell("b", "TIER"), "front");
  EXPECT_FALSE(has(ok("get configmap --no-headers"), "NAME"));
}

TEST_P(KubectlGetTest, SelectsAndSorts) {
  make_maps();
  EXPECT_EQ(names(""), (Words{"a", "b", "c"}));
  EXPECT_EQ(names("-l tier=front"), Words{"b"});
  EXPECT_EQ(names("-l tier!=front"), (Words{"a", "c"}));
  EXPECT_EQ(names("-l 'tier in (front, side)'"), Words{"b"});
  EXPECT_EQ(names("-l '!tier'"), Words{});
  EXPECT_EQ(names("--field-selector metadata.name=a"), Words{"a"});
  EXPECT_EQ(names("--field-selector metadata.name!=a"), (Words{"b", "c"}));
  EXPECT_EQ(names("--sort-by=.metadata.uid").size(), 3u);
  EXPECT_EQ(names("--sort-by={.metadata.labels.tier}").back(), "b");
  EXPECT_EQ(names("a c"), (Words{"a", "c"}));
  EXPECT_EQ(names("--chunk-size=2"), (Words{"a", "b", "c"}));
  EXPECT_EQ(table("get configmaps -A").cell(namespace_name(), "NAME"), "a");
  refused("get configmaps -l 'tier in (front'");
  refused("get configmaps --field-selector data.key=a");
}

TEST_P(KubectlGetTest, SaysWhatIsNotThere) {
  EXPECT_TRUE(has(refused("get configmap nope"),
                  "Error from server (NotFound): configmaps \"nope\" not found"));
  EXPECT_TRUE(has(refused("get widgets"), "the server doesn't have a resource type \"widgets\""));
}

TEST_P(KubectlGetTest, AWatchPrintsEachChange) {
  ok("create configmap first --from-literal=a=b");
  std::unique_ptr<Program> watch = start("get configmaps -w");
  auto printed = [&](size_t lines) {
    return eventually(
        [&] {
          const std::string text = watch->output();
          return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) >= lines;
        },
        30);
  };
  ASSERT_TRUE(printed(2)) << watch->errors();
  ok("create configmap other --from-literal=a=b");
  ASSERT_TRUE(printed(3)) << watch->output() << watch->errors();
  ok("patch configmap other --type=merge -p {\"data\":{\"c\":\"d\"}}");
  ASSERT_TRUE(printed(4)) << watch->output();
  ok("delete configmap other");
  ASSERT_TRUE(printed(5)) << watch->output();
  const PrintedTable table(watch->output());
  EXPECT_EQ(table.column("NAME"), (Words{"first", "other", "other", "other"}));
  EXPECT_EQ(table.column("DATA"), (Words{"1", "1", "2", "2"}));
}

TEST_P(KubectlGetTest, AWatchSaysWhatHappenedIfAsked) {
  std::unique_ptr<Program> watch = start("get configmaps --watch-only --output-watch-events");
  auto prints = [&](const char* line) {
    return eventually([&] { return watch->output().find(line) != std::string::npos; });
  };
  // The watch may begin after the first ConfigMap; then it sees a later one.
  EXPECT_TRUE(eventually([&] {
    kubectl("create configmap x --from-literal=a=b");
    kubectl("delete configmap x");
    return watch->output().find("ADDED") != std::string::npos;
  })) << watch->errors();
  EXPECT_TRUE(prints("DELETED")) << watch->output();
}

TEST_P(KubectlGetTest, TheServerSaysWhatItOffers) {
  const PrintedTable resources = table("api-resources");
  EXPECT_EQ(resources.cell("trainingjobs", "SHORTNAMES"), "tj");
  EXPECT_EQ(resources.cell("trainingjobs", "NAMESPACED"), "true");
  EXPECT_EQ(resources.cell("trainingjobs", "KIND"), "TrainingJob");
  for (const char* kind : {"pods", "secrets", "configmaps", "services", "events", "leases", "nodes",
                           "namespaces", "customresourcedefinitions"})
    EXPECT_NE(resources.cell(kind, "KIND"), "no such cell") << kind;
  EXPECT_EQ(ok("api-resources --api-group=lockstep.dev -o name"), "trainingjobs.lockstep.dev\n");
  const std::string versions = ok("api-versions");
  for (const char* version : {"lockstep.dev/v1alpha1\n", "apiextensions.k8s.io/v1\n",
                              "coordination.k8s.io/v1\n", "events.k8s.io/v1\n", "v1\n"})
    EXPECT_TRUE(has(versions, version));
  EXPECT_TRUE(has(ok("version"), "Server Version"));
  EXPECT_EQ(ok("get --raw /readyz"), "ok");
  EXPECT_TRUE(has(ok("cluster-info"), "is running at"));
}

TEST_P(KubectlGetTest, ExplainsTheFieldsOfATrainingJob) {
  const std::string spec = ok("explain trainingjob.spec");
  EXPECT_TRUE(has(spec, "TrainingJob"));
  EXPECT_TRUE(has(spec, "lockstep.dev"));
  EXPECT_TRUE(has(spec, "What to train, and on how many nodes."));
  EXPECT_TRUE(has(spec, "nodes\t<integer>"));
  EXPECT_TRUE(has(spec, "train\t<Object>"));
  EXPECT_TRUE(has(ok("explain trainingjob.spec --recursive"), "learningRate\t<number>"));
  EXPECT_TRUE(has(ok("explain tj.spec.nodes"), "Number of pods of the job, but for those"));
  EXPECT_TRUE(has(refused("explain tj.spec.nope"), "\"nope\" does not exist"));
  EXPECT_TRUE(has(ok("explain pod"), "Pod"));
}

TEST_P(KubectlGetTest, TopIsRefusedWithWords) {
  EXPECT_NE(refused("top nodes"), "");
  EXPECT_NE(refused("top pods"), "");
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Kubectl, KubectlGetTest, testing::ValuesIn(kubectls()),
                         [](const auto& info) { return version_of(info.param); });

}  // namespace lockstep::test
