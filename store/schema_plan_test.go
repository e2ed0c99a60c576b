package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestForeignKeysAreCheckedByTheIndexThatTheyReferTo: also where the plan was
// made while the tables were empty. Any other index is right then too, and its
// price grows with the table.
func TestForeignKeysAreCheckedByTheIndexThatTheyReferTo(t *testing.T) {
	t.Parallel()
	tx, err := storetest.New(t).Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), store.PlanByIndex); err != nil {
		t.Fatal(err)
	}
	type key struct {
		Name, Index, Table string
		Columns, Types     []string
	}
	rows, _ := tx.Query(t.Context(), `
		SELECT c.conname AS name, i.relname AS index, c.confrelid::regclass::text AS table,
			array_agg(a.attname::text ORDER BY k.n) AS columns, array_agg(a.atttypid::regtype::text ORDER BY k.n) AS types
		FROM pg_constraint AS c
		JOIN pg_class AS i ON i.oid = c.conindid
		CROSS JOIN LATERAL unnest(c.confkey) WITH ORDINALITY AS k (attnum, n)
		JOIN pg_attribute AS a ON a.attrelid = c.confrelid AND a.attnum = k.attnum
		WHERE c.contype = 'f' AND c.connamespace = 'agentd'::regnamespace
		GROUP BY c.oid, c.conname, i.relname, c.confrelid
		ORDER BY c.conname`)
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByName[key])
	if err != nil || len(keys) < 10 {
		t.Fatalf("%d foreign keys, %v", len(keys), err)
	}
	for _, k := range keys {
		var where, nulls []string
		for i, c := range k.Columns {
			where, nulls = append(where, fmt.Sprintf("%s = $%d", c, i+1)), append(nulls, "NULL")
		}
		// This is how Postgres looks whether the row is there.
		check := fmt.Sprintf("SELECT 1 FROM ONLY %s AS x WHERE %s FOR KEY SHARE OF x", k.Table, strings.Join(where, " AND "))
		if _, err := tx.Exec(t.Context(), fmt.Sprintf("PREPARE %s (%s) AS %s", k.Name, strings.Join(k.Types, ", "), check)); err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		rows, _ := tx.Query(t.Context(), fmt.Sprintf("EXPLAIN (COSTS off) EXECUTE %s (%s)", k.Name, strings.Join(nulls, ", ")))
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		if got := strings.Join(plan, "\n"); !strings.Contains(got, "Index Scan using "+k.Index+" on ") {
			t.Errorf("%s is checked by\n%s\nwant an index scan of %s", k.Name, got, k.Index)
		}
	}
}
