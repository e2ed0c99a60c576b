package main

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/seed-2ca4966b/agentd/proctest"
)

const (
	testDirPrefix = "agentd-test-"
	// systemData is where the data of a dev goes that Postgres cannot reach.
	systemData = "/var/lib/agentd"
)

// systemDirOf is what a dev that runs in dir may leave in a directory of the
// system.
func systemDirOf(system, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(system, hex.EncodeToString(sum[:6]))
}

// sweepTestDirs deletes what killed tests have left: their directories, and the
// data of the devs that ran there.
func sweepTestDirs(temp, system string) {
	proctest.Sweep(temp, testDirPrefix, func(dir string) (locks, left []string) {
		data := systemDirOf(system, dir)
		return []string{filepath.Join(dir, ".agentd", "pg.lock"), filepath.Join(data, "pg.lock")}, []string{data}
	})
}
