// Renders the chart as helm does, with the same template engine and function library.
//
//	chart render [INPUT.yaml [VERSION]]  prints the objects; INPUT has release, namespace, kubeVersion,
//	                                     apiVersions and values, like the files in tests/chart/cases;
//	                                     VERSION overrides INPUT's server version
//	chart update                         writes the files of the checkout that are generated from the chart
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "update":
		return update()
	case len(arguments) > 0 && len(arguments) < 4 && arguments[0] == "render":
		return render(arguments[1:])
	}
	return fmt.Errorf("chart render [INPUT.yaml [VERSION]] or chart update, in the root of the checkout")
}

func update() error {
	files, err := outputs(".")
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func render(arguments []string) error {
	input := Input{Release: "lockstep", Namespace: "lockstep-system", Service: "Helm", KubeVersion: "v1.30.0"}
	if len(arguments) > 0 {
		var err error
		if input, err = readInput(arguments[0]); err != nil {
			return err
		}
	}
	if len(arguments) > 1 {
		input.KubeVersion = arguments[1]
	}
	chart, err := loadChart(chartFolder)
	if err != nil {
		return err
	}
	rendered, err := chart.render(input)
	if err != nil {
		return err
	}
	all, err := documents(rendered)
	if err != nil {
		return err
	}
	fmt.Print(joined(all))
	return nil
}
