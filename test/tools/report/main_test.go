package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

const output = `{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"    bad_test.go:7: wrong\n"}
{"Action":"pass","Package":"a","Test":"TestGood","Elapsed":3.5}
{"Action":"fail","Package":"a","Test":"TestBad","Elapsed":1}
{"Action":"output","Package":"a","Test":"TestCut","Output":"panic: in the middle\n"}
{"Action":"output","Package":"a","Output":"FAIL\ta\t5.000s\n"}
{"Action":"fail","Package":"a","Elapsed":5}
{"ImportPath":"b","Action":"build-output","Output":"b.go:1: no\n"}
not JSON
{"Action":"output","Package":"c","Output":"PASS\n"}
{"Action":"output","Package":"c","Output":"ok  \tc\t0.010s\n"}
{"Action":"pass","Package":"c","Elapsed":0.01}
`

func TestShow(t *testing.T) {
	var got bytes.Buffer
	results, err := show(&got, strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	want := "    bad_test.go:7: wrong\nFAIL\ta\t5.000s\npanic: in the middle\nb.go:1: no\nnot JSON\nok  \tc\t0.010s\n"
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
	log := filepath.Join(t.TempDir(), "dir", "log")
	if err := appendResults(log, results); err != nil {
		t.Fatal(err)
	}
	if err := appendResults(log, []result{{Package: "d", Seconds: 4}}); err != nil {
		t.Fatal(err)
	}
	got.Reset()
	if err := summarize(&got, log); err != nil {
		t.Fatal(err)
	}
	want = `
The slowest packages:
    5.0 s  a
    4.0 s  d
    0.0 s  c

The slowest tests:
    3.5 s  a TestGood
    1.0 s  a TestBad
`
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

func TestRunReturnsTheExitCode(t *testing.T) {
	var out bytes.Buffer
	if code, err := run(&out, "", []string{"false", "test"}); code != 1 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	if code, err := run(&out, "", []string{"true"}); code != 2 || err == nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}
