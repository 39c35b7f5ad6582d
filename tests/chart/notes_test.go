package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// pasted runs a text as if somebody pasted it into a shell. Its kubectl prints its arguments, then
// its input.
func pasted(t *testing.T, text string) string {
	t.Helper()
	folder := t.TempDir()
	kubectl := "#!/bin/sh\necho \"# $*\"\nexec cat\n"
	if err := os.WriteFile(filepath.Join(folder, "kubectl"), []byte(kubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("sh", "-eu")
	shell.Env = []string{"PATH=" + folder + ":/usr/bin:/bin"}
	shell.Stdin = strings.NewReader(text)
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s of\n%s", err, out, text)
	}
	return string(out)
}

func TestTheFirstJobOfTheNotesCanBePasted(t *testing.T) {
	chart := theChart(t)
	for name, input := range theCases(t) {
		rendered, err := chart.render(input)
		if err != nil {
			t.Fatal(err)
		}
		block := regexp.MustCompile(`(?ms)^kubectl[^\n]* apply -f - <<.*?^END\n`).FindString(rendered["NOTES.txt"])
		out := pasted(t, block+"echo the shell reads on\n")
		job := strings.TrimSuffix(out, "the shell reads on\n")
		if job == out {
			t.Fatalf("%s: the block does not end: %q", name, out)
		}
		arguments := "# apply -f -\n"
		if namespace, ok := input.Values["watchNamespace"].(string); ok {
			arguments = "# -n " + namespace + " apply -f -\n"
		}
		if !strings.HasPrefix(job, arguments) {
			t.Errorf("%s: expected %q, found %q", name, arguments, job)
		}
		checkFirstJob(t, job)
	}
}

func checkFirstJob(t *testing.T, text string) {
	t.Helper()
	var job map[string]interface{}
	if err := yaml.UnmarshalStrict([]byte(text), &job); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	command := []interface{}{"sh", "-c", `echo "rank $RANK of $WORLD_SIZE"`}
	if spec := at(job, "spec"); job["kind"] != "TrainingJob" || !reflect.DeepEqual(spec["command"], command) {
		t.Errorf("expected a TrainingJob that runs %v, found %v", command, job)
	}
	checkJob(t, text)
}

// checkJob checks a job with lockstep validate, if that program is built.
func checkJob(t *testing.T, text string) {
	t.Helper()
	program := os.Getenv("LOCKSTEP_PROGRAM")
	if _, err := os.Stat(program); err != nil {
		return
	}
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "validate", file).CombinedOutput(); err != nil {
		t.Errorf("lockstep validate: %s of\n%s", out, text)
	}
}

func TestTheNotesSayWhereAnImageWithoutARegistryIsLookedFor(t *testing.T) {
	chart := theChart(t)
	for repository, isTold := range map[string]bool{
		"": true, "lockstep": true, "registry.example.com/lockstep": false, "team/lockstep": false} {
		input := everything()
		if repository != "" {
			input.Values["image"] = map[string]interface{}{"repository": repository}
		}
		rendered, err := chart.render(input)
		if err != nil {
			t.Fatal(err)
		}
		if found := strings.Contains(rendered["NOTES.txt"], "docker push"); found != isTold {
			t.Errorf("%q: told: %v", repository, found)
		}
	}
}

// Checks the first code block of README.md's section on clusters.
func TestTheFirstExampleForClustersNeedsNoStorage(t *testing.T) {
	block := regexp.MustCompile("(?s)## On a cluster\n.*?```sh\n(.*?)```").FindStringSubmatch(read(t, "README.md"))
	if block == nil {
		t.Fatal("README.md: no commands for a cluster")
	}
	files := regexp.MustCompile(`-f (examples/\S+)`).FindAllStringSubmatch(block[1], -1)
	if len(files) != 1 {
		t.Fatalf("expected one example, found %v", files)
	}
	text := read(t, files[0][1])
	if strings.Contains(text, "persistentVolumeClaim") || strings.Contains(text, "checkpoint:") {
		t.Errorf("%s: needs storage", files[0][1])
	}
	// Replaces /data, which this machine doesn't have. Otherwise any node can run the job.
	data := filepath.Join(t.TempDir(), "kjv.txt")
	if err := os.WriteFile(data, []byte(strings.Repeat("In the beginning ", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	checkJob(t, strings.Replace(text, "/data/kjv.txt", data, 1))
}

func TestThePodTemplatesOfTheDocumentAreTaken(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "docs/trainingjob.md"), "\n## Pods: spec.podTemplate\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```yaml\n(spec:\n.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) < 5 {
		t.Fatalf("found only %d", len(blocks))
	}
	for _, block := range blocks {
		checkJob(t, "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: my-job}\n"+block[1])
	}
}
