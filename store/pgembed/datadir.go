package pgembed

import (
	"fmt"
	"log/slog"
)

// DataDir is where Start looks for the data directory if Config.DataDir is dir,
// for those who look for a running server from outside. It makes nothing.
func DataDir(dir string) (string, error) {
	acct, err := chooseAccount()
	if err != nil {
		return "", err
	}
	data, err := chooseDataDir(dir, acct, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", fmt.Errorf("choose the data directory: %w", err)
	}
	return realPath(data), nil
}
