package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/store/pgembed"
)

// databaseFlags say which database to use.
type databaseFlags struct {
	DatabaseURL       string `env:"AGENTD_DATABASE_URL" placeholder:"URL" help:"The Postgres to use, such as postgres://user:password@host:5432/agentd."`
	DirectDatabaseURL string `env:"AGENTD_DIRECT_DATABASE_URL" placeholder:"URL" help:"The same Postgres, past the pooler that the other URL leads through: for notifications, heartbeats, migrate and the commands that look at tables."`
}

// required returns the URL.
func (f databaseFlags) required() (string, error) {
	if f.DatabaseURL == "" {
		return "", errors.New("which database? Set AGENTD_DATABASE_URL to something like postgres://user:password@host:5432/agentd (`agentd dev` needs none)")
	}
	return f.DatabaseURL, nil
}

// direct returns the URL for what needs a session of its own.
func (f databaseFlags) direct() (string, error) {
	if f.DirectDatabaseURL != "" {
		return f.DirectDatabaseURL, nil
	}
	return f.required()
}

// urlOrDev returns the URL, past a pooler if there is a way, or that of the private Postgres of an `agentd dev`
// that was started in the current directory.
func (f databaseFlags) urlOrDev() (string, error) {
	if url := cmp.Or(f.DirectDatabaseURL, f.DatabaseURL); url != "" {
		return url, nil
	}
	dataDir, err := pgembed.DataDir("")
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(urlFile(dataDir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errors.New("which database? No `agentd dev` runs in this directory: go to where it runs, or set AGENTD_DATABASE_URL")
	case err != nil:
		return "", fmt.Errorf("read the database URL of `agentd dev`: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// urlFile is where a dev leaves the URL of its private Postgres, whose port
// changes with each start. The password is in it.
func urlFile(dataDir string) string { return dataDir + ".url" }

// writeURLFile makes the file at once, or not at all, readable for this user
// alone.
func writeURLFile(dataDir, url string) error {
	f, err := os.CreateTemp(filepath.Dir(dataDir), "url-*") // mode 0600
	if err != nil {
		return fmt.Errorf("leave the database URL: %w", err)
	}
	_, err = f.WriteString(url + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), urlFile(dataDir))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("leave the database URL: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// ensureDatabase makes agentd's database in a private Postgres and returns its
// URL.
func ensureDatabase(ctx context.Context, postgres *pgembed.Server) (string, error) {
	conn, err := pgx.Connect(ctx, postgres.URL(""))
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var exists bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_database WHERE datname = $1)`, devDatabase).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{devDatabase}.Sanitize()+` TEMPLATE template0 ENCODING 'UTF8'`)
	}
	if err != nil {
		return "", fmt.Errorf("make database %s: %w", devDatabase, err)
	}
	return postgres.URL(devDatabase), nil
}
