package pgembed

import (
	"fmt"
	"log/slog"
	"os"
)

// helperChoose prints the default data directory for the current directory,
// which only a process of its own can change.
func helperChoose() int {
	acct, err := chooseAccount()
	var dir string
	if err == nil {
		dir, err = chooseDataDir("", acct, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println(dir)
	return 0
}
