package pluginhost

import (
	"errors"
	"strings"
	"testing"
)

// TestADirectoryWhereNothingCanBeDoneIsTold with answers of the system that a test that
// runs as root does not get.
func TestADirectoryWhereNothingCanBeDoneIsTold(t *testing.T) {
	t.Parallel()
	no, yes := func(string) error { return errors.New("permission denied") }, func(string) error { return nil }
	if err := checkDir("/no/such", no, func(string) bool { return false }); err == nil || err.Error() != "/ cannot be written to: permission denied" {
		t.Error(err)
	}
	if err := checkDir("/no/such", yes, func(string) bool { return true }); err == nil || !strings.Contains(err.Error(), "mounted with noexec") {
		t.Error(err)
	}
}
