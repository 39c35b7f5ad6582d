package main

import (
	"fmt"
	"strings"

	"github.com/xeipuuv/gojsonschema"
)

// merged overlays `over` on `base` as helm does: objects are merged by member, null removes a
// value, anything else replaces it.
func merged(base, over map[string]interface{}) map[string]interface{} {
	result := map[string]interface{}{}
	for key, value := range base {
		result[key] = value
	}
	for key, value := range over {
		if value == nil {
			delete(result, key)
			continue
		}
		below, isObject := value.(map[string]interface{})
		under, wasObject := result[key].(map[string]interface{})
		if isObject && wasObject {
			result[key] = merged(under, below)
		} else {
			result[key] = value
		}
	}
	return result
}

func checkSchema(schema []byte, values map[string]interface{}) error {
	result, err := gojsonschema.Validate(
		gojsonschema.NewBytesLoader(schema), gojsonschema.NewGoLoader(values))
	if err != nil {
		return err
	}
	if result.Valid() {
		return nil
	}
	var lines []string
	for _, each := range result.Errors() {
		lines = append(lines, each.String())
	}
	return fmt.Errorf("values don't meet the schema of the chart:\n%s", strings.Join(lines, "\n"))
}
