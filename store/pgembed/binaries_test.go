package pgembed

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeBinaries makes a directory of scripts: a postgres that knows its version,
// and an initdb with the given body, "" for none.
func fakeBinaries(t *testing.T, dir, version, initdb string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	scripts := map[string]string{"postgres": "echo 'postgres (PostgreSQL) " + version + "'", "initdb": initdb}
	for name, body := range scripts {
		if body == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// bareHost is a machine without Postgres, with a repository at the given address.
func bareHost(t *testing.T, repository string) host {
	return host{
		getenv:     func(string) string { return "" },
		cacheDir:   filepath.Join(newDir(t), "cache"),
		repository: repository,
		fetchLimit: 20 * time.Second,
	}
}

func TestGivenBinariesThatDoNotFit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version, initdb string
		want            string
	}{
		"NoPostgres": {want: "no postgres in it"},
		"NoInitdb":   {version: "16.1", want: "initdb is missing"},
		"TooOld":     {version: "14.9", initdb: "exit 1", want: "version 14 is older than 15"},
		"NoVersion":  {version: "x", initdb: "exit 1", want: "postgres --version says"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			bin := filepath.Join(dir, "bin")
			if tc.version != "" {
				fakeBinaries(t, bin, tc.version, tc.initdb)
			}
			h := thisHost() // has a good Postgres, which must not be used
			h.getenv = func(name string) string { return map[string]string{"AGENTD_PG_BIN": bin}[name] }
			_, envErr := start(t.Context(), Config{DataDir: filepath.Join(dir, "pg")}, h)
			_, cfgErr := Start(t.Context(), Config{DataDir: filepath.Join(dir, "pg"), BinDir: bin})
			for source, err := range map[string]error{"AGENTD_PG_BIN": envErr, "BinDir": cfgErr} {
				if err == nil || !strings.Contains(err.Error(), source+"="+bin) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: %v", source, err)
				}
			}
		})
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	for _, version := range []string{"9", "15", "16", "17"} {
		fakeBinaries(t, filepath.Join(dir, version, "bin"), version+".1", "exit 1")
	}
	link := filepath.Join(dir, "path")
	if err := os.Mkdir(link, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "15", "bin", "postgres"), filepath.Join(link, "postgres")); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		path  string
		major int // of the data directory
		want  string
	}{
		"NewestForANewCluster":             {want: "17"},
		"LinkInPATHComesFirst":             {path: link, want: "15"},
		"VersionOfTheClusterWins":          {major: 16, want: "16"},
		"VersionOfTheClusterWinsOverPATH":  {path: link, major: 16, want: "16"},
		"AnyOtherVersionOfAClusterRefused": {major: 18},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := bareHost(t, "http://127.0.0.1:1")
			h.globs = []string{filepath.Join(dir, "*", "bin")}
			h.getenv = func(name string) string { return map[string]string{"PATH": tc.path}[name] }
			b, err := h.find(t.Context(), Config{}, account{}, layout{data: "/d"}, tc.major, discard)
			if tc.want == "" {
				if !errors.Is(err, ErrVersion) {
					t.Errorf("find = %v", err)
				}
				return
			}
			if err != nil || b.dir != filepath.Join(dir, tc.want, "bin") {
				t.Errorf("find = %s, %v", b.dir, err)
			}
		})
	}
}

func TestFetch(t *testing.T) {
	t.Parallel()

	t.Run("UnreachableNamesThePackages", func(t *testing.T) {
		t.Parallel()
		_, err := start(t.Context(), Config{DataDir: filepath.Join(newDir(t), "pg")}, bareHost(t, "http://127.0.0.1:1"))
		if !errors.Is(err, ErrNoPostgres) {
			t.Fatalf("Start = %v", err)
		}
		for _, want := range []string{"Debian package postgresql", "Homebrew formula postgresql@17", "AGENTD_PG_BIN", "connection refused"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in: %v", want, err)
			}
		}
	})

	t.Run("SilentServerIsGivenUp", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, never answers
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		h := bareHost(t, "http://"+l.Addr().String())
		h.fetchLimit = 100 * time.Millisecond
		// It is the limit that ends this: there is no other within the hour.
		_, err = start(t.Context(), Config{DataDir: filepath.Join(newDir(t), "pg")}, h)
		if !errors.Is(err, ErrNoPostgres) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Start = %v", err)
		}
	})

	t.Run("DownloadIsUsedAndKept", func(t *testing.T) {
		t.Parallel()
		jar, sum := fakeJar(t)
		h := bareHost(t, serveJar(t, jar, sum))
		acct, err := chooseAccount()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			b, err := h.fetch(t.Context(), acct, layout{}, 0, discard)
			if err != nil || b.major != newClusterMajor {
				t.Fatalf("fetch = %+v, %v", b, err)
			}
			h.repository = "http://127.0.0.1:1" // the second time nobody asks
		}
		if entries, _ := os.ReadDir(h.cacheDir); len(entries) != 1 {
			t.Errorf("in the cache: %v", entries)
		}
	})

	t.Run("ChecksumIsNotOptional", func(t *testing.T) {
		t.Parallel()
		jar, _ := fakeJar(t)
		for name, sum := range map[string]string{"wrong": strings.Repeat("0", 64), "missing": ""} {
			h := bareHost(t, serveJar(t, jar, sum))
			if _, err := h.fetch(t.Context(), account{}, layout{}, 0, discard); err == nil {
				t.Errorf("%s checksum accepted", name)
			}
		}
	})
}

// fakeJar is an archive as the repository has them, with scripts in it.
func fakeJar(t *testing.T) (jar []byte, sum string) {
	t.Helper()
	for _, tool := range []string{"tar", "xz"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool)
		}
	}
	dir := newDir(t)
	fakeBinaries(t, filepath.Join(dir, "root", "bin"), fmt.Sprint(newClusterMajor, ".1"), "exit 1")
	archive := filepath.Join(dir, "a.txz")
	if out, err := exec.Command("tar", "-C", filepath.Join(dir, "root"), "-cJf", archive, "bin").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v %s", err, out)
	}
	txz, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	w, err := z.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(txz); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(buf.Bytes())
	return buf.Bytes(), hex.EncodeToString(digest[:])
}

// serveJar answers every path with the archive, and *.sha256 with sum unless "".
func serveJar(t *testing.T, jar []byte, sum string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, ".sha256"):
			_, _ = w.Write(jar)
		case sum == "":
			http.NotFound(w, r)
		default:
			_, _ = w.Write([]byte(sum))
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}
