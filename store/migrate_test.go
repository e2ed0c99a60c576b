package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/pgembed"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestMigrate(t *testing.T) {
	t.Parallel()

	t.Run("TwentyAtOnceOnOneDatabase", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t, storetest.Empty)
		var g errgroup.Group
		for range 20 {
			g.Go(func() error { return store.Migrate(t.Context(), db.URL, quiet()) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := store.CheckSchema(t.Context(), db.Pool); err != nil {
			t.Error(err)
		}
	})

	t.Run("AtOnceOnDatabasesOfOneCluster", func(t *testing.T) {
		t.Parallel()
		var g errgroup.Group
		for range 10 {
			db := storetest.New(t, storetest.Empty)
			for range 2 {
				g.Go(func() error { return store.Migrate(t.Context(), db.URL, quiet()) })
			}
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("LeavesANewerSchemaAlone", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		exec(t, db, `INSERT INTO agentd.goose_db_version (version_id, is_applied) VALUES (99999, true)`)
		exec(t, db, `INSERT INTO agentd.river_migration (line, version) VALUES ('main', 999)`)
		if err := store.Migrate(t.Context(), db.URL, quiet()); err != nil {
			t.Fatal(err)
		}
		if err := store.CheckSchema(t.Context(), db.Pool); err != nil {
			t.Error(err)
		}
		if version, err := store.SchemaVersion(t.Context(), db.Pool); version != 99999 || err != nil {
			t.Errorf("SchemaVersion = %d, %v; want 99999", version, err)
		}
	})

	t.Run("IsNotStoppedByTheLimitsOfTheRole", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t, storetest.Empty)
		err := store.ConfigureRole(t.Context(), db.URL, store.RoleSettings{
			LockTimeout: time.Millisecond, StatementTimeout: 50 * time.Millisecond, IdleInTransaction: time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Migrate(t.Context(), db.URL, quiet()); err != nil {
			t.Error(err)
		}
	})

	t.Run("NeedsNoMoreThanToOwnTheSchema", func(t *testing.T) {
		t.Parallel()
		storetest.New(t) // makes agentd_reader, which this owner may not
		db := storetest.New(t, storetest.Empty)
		owner := "owner_" + db.Name
		exec(t, db, fmt.Sprintf(`CREATE ROLE %q LOGIN PASSWORD 'x'`, owner))
		exec(t, db, fmt.Sprintf(`CREATE SCHEMA agentd AUTHORIZATION %q`, owner))
		if err := store.Migrate(t.Context(), as(t, db.URL, owner, "x"), quiet()); err != nil {
			t.Error(err)
		}
	})

	t.Run("GoesOnWhereAnErrorStoppedIt", func(t *testing.T) {
		t.Parallel()
		for _, obstacle := range []string{
			`TABLE agentd.goose_db_version (version_id text)`, `VIEW agentd.runs AS SELECT 1`, `TABLE agentd.river_job ()`,
		} {
			db := storetest.New(t, storetest.Empty)
			exec(t, db, `CREATE SCHEMA agentd; CREATE `+obstacle)
			if err := store.Migrate(t.Context(), db.URL, quiet()); err == nil {
				t.Errorf("no error although there is a %s", obstacle)
			}
			kind, name, _ := strings.Cut(obstacle, " ")
			name, _, _ = strings.Cut(name, " ")
			exec(t, db, `DROP `+kind+` `+name)
			if err := store.Migrate(t.Context(), db.URL, quiet()); err != nil {
				t.Errorf("after the %s had gone: %v", obstacle, err)
			}
		}
	})

	t.Run("WaitsForItsTurnAsLongAsItsContext", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t, storetest.Empty)
		holder := connect(t, db.URL)
		if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock(x'6167656e7464'::bigint)`); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := store.Migrate(ctx, db.URL, quiet()); err == nil || ctx.Err() == nil {
			t.Errorf("Migrate = %v before its turn", err)
		}
	})

	t.Run("SaysWhatIsWrongWithTheURL", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []string{"postgres://agentd:secret@127.0.0.1:1/x?sslmode=nonsense", "postgres://agentd:secret@127.0.0.1:1/x"} {
			err := store.Migrate(t.Context(), bad, quiet())
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("Migrate(%q) = %v; want an error without the password", bad, err)
			}
		}
	})
}

func TestCheckSchemaNamesTheCommandThatHelps(t *testing.T) {
	t.Parallel()
	empty := storetest.New(t, storetest.Empty)
	old := storetest.New(t)
	exec(t, old, `DELETE FROM agentd.goose_db_version WHERE version_id = (SELECT max(version_id) FROM agentd.goose_db_version)`)
	oldQueue := storetest.New(t)
	exec(t, oldQueue, `DELETE FROM agentd.river_migration WHERE version = (SELECT max(version) FROM agentd.river_migration)`)
	for name, db := range map[string]*storetest.DB{"empty": empty, "old": old, "old queue": oldQueue} {
		err := store.CheckSchema(t.Context(), db.Pool)
		if err == nil || !strings.Contains(err.Error(), "run `agentd migrate`") {
			t.Errorf("%s: CheckSchema = %v", name, err)
		}
	}
	broken := storetest.New(t, storetest.Empty)
	exec(t, broken, `CREATE SCHEMA agentd; CREATE TABLE agentd.goose_db_version (version_id text)`)
	if err := store.CheckSchema(t.Context(), broken.Pool); err == nil || errors.Is(err, store.ErrSchemaOld) {
		t.Errorf("CheckSchema of a schema that is none = %v", err)
	}
	exec(t, oldQueue, `ALTER TABLE agentd.river_migration RENAME COLUMN line TO lane`)
	if err := store.CheckSchema(t.Context(), oldQueue.Pool); err == nil || errors.Is(err, store.ErrSchemaOld) {
		t.Errorf("CheckSchema of a queue that is none = %v", err)
	}
	if version, err := store.SchemaVersion(t.Context(), empty.Pool); version != 0 || err != nil {
		t.Errorf("SchemaVersion of an empty database = %d, %v; want 0", version, err)
	}
}

func TestReaderRole(t *testing.T) {
	t.Parallel()

	t.Run("SeesTablesAndViewsAndNotTheQueue", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		exec(t, db, `CREATE TABLE agentd.zz_secret (id int)`)
		if err := store.Migrate(t.Context(), db.URL, quiet()); err != nil {
			t.Fatal(err)
		}
		conn := connect(t, db.URL)
		if _, err := conn.Exec(t.Context(), `SET ROLE agentd_reader`); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			"sessions", "runs", "events", "timeline", "approvals", "hook_decisions", "hook_payloads", "hook_sets", "tombstones",
			"decisions", "blocked", "fail_open", "shadowed", "shadow_hooks", "hook_latency", "hook_set_loads", "hooks", "hook_changes", "run_summary", "stuck",
		} {
			if _, err := conn.Exec(t.Context(), `SELECT count(*) FROM agentd.`+name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, name := range []string{"zz_secret", "river_job"} {
			if _, err := conn.Exec(t.Context(), `SELECT count(*) FROM agentd.`+name); err == nil {
				t.Errorf("%s is readable", name)
			}
		}
		if _, err := conn.Exec(t.Context(), `UPDATE agentd.sessions SET last_seq = 1`); err == nil {
			t.Error("the reader may write")
		}
	})

	t.Run("IsAWarningWhereItMayNotBeMade", func(t *testing.T) {
		t.Parallel()
		// Roles belong to a cluster, and in the shared one somebody has made it.
		server, err := pgembed.Start(t.Context(), pgembed.Config{Throwaway: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Stop(context.Background()) })
		admin := connect(t, server.URL(""))
		for _, statement := range []string{`CREATE ROLE owner LOGIN PASSWORD 'x'`, `CREATE DATABASE owned OWNER owner`} {
			if _, err := admin.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			before string
			warned bool
		}{{`SELECT 1`, true}, {`CREATE ROLE agentd_reader`, false}} {
			if _, err := admin.Exec(t.Context(), step.before); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			err = store.Migrate(t.Context(), as(t, server.URL("owned"), "owner", "x"), slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			if warned := strings.Contains(log.String(), "agentd_reader"); warned != step.warned {
				t.Errorf("after %s: warned = %t\n%s", step.before, warned, log.String())
			}
		}
		reader := connect(t, server.URL("owned"))
		if _, err := reader.Exec(t.Context(), `SET ROLE agentd_reader; SELECT count(*) FROM agentd.timeline`); err != nil {
			t.Errorf("the role that was made later has no rights: %v", err)
		}
	})
}

func TestConfigureRole(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Empty)
	exec(t, db, `ALTER DATABASE `+pgx.Identifier{db.Name}.Sanitize()+` SET jit = on`)
	settings := store.RoleSettings{LockTimeout: 3 * time.Second, IdleInTransaction: 2 * time.Second}
	var g errgroup.Group
	for range 20 {
		g.Go(func() error { return store.ConfigureRole(t.Context(), db.URL, settings) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, db.URL)
	var got []string
	for _, name := range []string{"lock_timeout", "idle_in_transaction_session_timeout", "statement_timeout", "jit"} {
		var value string
		if err := conn.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			t.Fatal(err)
		}
		got = append(got, value)
	}
	if want := []string{"3s", "2s", "0", "off"}; !slices.Equal(got, want) {
		t.Errorf("settings of a new session: %q, want %q", got, want)
	}
	if err := store.ConfigureRole(t.Context(), "postgres://127.0.0.1:1/x", settings); err == nil {
		t.Error("no error without a database")
	}
}

func exec(t *testing.T, db *storetest.DB, statement string) {
	t.Helper()
	if _, err := db.Pool.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func connect(t *testing.T, databaseURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// as is the URL of the same database for another role.
func as(t *testing.T, databaseURL, role, password string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	return u.String()
}
