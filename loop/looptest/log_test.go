package looptest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLogInMemory(t *testing.T) {
	t.Parallel()
	looptest.TestLog(t, func(*testing.T) loop.Log { return looptest.NewLog() })
}
