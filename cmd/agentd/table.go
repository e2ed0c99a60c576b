package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// query runs statements and prints what they give, as Postgres writes it.
func query(ctx context.Context, conn *pgconn.PgConn, statements string, out io.Writer) error {
	results := conn.Exec(ctx, statements)
	for results.NextResult() {
		if err := printResult(results.ResultReader(), out); err != nil {
			return errorOf(results.Close(), err)
		}
	}
	return results.Close()
}

// errorOf prefers the server's error to what followed from it.
func errorOf(server, local error) error {
	if server != nil {
		return server
	}
	return local
}

func printResult(r *pgconn.ResultReader, out io.Writer) error {
	var header []string
	for _, f := range r.FieldDescriptions() {
		header = append(header, f.Name)
	}
	var rows [][]string
	for r.NextRow() {
		var row []string
		for _, value := range r.Values() {
			row = append(row, cell(value))
		}
		rows = append(rows, row)
	}
	tag, err := r.Close()
	switch {
	case err != nil:
		return err
	case header == nil && tag.String() == "":
		return nil // an empty statement
	case header == nil:
		_, err = fmt.Fprintln(out, tag)
		return err
	}
	return printTable(out, header, rows)
}

// cell shows a value on one line. NULL is empty, as in psql.
func cell(value []byte) string {
	return strings.NewReplacer("\n", "⏎", "\t", " ").Replace(printable(string(value)))
}

func printTable(out io.Writer, header []string, rows [][]string) error {
	widths := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, text := range row {
			widths[i] = max(widths[i], textColumns(text))
		}
	}
	var b strings.Builder
	writeRow := func(row []string) {
		for i, text := range row {
			if i > 0 {
				b.WriteString(" |")
			}
			b.WriteString(" " + text)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-textColumns(text)))
			}
		}
		b.WriteString("\n")
	}
	writeRow(header)
	for i, n := range widths {
		if i > 0 {
			b.WriteString("+")
		}
		b.WriteString(strings.Repeat("-", n+2))
	}
	b.WriteString("\n")
	for _, row := range rows {
		writeRow(row)
	}
	fmt.Fprintf(&b, "(%s)\n\n", count(int64(len(rows)), "row"))
	_, err := io.WriteString(out, b.String())
	return err
}
