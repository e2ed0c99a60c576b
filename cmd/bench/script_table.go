package main

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"
)

// table is the rows of one run in a table.
type table struct {
	name  string
	names []string
	types []string
	rows  []record
}

// record is a row, by the names of its columns. What is json or an array is
// text.
type record map[string]any

func isText(typ string) bool { return strings.HasPrefix(typ, "json") || strings.HasSuffix(typ, "[]") }

const selectColumns = `
	SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
	WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
	ORDER BY attnum`

// readTable reads the rows of a run, whatever columns the table has today.
func readTable(ctx context.Context, conn *pgx.Conn, name, condition string, args ...any) (*table, error) {
	t := &table{name: "agentd." + name}
	rows, _ := conn.Query(ctx, selectColumns, t.name) //nolint:rowserrcheck // ForEachRow looks at it
	var column, typ string
	var list []string
	_, err := pgx.ForEachRow(rows, []any{&column, &typ}, func() error {
		t.names, t.types = append(t.names, column), append(t.types, typ)
		if isText(typ) {
			column += "::text AS " + column
		}
		list = append(list, column)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("columns of %s: %w", t.name, err)
	}
	found, _ := conn.Query(ctx, `SELECT `+strings.Join(list, ", ")+` FROM `+t.name+` WHERE `+condition, args...)
	all, err := pgx.CollectRows(found, pgx.RowToMap)
	if err != nil {
		return nil, fmt.Errorf("rows of %s: %w", t.name, err)
	}
	for _, r := range all {
		t.rows = append(t.rows, record(r))
	}
	return t, nil
}

// with is a copy of a row with other values.
func (r record) with(values record) record {
	out := maps.Clone(r)
	maps.Copy(out, values)
	return out
}

func (r record) number(name string) int64 {
	switch v := r[name].(type) {
	case int64:
		return v
	case int32:
		return int64(v)
	}
	return 0
}

func (r record) text(name string) string {
	s, _ := r[name].(string)
	return s
}
