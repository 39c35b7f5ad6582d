package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// A person who may write a job's status could make a new job look like one that has pods, which the
// pod policy spares.
func TestOnlyTheControllerWritesTheStatusOfJobs(t *testing.T) {
	chart := theChart(t)
	writers := map[string]bool{}
	for _, input := range theCases(t) {
		for _, document := range objects(t, chart, input) {
			list, _ := document.Object["rules"].([]interface{})
			for _, each := range list {
				rule, _ := each.(map[string]interface{})
				verbs := fmt.Sprint(rule["verbs"])
				if strings.Contains(fmt.Sprint(rule["resources"]), "trainingjobs/status") &&
					(strings.Contains(verbs, "update") || strings.Contains(verbs, "patch")) {
					writers[document.str("metadata", "name")] = true
				}
			}
		}
	}
	if len(writers) == 0 {
		t.Error("nobody writes the status")
	}
	for writer := range writers {
		if !strings.HasSuffix(writer, "-controller") {
			t.Errorf("%s may write the status of jobs", writer)
		}
	}
}

// Names of a source's metrics.
func metricNames(t *testing.T, source string) []string {
	quoted := regexp.MustCompile(`"((?:lockstep|workqueue|controller_runtime|rest_client|leader_election|process)_[a-z_]+)"`)
	var names []string
	for _, match := range quoted.FindAllStringSubmatch(read(t, source), -1) {
		names = append(names, match[1])
	}
	return names
}

// The monitor of jobs' pods keeps all that agents export, and nothing that only the controller exports.
func TestPodsOfJobsHaveOnlyTheMetricsOfAgents(t *testing.T) {
	input := everything()
	for _, document := range objects(t, theChart(t), input) {
		if document.kind() != "PodMonitor" {
			continue
		}
		endpoints, _ := at(document.Object, "spec")["podMetricsEndpoints"].([]interface{})
		endpoint, _ := endpoints[0].(map[string]interface{})
		rules, _ := endpoint["metricRelabelings"].([]interface{})
		keep, _ := rules[0].(map[string]interface{})
		kept := regexp.MustCompile("^(?:" + fmt.Sprint(keep["regex"]) + ")$")
		agents := map[string]bool{}
		for _, source := range []string{"agent/node/metrics.cc", "common/api/step_number_table.cc", "common/metrics/process.cc"} {
			for _, name := range metricNames(t, source) {
				agents[name] = true
				if !kept.MatchString(name) {
					t.Errorf("%s: an agent's metric is dropped", name)
				}
			}
		}
		controllers := metricNames(t, "controller/monitor/metrics.cc")
		if len(agents) < 30 || len(controllers) < 20 {
			t.Errorf("only %d and %d names", len(agents), len(controllers))
		}
		for _, name := range controllers {
			if kept.MatchString(name) && !agents[name] {
				t.Errorf("%s: a pod could export a metric of the controller", name)
			}
		}
		return
	}
	t.Error("no PodMonitor")
}
