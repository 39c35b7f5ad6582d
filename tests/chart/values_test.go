package main

import (
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestEveryValueIsCommented(t *testing.T) {
	rows, err := valueRows([]byte(read(t, "charts/lockstep/values.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if !strings.HasSuffix(row.Comment, ".") {
			t.Errorf("%s: expected a comment of whole sentences above it, found %q", row.Path, row.Comment)
		}
	}
	if len(rows) < 40 {
		t.Errorf("only %d values", len(rows))
	}
}

// leaves returns the paths of all values that are not objects with members.
func leaves(values map[string]interface{}, prefix []string) [][]string {
	var paths [][]string
	for key, value := range values {
		path := append(append([]string{}, prefix...), key)
		if object, ok := value.(map[string]interface{}); ok && len(object) > 0 {
			paths = append(paths, leaves(object, path)...)
		} else {
			paths = append(paths, path)
		}
	}
	sort.Slice(paths, func(a, b int) bool { return fmt.Sprint(paths[a]) < fmt.Sprint(paths[b]) })
	return paths
}

func nested(keys []string, value interface{}) map[string]interface{} {
	for i := len(keys) - 1; i > 0; i-- {
		value = map[string]interface{}{keys[i]: value}
	}
	return map[string]interface{}{keys[0]: value}
}

// everything returns an installation in which every value has an effect.
func everything() Input {
	return Input{Release: "r", Namespace: "n", Service: "Helm", KubeVersion: "v1.33.0", FixedRandoms: true,
		Values: map[string]interface{}{
			"monitoring":    map[string]interface{}{"prometheusOperator": "Always", "dashboards": true},
			"networkPolicy": map[string]interface{}{"enabled": true},
		}}
}

// Values other than the default, by the last key of their path. Values that are not listed are
// booleans, numbers or names.
var others = map[string]string{
	"affinity": "{nodeAffinity: {}}", "drop": "[KILL]", "jobNamespaces": "[a]", "apiServerPorts": "[1]", "digest": "sha256:" + strings.Repeat("a", 64),
	"imagePullSecrets": "[{name: a}]", "interval": "1m", "logFormat": "text", "podPolicy": "restricted", "serviceAccounts": "[a, b/c]", "metricsFrom": "[{ipBlock: {cidr: 10.0.0.0/8}}]",
	"nodeSelector": "{a: b}", "podAnnotations": "{a: b}", "podLabels": "{a: b}", "annotations": "{a: b}",
	"labels": "{a: b}", "prometheusOperator": "Never", "pullPolicy": "Never", "rules": "Never",
	"tolerations": "[{operator: Exists}]", "cpu": `"7"`, "memory": "7Gi", "grafana_dashboard": `"2"`,
}

func otherThan(t *testing.T, path []string, value interface{}) interface{} {
	if text, ok := others[path[len(path)-1]]; ok {
		var other interface{}
		if err := yaml.Unmarshal([]byte(text), &other); err != nil {
			t.Fatal(err)
		}
		return other
	}
	switch value := value.(type) {
	case bool:
		return !value
	case float64:
		return value + 1
	case string:
		return "other"
	}
	t.Fatalf("%s: add another value to the test", path)
	return nil
}

func TestEveryValueChangesSomething(t *testing.T) {
	chart := theChart(t)
	base := everything()
	before, err := chart.render(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range leaves(chart.Values, nil) {
		last := len(path) - 1
		inFile := at(merged(chart.Values, base.Values), path[:last]...)
		input := base
		input.Values = merged(base.Values, nested(path, otherThan(t, path, inFile[path[last]])))
		after, err := chart.render(input)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else if reflect.DeepEqual(before, after) {
			t.Errorf("%s: changes nothing", path)
		}
	}
}

// Values are missing if those of an older chart are reused (helm upgrade --reuse-values), or if
// somebody removes one with null.
func TestAMissingValueIsNamedOrMeansNothing(t *testing.T) {
	chart := theChart(t)
	base := everything()
	before, err := chart.render(base)
	if err != nil {
		t.Fatal(err)
	}
	paths := leaves(chart.Values, nil)
	for section, value := range chart.Values {
		if _, ok := value.(map[string]interface{}); ok {
			paths = append(paths, []string{section})
		}
	}
	for _, path := range paths {
		last := len(path) - 1
		old := *chart
		old.Values = without(chart.Values, path)
		input := base
		input.Values = without(base.Values, path)
		after, err := old.render(input)
		if err != nil {
			if !strings.Contains(err.Error(), path[last]+" is required") {
				t.Errorf("%v: expected words that name it, found %v", path, err)
			}
			continue
		}
		value := at(chart.Values, path[:last]...)[path[last]]
		text, _ := yaml.Marshal(value)
		isEmpty := regexp.MustCompile(`^(""|\[\]|\{\})$`).MatchString(strings.TrimSpace(string(text)))
		isOpen := len(path) > 2 // a member of a Kubernetes type
		if isEmpty != reflect.DeepEqual(before, after) || !isEmpty && !isOpen {
			t.Errorf("%v: is %v, and may not be missing", path, value)
		}
	}
}

func without(values map[string]interface{}, path []string) map[string]interface{} {
	result := merged(values, nil)
	if len(path) == 1 {
		delete(result, path[0])
	} else if below, ok := result[path[0]].(map[string]interface{}); ok {
		result[path[0]] = without(below, path[1:])
	}
	return result
}

func TestValuesThatTheChartDoesNotKnowAreRefused(t *testing.T) {
	chart := theChart(t)
	for _, path := range []string{"controler", "controller.replica", "image.Tag", "monitoring.alert.x", "crd.keeps"} {
		input := everything()
		input.Values = nested(strings.Split(path, "."), "x")
		if _, err := chart.render(input); err == nil {
			t.Errorf("%s: accepted", path)
		}
	}
	for _, text := range []string{"{controller: {replicas: two}}", "{controller: {port: 80}}", "{crd: {rules: auto}}",
		"{jobs: {agentSilenceSeconds: 4}}", "{jobs: {podPolicy: Baseline}}", "{jobs: {serviceAccounts: [A]}}", "{jobs: {serviceAccounts: [a/b/c]}}",
		"{jobs: {agentSilenceSeconds: 301}}", "{jobs: {agentSilenceSeconds: 7.5}}",
		"{image: {digest: latest}}", "{controller: {resources: {limits: {memory: much}}}}"} {
		input := everything()
		if err := yaml.Unmarshal([]byte(text), &input.Values); err != nil {
			t.Fatal(err)
		}
		if _, err := chart.render(input); err == nil {
			t.Errorf("%s: accepted", text)
		}
	}
}
