package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

func theChart(t *testing.T) *Chart {
	t.Helper()
	chart, err := loadChart(filepath.Join(root, chartFolder))
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func theCases(t *testing.T) map[string]Input {
	t.Helper()
	files, err := filepath.Glob("cases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]Input{}
	for _, file := range files {
		input, err := readInput(file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		input.FixedRandoms = true
		cases[strings.TrimSuffix(filepath.Base(file), ".yaml")] = input
	}
	if len(cases) < 8 {
		t.Fatalf("only %d cases", len(cases))
	}
	return cases
}

func objects(t *testing.T, chart *Chart, input Input) []Document {
	t.Helper()
	rendered, err := chart.render(input)
	if err != nil {
		t.Fatal(err)
	}
	all, err := documents(rendered)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Compares each generated file with what tools/chart update would write.
func TestFilesThatAreMadeFromTheChartAreCurrent(t *testing.T) {
	files, err := outputs(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, expected := range files {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Errorf("%s: missing; tools/chart update writes it", name)
		} else if string(data) != expected {
			t.Errorf("%s: not what the chart makes; see git diff after tools/chart update. First change: %s",
				name, firstDifference(string(data), expected))
		}
	}
	byHand := map[string]bool{"kustomization.yaml": true, "namespace.yaml": true, "scrape.yaml": true}
	for _, folder := range madeFolders(files) {
		found, _ := filepath.Glob(filepath.Join(root, folder, "*.yaml"))
		for _, file := range found {
			name := filepath.Join(folder, filepath.Base(file))
			if _, ok := files[name]; !ok && !byHand[filepath.Base(name)] {
				t.Errorf("%s: nothing makes it", name)
			}
		}
	}
}

// madeFolders returns the folders of golden/ and deploy/ that hold generated files.
func madeFolders(files map[string]string) []string {
	folders := map[string]bool{}
	for name := range files {
		folder := filepath.Dir(name)
		if folder == goldenFolder || strings.HasPrefix(folder, "deploy") {
			folders[folder] = true
		}
	}
	var names []string
	for folder := range folders {
		names = append(names, folder)
	}
	return names
}

func firstDifference(found, expected string) string {
	a, b := strings.Split(found, "\n"), strings.Split(expected, "\n")
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("line %d, %q", i+1, a[i])
		}
	}
	return fmt.Sprintf("line %d is missing", len(a)+1)
}

var (
	objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)
	clusterish = map[string]bool{
		"ClusterRole": true, "ClusterRoleBinding": true, "CustomResourceDefinition": true}
)

func TestEveryObjectHasItsNameLabelsAndNamespace(t *testing.T) {
	chart := theChart(t)
	for name, input := range theCases(t) {
		seen := map[string]bool{}
		for _, document := range objects(t, chart, input) {
			where := fmt.Sprintf("%s: %s %s", name, document.kind(), document.str("metadata", "name"))
			if document.str("apiVersion") == "" || !objectName.MatchString(document.str("metadata", "name")) {
				t.Errorf("%s: expected an apiVersion, a kind and a name", where)
			}
			if document.str("metadata", "labels", "app.kubernetes.io/instance") != input.Release {
				t.Errorf("%s: expected the release's label", where)
			}
			namespace := document.str("metadata", "namespace")
			if clusterish[document.kind()] != (namespace == "") {
				t.Errorf("%s: its namespace is %q", where, namespace)
			} else if namespace != "" && !namespacesOf(input)[namespace] {
				t.Errorf("%s: in the namespace %q, of which the release knows nothing", where, namespace)
			}
			if seen[where+namespace] {
				t.Errorf("%s: twice", where)
			}
			seen[where+namespace] = true
		}
	}
}

// namespacesOf returns the namespaces that an installation's input names.
func namespacesOf(input Input) map[string]bool {
	known := map[string]bool{input.Namespace: true}
	if watched, ok := input.Values["watchNamespace"].(string); ok {
		known[watched] = true
	}
	ofJobs, _ := at(input.Values, "networkPolicy")["jobNamespaces"].([]interface{})
	for _, each := range ofJobs {
		known[each.(string)] = true
	}
	return known
}

func TestSelectorsFindThePodsOfTheDeployment(t *testing.T) {
	chart := theChart(t)
	for name, input := range theCases(t) {
		var labels map[string]interface{}
		all := objects(t, chart, input)
		for _, document := range all {
			if document.kind() == "Deployment" {
				labels = at(document.Object, "spec", "template", "metadata", "labels")
			}
		}
		for _, document := range all {
			var selector map[string]interface{}
			switch document.kind() {
			case "Deployment", "PodDisruptionBudget":
				selector = at(document.Object, "spec", "selector", "matchLabels")
			case "NetworkPolicy":
				if strings.HasSuffix(document.str("metadata", "name"), "-jobs") {
					continue
				}
				selector = at(document.Object, "spec", "podSelector", "matchLabels")
			case "Service":
				selector = at(document.Object, "spec", "selector")
			default:
				continue
			}
			if len(selector) == 0 {
				t.Errorf("%s: %s selects everything", name, document.kind())
			}
			for key, value := range selector {
				if labels[key] != value {
					t.Errorf("%s: %s selects %s=%v, the pods have %v", name, document.kind(), key, value, labels[key])
				}
			}
		}
	}
}

func at(object map[string]interface{}, keys ...string) map[string]interface{} {
	for _, key := range keys {
		object, _ = object[key].(map[string]interface{})
	}
	return object
}

func TestRolesAreNarrowAndReadNoSecrets(t *testing.T) {
	chart := theChart(t)
	rules := 0
	for name, input := range theCases(t) {
		for _, document := range objects(t, chart, input) {
			list, _ := document.Object["rules"].([]interface{})
			for _, each := range list {
				rule, _ := each.(map[string]interface{})
				checkRule(t, name+": "+document.str("metadata", "name"), rule)
				rules++
			}
			if input.Values["watchNamespace"] != nil && document.kind() == "ClusterRoleBinding" {
				t.Errorf("%s: a namespaced installation binds a ClusterRole", name)
			}
		}
	}
	if rules < 20 {
		t.Errorf("only %d rules were checked", rules)
	}
}

func checkRule(t *testing.T, where string, rule map[string]interface{}) {
	for _, group := range []string{"apiGroups", "resources", "verbs"} {
		entries, _ := rule[group].([]interface{})
		if len(entries) == 0 {
			t.Errorf("%s: a rule without %s", where, group)
		}
		for _, entry := range entries {
			if entry == "*" {
				t.Errorf("%s: %s: *", where, group)
			}
		}
	}
	resources := fmt.Sprint(rule["resources"])
	if strings.Contains(resources, "secrets") &&
		!reflect.DeepEqual(rule["verbs"], []interface{}{"create"}) {
		t.Errorf("%s: secrets may only be created, found %v", where, rule["verbs"])
	}
	for _, never := range []string{"pods/exec", "escalate", "bind", "impersonate"} {
		if strings.Contains(resources+fmt.Sprint(rule["verbs"]), never) {
			t.Errorf("%s: %s", where, never)
		}
	}
}

// Alerts and dashboards use only metrics that the programs export.
func TestAlertsAndDashboardsNameMetricsThatExist(t *testing.T) {
	quoted := regexp.MustCompile(`"((?:lockstep|workqueue|controller_runtime|rest_client|leader_election|process)_[a-z_]+)"`)
	exported := map[string]bool{}
	for _, source := range []string{"agent/node/metrics.cc", "common/api/step_number_table.cc", "controller/monitor/metrics.cc", "common/metrics/process.cc"} {
		for _, match := range quoted.FindAllStringSubmatch(read(t, source), -1) {
			exported[match[1]] = true
		}
	}
	used := regexp.MustCompile(`\b(?:lockstep|workqueue|controller_runtime|rest_client|leader_election|process)_[a-z_]+\b`)
	files := []string{"charts/lockstep/files/alerts.yaml"}
	dashboards, _ := filepath.Glob(filepath.Join(root, "charts/lockstep/files/dashboards/*.json"))
	for _, file := range dashboards {
		files = append(files, strings.TrimPrefix(file, root+"/"))
	}
	count := 0
	for _, file := range files {
		for _, name := range used.FindAllString(read(t, file), -1) {
			count++
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if !exported[name] && !exported[base] {
				t.Errorf("%s: no program exports %s", file, name)
			}
		}
	}
	if len(files) < 2 || count < 20 {
		t.Errorf("only %d names in %v", count, files)
	}
}

func TestEveryPanelHasADescriptionAUnitAndAQuery(t *testing.T) {
	var dashboard struct {
		UID    string `json:"uid"`
		Panels []struct {
			Title, Description string
			FieldConfig        struct{ Defaults struct{ Unit string } }
			Targets            []struct{ Expr, LegendFormat string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "charts/lockstep/files/dashboards/job.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID == "" || len(dashboard.Panels) < 10 {
		t.Fatalf("uid %q, %d panels", dashboard.UID, len(dashboard.Panels))
	}
	for _, panel := range dashboard.Panels {
		if panel.Title == "" || panel.Description == "" || panel.FieldConfig.Defaults.Unit == "" || len(panel.Targets) == 0 {
			t.Errorf("%q: expected title, description, unit and a query", panel.Title)
		}
		for _, target := range panel.Targets {
			if !strings.Contains(target.Expr, `namespace="$namespace", job="$job"`) || target.LegendFormat == "" {
				t.Errorf("%q: %s: expected one job's numbers, with a legend", panel.Title, target.Expr)
			}
		}
	}
}

func TestTheDefinitionIsThatOfTheServersVersion(t *testing.T) {
	chart := theChart(t)
	for version, hasRules := range map[string]bool{
		"v1.20.2": false, "v1.24.9": false, "v1.25.0": false, "v1.29.3-gke.1": false, "v1.30.0": true,
		"v1.30.0-rc.1": true, "v1.36.1-eks-1": true} {
		input := everything()
		input.KubeVersion = version
		rendered, err := chart.render(input)
		if err != nil {
			t.Fatal(err)
		}
		if found := strings.Contains(rendered["crd.yaml"], "x-kubernetes-validations"); found != hasRules {
			t.Errorf("%s: rules: %v", version, found)
		}
		if !strings.Contains(rendered["crd.yaml"], "helm.sh/resource-policy: keep") {
			t.Errorf("%s: an uninstallation would delete all jobs", version)
		}
	}
}

func TestTheVersionIsThatOfThePrograms(t *testing.T) {
	chart := theChart(t)
	if !strings.Contains(read(t, "common/base/version.h"), fmt.Sprintf("kVersion[] = %q", chart.Metadata["appVersion"])) {
		t.Errorf("Chart.yaml: appVersion %v isn't common/base/version.h's", chart.Metadata["appVersion"])
	}
}

// The container's flags are flags of the controller.
func TestTheControllerKnowsItsArguments(t *testing.T) {
	source := read(t, "controller/main.cc")
	input := everything()
	input.Values["watchNamespace"] = "team-a"
	input.Values["controller"] = map[string]interface{}{"verbose": true}
	input.Values["jobs"] = map[string]interface{}{"serviceAccounts": []interface{}{"a", "b/c"}}
	input.Values["networkPolicy"] = map[string]interface{}{"metricsFrom": []interface{}{map[string]interface{}{"podSelector": map[string]interface{}{}}}}
	rendered, err := theChart(t).render(input)
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`(?m)^ +- "?(--[a-z-]+)`).FindAllStringSubmatch(rendered["deployment.yaml"], -1)
	if len(flags) != 14 {
		t.Errorf("expected 14 flags, found %v", flags)
	}
	for _, flag := range flags {
		if !strings.Contains(source, `"`+flag[1]+`",`) {
			t.Errorf("%s: no flag of controller/main.cc", flag[1])
		}
	}
}

// NetworkPolicies of jobs' pods: every peer that may scrape the controller may scrape them too.
func TestThePoliciesOfJobsLetInTheControllerScrapesAndPeers(t *testing.T) {
	chart := theChart(t)
	for _, from := range []string{"[]", "[{ipBlock: {cidr: 10.0.0.0/8}}]"} {
		input := everything()
		var peers []interface{}
		if err := yaml.Unmarshal([]byte(from), &peers); err != nil {
			t.Fatal(err)
		}
		input.Values["networkPolicy"] = map[string]interface{}{"jobNamespaces": []interface{}{"a", "b"}, "metricsFrom": peers}
		count := 0
		for _, document := range objects(t, chart, input) {
			if document.kind() != "NetworkPolicy" {
				continue
			}
			count++
			if selected := at(document.Object, "spec", "podSelector", "matchLabels"); selected["app.kubernetes.io/managed-by"] != "lockstep" {
				t.Errorf("selects %v", selected)
			}
			rules, _ := at(document.Object, "spec")["ingress"].([]interface{})
			agents, _ := rules[0].(map[string]interface{})
			let, _ := agents["from"].([]interface{})
			if isAnybody := len(peers) == 0; isAnybody != (let == nil) ||
				!isAnybody && (len(let) != 2 || !reflect.DeepEqual(let[1], peers[0])) {
				t.Errorf("metricsFrom %s: lets in %v", from, let)
			}
		}
		if count != 2 {
			t.Errorf("expected a policy for each namespace, found %d", count)
		}
	}
}

// For NetworkPolicies of jobs, the controller needs a flag, its own pods as a peer, and rights.
func TestTheControllerMakesPoliciesOfJobsUnlessTheyAreOff(t *testing.T) {
	chart := theChart(t)
	for _, is := range []bool{true, false} {
		for _, from := range []string{"[]", "[{ipBlock: {cidr: 10.0.0.0/8}}]"} {
			input := everything()
			var peers []interface{}
			if err := yaml.Unmarshal([]byte(from), &peers); err != nil {
				t.Fatal(err)
			}
			input.Values["networkPolicy"] = map[string]interface{}{"jobs": is, "metricsFrom": peers}
			args, rights, labels := "", "", map[string]interface{}{}
			for _, document := range objects(t, chart, input) {
				if list, _ := document.Object["rules"].([]interface{}); document.kind() == "ClusterRole" {
					for _, each := range list {
						rule, _ := each.(map[string]interface{})
						if fmt.Sprint(rule["resources"]) == "[networkpolicies]" {
							rights = fmt.Sprint(rule["apiGroups"], rule["verbs"])
						}
					}
				}
				if document.kind() == "Deployment" {
					labels = at(document.Object, "spec", "template", "metadata", "labels")
					containers, _ := at(document.Object, "spec", "template", "spec")["containers"].([]interface{})
					args = fmt.Sprint(containers[0].(map[string]interface{})["args"])
				}
			}
			if strings.Contains(args, "--network-policies") != is || (rights != "") != is {
				t.Errorf("jobs: %t gives the arguments %s and the rights %q", is, args, rights)
			}
			if is && rights != "[networking.k8s.io] [create list watch update delete]" {
				t.Errorf("the rights are %s", rights)
			}
			metrics := `--network-policy-metrics-from=[{"ipBlock":{"cidr":"10.0.0.0/8"}}]`
			if strings.Contains(args, metrics) != (is && len(peers) > 0) {
				t.Errorf("metricsFrom %s gives %s", from, args)
			}
			own := regexp.MustCompile(`--network-policy-controller=(\{\S*\})`).FindStringSubmatch(args)
			if (own != nil) != (is && len(peers) > 0) {
				t.Errorf("metricsFrom %s gives %s", from, args)
			}
			if own == nil {
				continue
			}
			var peer map[string]interface{}
			if err := yaml.Unmarshal([]byte(own[1]), &peer); err != nil {
				t.Fatal(err)
			}
			if name := at(peer, "namespaceSelector", "matchLabels")["kubernetes.io/metadata.name"]; name != input.Namespace {
				t.Errorf("the controller's namespace is %v", name)
			}
			for key, value := range at(peer, "podSelector", "matchLabels") {
				if labels[key] != value {
					t.Errorf("selects %s=%v, the controller's pods have %v", key, value, labels[key])
				}
			}
		}
	}
}

// The controller without --network-policy-controller, as in deploy/: its default fits the manifests.
func TestTheDefaultPeerIsTheControllerOfTheManifests(t *testing.T) {
	source := read(t, "controller/plan/network_policy_peers.cc")
	manifests := read(t, "deploy/base/deployment.yaml")
	found := regexp.MustCompile(`\{"(app\.kubernetes\.io/\w+)", "(\w+)"\}`).FindAllStringSubmatch(source, -1)
	if len(found) != 2 {
		t.Fatalf("expected two labels, found %v", found)
	}
	for _, label := range found {
		if !strings.Contains(manifests, "        "+label[1]+": "+label[2]+"\n") {
			t.Errorf("the pods of deploy/base have no label %s=%s", label[1], label[2])
		}
	}
	if !strings.Contains(manifests, "- --network-policies\n") {
		t.Error("deploy/base makes no policies")
	}
}
