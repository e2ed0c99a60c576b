package pgembed

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var discard = slog.New(slog.DiscardHandler)

// helperChoose prints the default data directory for the current directory,
// which only a process of its own can change.
func helperChoose() int {
	acct, err := chooseAccount()
	var dir string
	if err == nil {
		dir, err = chooseDataDir("", acct, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, "error", err)
		return 1
	}
	fmt.Fprintln(os.Stdout, dir)
	return 0
}

func TestDefaultDataDir(t *testing.T) {
	t.Parallel()
	choose := func(t *testing.T, dir string) (chosen, said string) {
		cmd, errOut := startHelper(t, helperConfig{ChooseOnly: true})
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("helper: %v %s", err, out)
		}
		return strings.TrimSpace(string(out)), errOut.String()
	}

	t.Run("IsInTheCurrentDirectory", func(t *testing.T) {
		t.Parallel()
		dir := newDir(t)
		if got, said := choose(t, dir); got != filepath.Join(dir, ".agentd", "pg") || said != "" {
			t.Errorf("chose %s, said %q", got, said)
		}
	})

	t.Run("MovesAwayAndSaysSoWherePostgresCannotGo", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("only root runs Postgres as somebody else")
		}
		parent := newDir(t)
		dir := filepath.Join(parent, "project")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(parent, 0o700); err != nil {
			t.Fatal(err)
		}
		got, said := choose(t, dir)
		if !strings.HasPrefix(got, "/var/lib/agentd/") || !strings.HasSuffix(got, "/pg") {
			t.Errorf("chose %s", got)
		}
		for _, want := range []string{"data_dir=" + got, "blocked_at=" + parent} {
			if !strings.Contains(said, want) {
				t.Errorf("no %q in %q", want, said)
			}
		}
		if again, _ := choose(t, dir); again != got {
			t.Errorf("chose %s, then %s", got, again)
		}
		if _, err := Start(t.Context(), Config{DataDir: filepath.Join(dir, "pg")}); err == nil || !strings.Contains(err.Error(), parent) {
			t.Errorf("Start there = %v", err)
		}
	})
}

func TestLongDataDir(t *testing.T) {
	t.Parallel()
	s := setup(t, Config{DataDir: filepath.Join(newDir(t), strings.Repeat("long, and with a comma ", 8), "pg")})
	if got := query(t, s.SocketURL(""), "select 1"); got != "1" {
		t.Errorf("select 1 = %q", got)
	}
	if n := len(s.layout.sockets); n > socketPathLimit {
		t.Errorf("socket directory of %d bytes", n)
	}
	stop(t, s)
	if _, err := os.Stat(s.layout.sockets); !os.IsNotExist(err) {
		t.Errorf("socket directory after Stop: %v", err)
	}
}

func TestSocketDirOfSomebodyElseIsNotTrusted(t *testing.T) {
	t.Parallel()
	data := filepath.Join(newDir(t), "pg")
	if err := os.Mkdir(data+".sock", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Config{DataDir: data}); err == nil || !strings.Contains(err.Error(), data+".sock") {
		t.Errorf("Start = %v", err)
	}
	if _, err := os.Stat(data + ".sock"); err != nil {
		t.Errorf("it was removed: %v", err)
	}
}

func TestForeignDirectoryIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, throwaway := range []bool{false, true} {
		data := filepath.Join(newDir(t), "pg")
		precious := filepath.Join(data, "thesis.txt")
		if err := os.Mkdir(data, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(precious, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Start(t.Context(), Config{DataDir: data, Throwaway: throwaway}); err == nil {
			t.Errorf("throwaway %t: Start took it", throwaway)
		}
		if _, err := os.Stat(precious); err != nil {
			t.Errorf("throwaway %t: %v", throwaway, err)
		}
	}
}
