package pattern_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// fullSize makes the tests of properties as large as they are meant.
var fullSize = os.Getenv("AGENTD_FULL_SIZE") != ""

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
