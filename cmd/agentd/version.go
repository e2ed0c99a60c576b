package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (see the Makefile).
var version string

type versionCmd struct{}

// Run prints what this binary is.
func (versionCmd) Run(io *std) error {
	v, commit := versionAndCommit()
	if commit != "" {
		v += " (commit " + commit + ")"
	}
	_, err := fmt.Fprintf(io.out, "agentd %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// versionAndCommit falls back to what the go command noted in the binary.
func versionAndCommit() (v, commit string) {
	v = version
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return orElse(v, "devel"), ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value[:min(len(s.Value), 12)]
		}
	}
	return orElse(v, orElse(info.Main.Version, "devel")), commit
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
