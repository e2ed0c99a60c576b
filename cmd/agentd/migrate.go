package main

import (
	"context"
	"log/slog"

	"github.com/seed-2ca4966b/agentd/store"
)

type migrateCmd struct {
	databaseFlags
	logFlags
}

// Run brings the database to the schema of this binary.
func (cmd migrateCmd) Run(ctx context.Context, streams *std) error {
	log, err := cmd.logger(streams.err, slog.LevelInfo)
	if err != nil {
		return err
	}
	database, err := cmd.direct()
	if err != nil {
		return err
	}
	return untilSignal(ctx, func(ctx context.Context) error {
		if err := store.Migrate(ctx, database, log); err != nil {
			return err
		}
		log.InfoContext(ctx, "the schema is that of this binary")
		return nil
	})
}
