package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// smallDisk is a file system of so many MiB, which every user may enter.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	// Below the one that is held: what is mounted on that is not.
	dir := filepath.Join(openDir(t), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // another user has to get there
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0755", size)); err != nil {
		t.Skipf("SKIPPED: no small disk can be made here, so nothing was tried on a full one: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fill leaves nothing of a disk, until free is called.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "full")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range [][]byte{make([]byte, 1<<20), make([]byte, 1<<12)} {
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// TestRunsOutliveAFullDisk: first the tables cannot grow, then there is no room
// for the server's log of writes either, and it stops.
func TestRunsOutliveAFullDisk(t *testing.T) { //nolint:tparallel // there is one Postgres
	t.Parallel()
	dir := smallDisk(t, 160)
	pg := storetest.NewServer(t, dir, map[string]string{
		"max_wal_size": "32MB", "min_wal_size": "32MB", "shared_buffers": "16MB", "wal_recycle": "off",
		"dynamic_shared_memory_type": "posix", // it is elsewhere
	})
	f := newTroubledFleet(t, pg.DB(t))

	t.Run("TablesCannotGrow", func(t *testing.T) {
		session := newSession(t, f.front)
		runs := f.begin(t)
		free := fill(t, dir)
		text := "say " + strings.Repeat("x", 200_000)
		wantUnavailable(t, f.front, session, text, loop.ReasonFull)
		f.open(t)
		free()
		f.end(t, runs)
		if got, err := persist(t.Context(), f.front, session, text); err != nil || f.awaitEnd(t, got.GetRunId()) != "completed" {
			t.Errorf("the message that was refused: %v, %v", got, err)
		}
	})

	t.Run("TheServerStops", func(t *testing.T) {
		takesLong(t)
		session := newSession(t, f.front)
		runs := f.begin(t)
		conn, err := pgx.Connect(t.Context(), f.db.URL)
		if err != nil {
			t.Fatal(err)
		}
		free := fill(t, dir)
		for range 100 {
			if _, err = conn.Exec(t.Context(), `SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000))`); err != nil {
				break
			}
		}
		if err == nil || !conn.IsClosed() {
			t.Fatalf("the server has lived on: %v", err)
		}
		f.open(t)
		wantUnavailable(t, f.front, session, "say r1", loop.ReasonUnavailable, loop.ReasonStarting, loop.ReasonFull)
		free()
		// Perhaps it has come back by itself, perhaps it has given up.
		pg.Stop(t, storetest.StopImmediate)
		pg.Start(t)
		f.end(t, runs)
		if got, err := persist(t.Context(), f.front, session, "say r1"); err != nil || f.awaitEnd(t, got.GetRunId()) != "completed" {
			t.Errorf("the message that was refused: %v, %v", got, err)
		}
	})
}
