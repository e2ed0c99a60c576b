package pgembed

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	// ErrNoPostgres means that no usable Postgres is installed and that none
	// could be fetched either. The text of the wrapping error names what to install.
	ErrNoPostgres = errors.New("no usable Postgres")
	// ErrInUse means that a live process owns the data directory; see InUseError.
	ErrInUse = errors.New("data directory in use")
	// ErrVersion means that the data directory belongs to another major version
	// of Postgres than the one that was found. Nothing was changed.
	ErrVersion = errors.New("data directory of another Postgres version")
)

// Config says what to start. The zero value starts a lasting Postgres for the
// current directory with whatever version 15 or newer is installed.
type Config struct {
	// DataDir is made when it does not exist. Empty means ./.agentd/pg, or
	// /var/lib/agentd/<hash of the current directory>/pg when the user that
	// Postgres runs as cannot get there, which the Logger says aloud.
	DataDir string
	// BinDir holds postgres and initdb. Empty means $AGENTD_PG_BIN, then PATH,
	// /usr/lib/postgresql/*/bin and Homebrew, newest first. A given directory
	// that does not fit is an error: nothing else is tried.
	BinDir string
	// Port on 127.0.0.1; 0 takes a free one, another one at each start.
	Port int
	// Logger gets a line per decision that a user might wonder about, never a
	// password. Nil discards.
	Logger *slog.Logger
	// Settings are given to Postgres as -c name=value. They win over the
	// defaults of this package, and both win over postgresql.conf and ALTER
	// SYSTEM. Address, port, socket and data directory cannot be set here.
	Settings map[string]string
	// Throwaway is for tests: no fsync anywhere, and Stop deletes the data. A
	// power cut leaves a broken data directory. With an empty DataDir it lives
	// in memory where the system offers that and has some GiB to spare, else
	// under the system's temporary directory; a DataDir that already has a
	// cluster is refused, because Stop would delete it.
	Throwaway bool
}

// fixedSettings are decided by Config fields and by the URLs that Server hands
// out, which would lie if Settings could change them.
var fixedSettings = []string{"data_directory", "listen_addresses", "port", "unix_socket_directories"}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// settings returns everything given as -c, except what launch adds per attempt.
func (c Config) settings() (map[string]string, error) {
	all := map[string]string{
		"cluster_name":            "agentd",
		"listen_addresses":        "127.0.0.1",
		"unix_socket_permissions": "0700",
		"shared_buffers":          "128MB",
		"max_connections":         "200",
		"max_wal_size":            "512MB",
		// It compiles statements for longer than agentd's take.
		"jit": "off",
		// A collector process would take stderr away from the log file, whose
		// end is part of the error when a start fails.
		"logging_collector": "off",
		"log_destination":   "stderr",
		"log_line_prefix":   "%m [%p] ",
		// Start matches Postgres's messages in English.
		"lc_messages": "C",
	}
	if c.Throwaway {
		all["fsync"] = "off"
		// In its directory, with which it goes when we were killed.
		all["dynamic_shared_memory_type"] = "mmap"
		all["full_page_writes"] = "off"
		all["shared_buffers"] = "64MB"
		// In the data directory: what a killed server has there goes with it.
		all["dynamic_shared_memory_type"] = "mmap"
	}
	for name, value := range c.Settings {
		name = strings.ToLower(name)
		if !settingName.MatchString(name) {
			return nil, fmt.Errorf("setting %q: not a name of a Postgres setting", name)
		}
		if slices.Contains(fixedSettings, name) {
			return nil, fmt.Errorf("setting %q: fixed by pgembed, see the fields of Config", name)
		}
		all[name] = value
	}
	return all, nil
}

// serverArgs are the arguments of the postgres binary, in a stable order.
func serverArgs(dataDir, socketDir string, port int, settings map[string]string) []string {
	// Quoted, because the setting is a list and a path may hold a comma.
	args := []string{"-D", dataDir, "-p", strconv.Itoa(port), "-k", `"` + socketDir + `"`}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}
