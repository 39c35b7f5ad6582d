package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

// Chart is a chart's folder in memory: the files that templates see as .Files, and the templates.
type Chart struct {
	Metadata  map[string]interface{}
	Values    map[string]interface{}
	Schema    []byte
	templates map[string]string // by "NAME/templates/FILE"
	files     Files
}

// Files is .Files: everything in the chart except templates, metadata, values and ignored files.
type Files map[string][]byte

func (f Files) Get(name string) string      { return string(f[name]) }
func (f Files) GetBytes(name string) []byte { return f[name] }

// Lines returns the file's lines, without an empty last one.
func (f Files) Lines(name string) []string {
	if f[name] == nil {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(string(f[name]), "\n"), "\n")
}

// Glob returns the files whose path matches. Unlike helm's it doesn't support **, which the chart
// doesn't use.
func (f Files) Glob(pattern string) Files {
	found := Files{}
	for name, data := range f {
		if matched, err := path.Match(pattern, name); err == nil && matched {
			found[name] = data
		}
	}
	return found
}

func (f Files) AsConfig() string {
	texts := map[string]string{}
	for name, data := range f {
		texts[path.Base(name)] = string(data)
	}
	return toYAML(texts)
}

func (f Files) AsSecrets() string {
	texts := map[string]string{}
	for name, data := range f {
		texts[path.Base(name)] = base64.StdEncoding.EncodeToString(data)
	}
	return toYAML(texts)
}

// APIVersions is .Capabilities.APIVersions.
type APIVersions []string

// Has returns whether the server has "group/version" or "group/version/Kind".
func (v APIVersions) Has(name string) bool {
	for _, each := range v {
		if each == name {
			return true
		}
	}
	return false
}

// KubeVersion is .Capabilities.KubeVersion.
type KubeVersion struct{ Version, Major, Minor, GitVersion string }

func (v KubeVersion) String() string { return v.Version }

// Input is what an installation supplies in addition to the chart.
type Input struct {
	Release      string                 `json:"release"`
	Namespace    string                 `json:"namespace"`
	Service      string                 `json:"service"`
	IsUpgrade    bool                   `json:"isUpgrade"`
	KubeVersion  string                 `json:"kubeVersion"`
	APIVersions  []string               `json:"apiVersions"`
	Values       map[string]interface{} `json:"values"`
	Existing     []interface{}          `json:"existing"` // objects that lookup finds
	FixedRandoms bool                   `json:"fixedRandoms"`
}

func loadChart(folder string) (*Chart, error) {
	chart := &Chart{templates: map[string]string{}, files: Files{}}
	ignored := map[string]bool{"README.md.in": true}
	err := filepath.WalkDir(folder, func(full string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, full)
		if err != nil || ignored[name] {
			return err
		}
		data, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		return chart.add(filepath.ToSlash(name), data)
	})
	if err != nil {
		return nil, err
	}
	if chart.Metadata == nil || chart.Values == nil || chart.Schema == nil {
		return nil, fmt.Errorf("%s: expected Chart.yaml, values.yaml and values.schema.json", folder)
	}
	return chart, nil
}

func (c *Chart) add(name string, data []byte) error {
	switch {
	case name == "Chart.yaml":
		return yaml.UnmarshalStrict(data, &c.Metadata)
	case name == "values.yaml":
		return yaml.UnmarshalStrict(data, &c.Values)
	case name == "values.schema.json":
		c.Schema = data
	case strings.HasPrefix(name, "templates/"):
		c.templates[c.templateName(name)] = string(data)
	default:
		c.files[name] = data
	}
	return nil
}

func (c *Chart) templateName(name string) string { return "lockstep/" + name }

// chartFields returns the fields of .Chart, capitalized as in helm.
func (c *Chart) chartFields() map[string]interface{} {
	fields := map[string]interface{}{}
	for name, value := range c.Metadata {
		fields[strings.ToUpper(name[:1])+name[1:]] = value
	}
	return fields
}

// render returns the output of each template by its file name in templates/, without partials. As
// in helm, a missing value is empty, and the schema is checked first.
func (c *Chart) render(input Input) (map[string]string, error) {
	values := merged(c.Values, input.Values)
	if err := checkSchema(c.Schema, values); err != nil {
		return nil, err
	}
	root := template.New("chart").Option("missingkey=zero")
	root.Funcs(functions(root, input))
	for name, text := range c.templates {
		if _, err := root.New(name).Parse(text); err != nil {
			return nil, err
		}
	}
	top := c.topLevel(input, values)
	results := map[string]string{}
	for name := range c.templates {
		if strings.HasPrefix(path.Base(name), "_") {
			continue
		}
		top["Template"] = map[string]interface{}{"Name": name, "BasePath": "lockstep/templates"}
		var out bytes.Buffer
		if err := root.ExecuteTemplate(&out, name, top); err != nil {
			return nil, err
		}
		results[path.Base(name)] = strings.ReplaceAll(out.String(), "<no value>", "")
	}
	return results, nil
}

