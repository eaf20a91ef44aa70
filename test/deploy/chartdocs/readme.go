package chartdocs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// tableMark is the line of the README that precedes the table of values.
const tableMark = "<!-- The table below is generated from values.yaml by `make docs`. -->\n"

// README returns the chart's README with a new table of values below tableMark.
func README(old, valuesYAML []byte) ([]byte, error) {
	head, _, ok := bytes.Cut(old, []byte(tableMark))
	if !ok {
		return nil, fmt.Errorf("README.md has no line %q", strings.TrimSpace(tableMark))
	}
	root, err := parse(valuesYAML)
	if err != nil {
		return nil, err
	}
	values, err := root.values()
	if err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return nil, errors.New("values.yaml has no values")
	}
	var out bytes.Buffer
	out.Write(head)
	out.WriteString(tableMark + "\n| Value | Type | Default | Description |\n|---|---|---|---|\n")
	for _, v := range values {
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", v.Path, v.Type, code(v.Default), cell(v.Description))
	}
	return out.Bytes(), nil
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
