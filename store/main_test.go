package store_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m, storetest.RequireToolCalls) }
