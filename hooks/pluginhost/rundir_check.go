package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CheckDir says why a host could not use a directory as [Config.Dir], nil if nothing
// stands against it. It makes nothing: of one that is not there yet it looks at the
// directory where it would be made.
func CheckDir(dir string) error { return checkDir(dir, writable, noexec) }

func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

func checkDir(dir string, writable func(string) error, noexec func(string) bool) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := short(dir); err != nil {
		return err
	}
	there := dir
	for {
		info, err := os.Stat(there)
		if err == nil && !info.IsDir() {
			return fmt.Errorf("%s is no directory", there)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			return err
		}
		there = filepath.Dir(there)
	}
	if there == dir {
		if err := private(dir); err != nil {
			return err
		}
	}
	if err := writable(there); err != nil {
		return fmt.Errorf("%s cannot be written to: %w", there, err)
	}
	if noexec(there) {
		return fmt.Errorf("no program can be executed in %s: its file system is mounted with noexec", there)
	}
	return nil
}

// short says whether sockets fit below a directory.
func short(dir string) error {
	if len(dir) > maxRunDir {
		return fmt.Errorf("%s is longer than %d bytes, and the paths of sockets are limited", dir, maxRunDir)
	}
	return nil
}
