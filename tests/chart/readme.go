package main

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Row is one value of values.yaml with the comment above it.
type Row struct {
	Path    string
	Default string
	Comment string
}

// valueRows returns all values in the order of the file: the leaves, and the empty objects and
// lists.
func valueRows(data []byte) ([]Row, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	var rows []Row
	collectRows(document.Content[0], "", &rows)
	return rows, nil
}

func collectRows(node *yaml.Node, prefix string, rows *[]Row) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		comment := commentOf(key)
		isGroup := value.Kind == yaml.MappingNode && len(value.Content) > 0
		if isGroup && comment == "" {
			collectRows(value, prefix+key.Value+".", rows)
			continue
		}
		*rows = append(*rows, Row{prefix + key.Value, flow(value), comment})
	}
}

func commentOf(key *yaml.Node) string {
	// A comment between a group's key and its first member belongs to that member.
	lines := strings.Split(key.HeadComment, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.TrimPrefix(line, "#"))
	}
	return strings.Join(lines, " ")
}

// flow returns the value on one line.
func flow(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		var members []string
		for i := 0; i+1 < len(node.Content); i += 2 {
			members = append(members, node.Content[i].Value+": "+flow(node.Content[i+1]))
		}
		return "{" + strings.Join(members, ", ") + "}"
	case yaml.SequenceNode:
		var elements []string
		for _, element := range node.Content {
			elements = append(elements, flow(element))
		}
		return "[" + strings.Join(elements, ", ") + "]"
	}
	if node.Style == yaml.DoubleQuotedStyle {
		return `"` + node.Value + `"`
	}
	return node.Value
}

// readme returns `source` with its line "@VALUES@" replaced by the table of values.
func readme(source string, values []byte) (string, error) {
	rows, err := valueRows(values)
	if err != nil {
		return "", err
	}
	table := "| value | default | meaning |\n|---|---|---|\n"
	for _, row := range rows {
		comment := strings.ReplaceAll(row.Comment, "|", `\|`)
		table += fmt.Sprintf("| `%s` | `%s` | %s |\n", row.Path, row.Default, comment)
	}
	if strings.Count(source, "@VALUES@\n") != 1 {
		return "", fmt.Errorf("README.md.in: expected one line @VALUES@")
	}
	return strings.Replace(source, "@VALUES@\n", table, 1), nil
}
