package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// configBlock matches the examples of configuration files in the documentation.
var configBlock = regexp.MustCompile("(?s)```yaml\n(# gateway\\.yaml\n.*?)```")

// TestExamplesInPages checks each example of gateway.yaml in the documentation.
func TestExamplesInPages(t *testing.T) {
	inPod(t)
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, example := range configBlock.FindAllStringSubmatch(string(text), -1) {
			examples++
			checked, err := CheckInput(strings.NewReader(example[1]), "gateway", true)
			if err != nil || len(checked.Errors) > 0 {
				t.Errorf("%s: %v %v\n%s", page, err, checked.Errors, example[1])
			}
		}
	}
	if examples < 3 {
		t.Errorf("found %d examples", examples)
	}
}
