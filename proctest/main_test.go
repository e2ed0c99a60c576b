package proctest_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/seed-2ca4966b/agentd/proctest"
)

const (
	roleVariable = "PROCTEST_ROLE"
	tempVariable = "PROCTEST_TEMP"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "parent":
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=child")
		cmd.Stdout = os.Stdout
		_ = cmd.Run() // it does not end well
	case "child":
		proctest.DieWithParent()
		_, _ = fmt.Fprintln(os.Stdout, os.Getpid())
		select {}
	case "holder":
		held, err := os.MkdirTemp(os.Getenv(tempVariable), prefix)
		if err == nil {
			_, err = proctest.Hold(held)
		}
		_, _ = fmt.Fprintln(os.Stdout, held, err)
		select {}
	default:
		proctest.Main(m)
	}
}
