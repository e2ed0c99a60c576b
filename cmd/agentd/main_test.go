package main

import (
	"context"
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/proctest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// asAgentd makes this test binary be agentd: the processes that the tests start
// are the code under test, race detector included.
const asAgentd = "AGENTD_TEST_BINARY_IS_AGENTD"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == keeperCommand {
		os.Exit(pluginhost.Keep())
	}
	if len(os.Args) == 5 && os.Args[1] == testPluginRole {
		os.Exit(bePlugin(os.Args[2], os.Args[3], os.Args[4]))
	}
	if os.Getenv(asAgentd) != "" {
		proctest.DieWithParent()
		os.Exit(exitCode(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr), os.Stderr))
	}
	// Most tests here wait for processes, so one more at once than there are cores;
	// -parallel says otherwise.
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+1)); err != nil {
		panic(err)
	}
	sweepTestDirs(os.TempDir(), systemData)
	storetest.Main(m, storetest.RequireToolCalls)
}
