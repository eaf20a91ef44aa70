// Package config is the typed configuration of kubeweir's programs: defaults,
// then a YAML file, then flags, then validation. An error is one sentence that
// names the flag, or the file, line and field, and says what is expected.
//
// Every field of the file but the gateway's rules has a flag. Durations are
// written as in Go ("90s", "10m"), sizes as Kubernetes quantities ("64Mi") or
// plain numbers of bytes. Relative paths in the file are relative to the file.
//
// A setting is a field of Gateway or Standalone with its default, and an entry in one of
// their sections. The flag, the field of the file, the check of its bounds, the help, the
// man page, the file of `kubeweir config defaults` and docs/config.md (make docs) are made
// of that.
package config
