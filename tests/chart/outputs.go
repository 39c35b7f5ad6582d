package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	chartFolder  = "charts/lockstep"
	casesFolder  = "tests/chart/cases"
	goldenFolder = "tests/chart/golden"
	deployFile   = "tests/chart/deploy.yaml"
)

// DeployFolder is a folder of deploy/ that is rendered from the chart, one file per template.
type DeployFolder struct {
	Folder    string   `json:"folder"`
	Templates []string `json:"templates"`
	Input     Input    `json:"input"`
}

// outputs returns the expected contents of all files that are generated from the chart, by path:
// the golden files, deploy/ and the chart's README.
func outputs(root string) (map[string]string, error) {
	chart, err := loadChart(filepath.Join(root, chartFolder))
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	cases, err := filepath.Glob(filepath.Join(root, casesFolder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range cases {
		text, err := goldenOf(chart, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		files[filepath.Join(goldenFolder, filepath.Base(file))] = text
	}
	if err := addDeploy(root, chart, files); err != nil {
		return nil, err
	}
	source, err := os.ReadFile(filepath.Join(root, chartFolder, "README.md.in"))
	if err != nil {
		return nil, err
	}
	values, err := os.ReadFile(filepath.Join(root, chartFolder, "values.yaml"))
	if err != nil {
		return nil, err
	}
	text, err := readme(string(source), values)
	files[filepath.Join(chartFolder, "README.md")] = text
	return files, err
}

func readInput(file string) (Input, error) {
	var input Input
	data, err := os.ReadFile(file)
	if err != nil {
		return input, err
	}
	return input, yaml.UnmarshalStrict(data, &input)
}

// goldenOf returns what a case renders: the notes as comments, then the objects. Names the CRD's
// long spec instead of repeating it.
func goldenOf(chart *Chart, file string) (string, error) {
	input, err := readInput(file)
	if err != nil {
		return "", err
	}
	input.FixedRandoms = true
	rendered, err := chart.render(input)
	if err != nil {
		return "", err
	}
	all, err := documents(rendered)
	if err != nil {
		return "", err
	}
	for i := range all {
		for name, data := range chart.files {
			_, specification, found := strings.Cut(string(data), "\nspec:\n")
			if found && strings.HasSuffix(all[i].Text, "\nspec:\n"+specification) {
				all[i].Text = strings.TrimSuffix(all[i].Text, "spec:\n"+specification) +
					"# spec: as in " + name + "\n"
			}
		}
	}
	notes := strings.TrimSpace(rendered["NOTES.txt"])
	return "# " + strings.ReplaceAll(notes, "\n", "\n# ") + "\n" + joined(all), nil
}

func addDeploy(root string, chart *Chart, files map[string]string) error {
	data, err := os.ReadFile(filepath.Join(root, deployFile))
	if err != nil {
		return err
	}
	var folders []DeployFolder
	if err := yaml.UnmarshalStrict(data, &folders); err != nil {
		return err
	}
	for _, folder := range folders {
		rendered, err := chart.render(folder.Input)
		if err != nil {
			return fmt.Errorf("%s: %w", folder.Folder, err)
		}
		for _, name := range folder.Templates {
			all, err := documents(map[string]string{name: rendered[name]})
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return fmt.Errorf("%s: templates/%s makes nothing", folder.Folder, name)
			}
			files[filepath.Join(folder.Folder, name)] = joined(all)
		}
	}
	for name, data := range chart.files.Glob("files/dashboards/*.json") {
		files[filepath.Join("deploy/grafana", filepath.Base(name))] = string(data)
	}
	files["deploy/prometheus/alerts.yaml"] = chart.files.Get("files/alerts.yaml")
	return nil
}