func (c *Chart) topLevel(input Input, values map[string]interface{}) map[string]interface{} {
	version := strings.Split(strings.TrimPrefix(input.KubeVersion, "v"), ".")
	return map[string]interface{}{
		"Values": values,
		"Chart":  c.chartFields(),
		"Files":  c.files,
		"Release": map[string]interface{}{
			"Name": input.Release, "Namespace": input.Namespace, "Service": input.Service,
			"IsInstall": !input.IsUpgrade, "IsUpgrade": input.IsUpgrade, "Revision": 1,
		},
		"Capabilities": map[string]interface{}{
			"APIVersions": APIVersions(input.APIVersions),
			"KubeVersion": KubeVersion{
				Version: input.KubeVersion, GitVersion: input.KubeVersion,
				Major: version[0], Minor: version[1],
			},
		},
	}
}

// functions returns helm's functions: those of sprig except env and expandenv, and helm's own.
func functions(root *template.Template, input Input) template.FuncMap {
	all := sprig.TxtFuncMap()
	delete(all, "env")
	delete(all, "expandenv")
	execute := func(t *template.Template, name string, data interface{}) (string, error) {
		var out strings.Builder
		err := t.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	own := template.FuncMap{
		"toYaml":   toYAML,
		"fromYaml": fromYAML,
		"toJson":   toJSON,
		"fromJson": fromYAML,
		"include": func(name string, data interface{}) (string, error) {
			return execute(root, name, data)
		},
		"tpl": func(text string, data interface{}) (string, error) {
			copied, err := root.Clone()
			if err != nil {
				return "", err
			}
			if _, err = copied.New("tpl").Parse(text); err != nil {
				return "", err
			}
			return execute(copied, "tpl", data)
		},
		"required": func(message string, value interface{}) (interface{}, error) {
			if value == nil || value == "" {
				return value, errors.New(message)
			}
			return value, nil
		},
		"fail": func(message string) (string, error) { return "", errors.New(message) },
		"lookup": func(version, kind, namespace, name string) map[string]interface{} {
			return lookup(input.Existing, version, kind, namespace, name)
		},
	}
	if input.FixedRandoms {
		own["randAlphaNum"] = func(count int) string { return strings.Repeat("r", count) }
	}
	for name, function := range own {
		all[name] = function
	}
	return all
}

func lookup(objects []interface{}, version, kind, namespace, name string) map[string]interface{} {
	for _, each := range objects {
		object, _ := each.(map[string]interface{})
		metadata, _ := object["metadata"].(map[string]interface{})
		if object["apiVersion"] == version && object["kind"] == kind &&
			metadata["namespace"] == namespace && metadata["name"] == name {
			return object
		}
	}
	return map[string]interface{}{}
}

func toYAML(value interface{}) string {
	data, err := yaml.Marshal(value)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(data), "\n")
}

func fromYAML(text string) map[string]interface{} {
	value := map[string]interface{}{}
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		value["Error"] = err.Error()
	}
	return value
}

func toJSON(value interface{}) string {
	data, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(data)
}

// documents returns the objects of all templates except NOTES.txt, in helm's install order, each
// with its template's name. Empty documents are left out; a document that is not an object is an
// error.
func documents(rendered map[string]string) ([]Document, error) {
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		names = append(names, name)
	}
	sort.Strings(names)
	var all []Document
	for _, name := range names {
		if name == "NOTES.txt" {
			continue
		}
		for _, text := range strings.Split("\n"+rendered[name], "\n---") {
			document, err := newDocument(name, text)
			if err != nil {
				return nil, err
			}
			if document.Object != nil {
				all = append(all, document)
			}
		}
	}
	sort.SliceStable(all, func(a, b int) bool { return all[a].order() < all[b].order() })
	return all, nil
}

// Document is one object as a template rendered it.
type Document struct {
	Template string
	Text     string
	Object   map[string]interface{}
}

func newDocument(name, text string) (Document, error) {
	document := Document{Template: name, Text: strings.Trim(text, "\n") + "\n"}
	if err := yaml.UnmarshalStrict([]byte(text), &document.Object); err != nil {
		return document, fmt.Errorf("%s: %w in\n%s", name, err, text)
	}
	if len(document.Object) == 0 {
		document.Object = nil
	}
	return document, nil
}

func (d Document) kind() string { return d.str("kind") }

func (d Document) str(keys ...string) string {
	var at interface{} = d.Object
	for _, key := range keys {
		object, _ := at.(map[string]interface{})
		at = object[key]
	}
	text, _ := at.(string)
	return text
}

// Source: helm's install order, for the kinds that the chart has.
var installOrder = []string{"NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "Secret",
	"ConfigMap", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role",
	"RoleBinding", "Service", "Deployment"}

func (d Document) order() int {
	for i, kind := range installOrder {
		if d.kind() == kind {
			return i
		}
	}
	return len(installOrder)
}

func joined(all []Document) string {
	var text strings.Builder
	for _, document := range all {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s", document.Template, document.Text)
	}
	return text.String()
}
