package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// PutHookSet stores what a process is configured with, so that the digests in
// runs and decisions can be read, and [Verify] can tell which gates had to be
// asked. A set that is already there stays as it is.
func (s *Store) PutHookSet(ctx context.Context, set hooks.HookSet) error {
	if err := putHookSet(ctx, s.pool, set); err != nil {
		return failed("put hook set", err)
	}
	return nil
}

// HookSets returns the hook sets with those digests, ordered by digest, without
// those that are not stored.
func (s *Store) HookSets(ctx context.Context, digests []string) ([]hooks.HookSet, error) {
	rows, _ := s.pool.Query(ctx, `SELECT digest, hooks FROM agentd.hook_sets WHERE digest = ANY($1) ORDER BY digest`, digests) // rows has the error
	sets, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (set hooks.HookSet, err error) {
		var list []byte
		if err = row.Scan(&set.Digest, &list); err != nil {
			return set, err
		}
		if err = json.Unmarshal(list, &set.Hooks); err != nil {
			err = fmt.Errorf("hook set %s: %w", set.Digest, err)
		}
		return set, err
	})
	if err != nil {
		return nil, failed("read hook sets", err)
	}
	return sets, nil
}

// executor is a pool or a transaction.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func putHookSet(ctx context.Context, to executor, set hooks.HookSet) error {
	list, err := hookSetJSON(set.Hooks)
	if err != nil {
		return err
	}
	_, err = to.Exec(ctx, `
		INSERT INTO agentd.hook_sets (digest, hooks) VALUES ($1, $2::text::json) ON CONFLICT (digest) DO NOTHING`, set.Digest, list)
	return err
}

// hookSetJSON is as the digest has it: without the escapes that JSON has for
// HTML.
func hookSetJSON(list []hooks.Registration) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(list); err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// PutHookSetLoad stores the set as [Store.PutHookSet] does, and that a process
// has put it in force: call it before a hook of the set is asked. It is written
// on every call, also if the set is the one that the process had, since files
// may have been read that say the same.
func (s *Store) PutHookSetLoad(ctx context.Context, load HookSetLoad) error {
	files, err := json.Marshal(append([]HookFile{}, load.Files...))
	if err != nil {
		return fmt.Errorf("put hook set load: files: %w", err)
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := putHookSet(ctx, tx, load.Set); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO agentd.hook_set_loads (digest, previous, cause, process_id, host, os_user, pid, version, files)
			VALUES ($1, nullif($2, ''), $3, $4, $5, $6, $7, $8, $9::text::json)`,
			load.Set.Digest, load.Previous, load.Cause, load.Process.ID, load.Process.Host, load.Process.User, load.Process.PID, load.Process.Version, string(files))
		return err
	})
	if err != nil {
		return failed("put hook set load", err)
	}
	return nil
}
