package looptest_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func TestLogInMemory(t *testing.T) {
	t.Parallel()
	looptest.TestLog(t, func(*testing.T) loop.Log { return looptest.NewLog() })
}
