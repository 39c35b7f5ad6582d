package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// isOld returns whether this is kubectl 1.20, whose kustomize accepts no folders as resources.
func isOld(t *testing.T, kubectl string) bool {
	t.Helper()
	version, err := exec.Command(kubectl, "version", "--client", "--output=yaml").Output()
	if err != nil {
		t.Fatalf("%s: %v", kubectl, err)
	}
	return strings.Contains(string(version), "gitVersion: v1.20.")
}

// An old kubectl builds only the overlay for old servers.
func TestKustomizeBuildsTheOverlays(t *testing.T) {
	kubectls := os.Getenv("LOCKSTEP_KUBECTLS")
	if kubectls == "" {
		t.Skip("LOCKSTEP_KUBECTLS names no kubectl")
	}
	for _, kubectl := range strings.Split(kubectls, ":") {
		overlays := []string{"default", "kubernetes-1.20", "kubernetes-1.25", "monitoring"}
		if isOld(t, kubectl) {
			overlays = []string{"kubernetes-1.20"}
		}
		for _, overlay := range overlays {
			made, err := exec.Command(kubectl, "kustomize", filepath.Join(root, "deploy/overlays", overlay)).Output()
			if err != nil {
				t.Errorf("%s kustomize %s: %v", kubectl, overlay, err)
				continue
			}
			count := strings.Count("\n"+string(made), "\nkind: ")
			isOld := strings.Contains(string(made), "apiVersion: policy/v1beta1")
			hasRules := strings.Contains(string(made), "x-kubernetes-validations")
			old, newest := overlay == "kubernetes-1.20", overlay == "default" || overlay == "monitoring"
			if count < 13 || isOld != old || hasRules != newest {
				t.Errorf("%s kustomize %s: %d objects, policy/v1beta1: %v, rules: %v", kubectl, overlay, count, isOld, hasRules)
			}
		}
	}
}

// The blocks of deploy/README.md that are overlays. A block of operations alone continues the first overlay.
func overlaysOfTheReadme(t *testing.T) []string {
	text := read(t, "deploy/README.md")
	var overlays []string
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(block[1], " ") {
			if len(overlays) == 0 {
				t.Fatalf("deploy/README.md: no overlay comes before the operations\n%s", block[1])
			}
			overlays = append(overlays, overlays[0]+block[1])
		} else {
			overlays = append(overlays, block[1])
		}
	}
	return overlays
}

func TestKustomizeBuildsTheOverlaysOfTheReadme(t *testing.T) {
	kubectls := strings.Split(os.Getenv("LOCKSTEP_KUBECTLS"), ":")
	newest := kubectls[len(kubectls)-1]
	if newest == "" || isOld(t, newest) {
		t.Skip("LOCKSTEP_KUBECTLS names no kubectl that takes folders as resources")
	}
	overlays := overlaysOfTheReadme(t)
	image := fmt.Sprintf("registry.example.com/lockstep:%v", theChart(t).Metadata["appVersion"])
	isDone := []func(made string) bool{
		func(made string) bool {
			return strings.Contains(made, "--job-image="+image) && strings.Contains(made, "image: "+image)
		},
		func(made string) bool {
			return strings.Contains(made, "--job-image="+image) &&
				strings.Contains(made, `--network-policy-metrics-from=[{"namespaceSelector": {"matchLabels": `+
					`{"kubernetes.io/metadata.name": "monitoring"}}}]`)
		},
		func(made string) bool {
			return !strings.Contains(made, "runAsUser") && !strings.Contains(made, "fsGroup") &&
				strings.Contains(made, "runAsNonRoot: true")
		},
	}
	if len(overlays) != len(isDone) {
		t.Fatalf("deploy/README.md: found %d overlays", len(overlays))
	}
	if !strings.Contains(read(t, "docs/cluster.md"), overlays[0]) {
		t.Errorf("docs/cluster.md does not have the first overlay of deploy/README.md:\n%s", overlays[0])
	}
	for i, overlay := range overlays {
		folder := t.TempDir()
		if out, err := exec.Command("cp", "-r", filepath.Join(root, "deploy"), folder).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		mine := filepath.Join(folder, "deploy/overlays/mine")
		if err := os.Mkdir(mine, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mine, "kustomization.yaml"), []byte(overlay), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(newest, "kustomize", mine).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s of\n%s", err, out, overlay)
		}
		// A list of arguments may be wrapped; YAML's folded lines count as one.
		if !isDone[i](regexp.MustCompile(`\n {8,}([^- ])`).ReplaceAllString(string(out), " $1")) {
			t.Errorf("%s: does not do what it is there for", overlay)
		}
	}
}
