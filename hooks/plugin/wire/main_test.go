package wire_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }
