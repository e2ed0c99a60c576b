package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const maxMemories = 50 // per search

// WriteMemory stores a memory of the tenant, in place of the one that the key
// had. A key that is empty, and a key or a content that is longer than
// [loop.MaxMemoryKey] or [loop.MaxMemoryContent], is [loop.ErrInvalid].
func (s *Store) WriteMemory(ctx context.Context, tenantID, key, content string) error {
	key, _ = event.CleanText(key)
	content, _ = event.CleanText(content)
	switch {
	case key == "" || len(key) > loop.MaxMemoryKey:
		return &loop.InvalidError{Field: "key", Problem: fmt.Sprintf("must have 1 to %d bytes", loop.MaxMemoryKey)}
	case len(content) > loop.MaxMemoryContent:
		return &loop.InvalidError{Field: "content", Problem: fmt.Sprintf("is longer than %d bytes: shorten it, or split it", loop.MaxMemoryContent)}
	}
	_, err := s.pool.Exec(ctx, `
		INSERT INTO agentd.memories (tenant_id, key, content, updated_at)
		VALUES ($1, $2, $3, agentd.clock())
		ON CONFLICT (tenant_id, key) DO UPDATE SET content = excluded.content, updated_at = excluded.updated_at`,
		tenantID, key, content)
	if err != nil {
		return failed("write memory", err)
	}
	return nil
}

// ReadMemory returns what the tenant stored under key, or false.
func (s *Store) ReadMemory(ctx context.Context, tenantID, key string) (content string, ok bool, err error) {
	key, _ = event.CleanText(key)
	err = s.pool.QueryRow(ctx, `SELECT content FROM agentd.memories WHERE tenant_id = $1 AND key = $2`, tenantID, key).Scan(&content)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, failed("read memory", err)
	}
	return content, true, nil
}

// SearchMemories returns up to limit memories of the tenant whose key or
// content has the words of query, the best match first. The query is what one
// would type into a search box: words, "phrases", or, -not. A query without a
// word gives the memories that were written last. A limit of 0, or above 50,
// means 50.
func (s *Store) SearchMemories(ctx context.Context, tenantID, query string, limit int) ([]loop.Memory, error) {
	if limit <= 0 || limit > maxMemories {
		limit = maxMemories
	}
	query, _ = event.CleanText(query)
	search := `
		SELECT key, content FROM agentd.memories
		WHERE tenant_id = $1 AND tsv @@ websearch_to_tsquery('simple', $2)
		ORDER BY ts_rank(tsv, websearch_to_tsquery('simple', $2)) DESC, updated_at DESC, key
		LIMIT $3`
	var words int
	if err := s.pool.QueryRow(ctx, `SELECT numnode(websearch_to_tsquery('simple', $1))`, query).Scan(&words); err != nil {
		return nil, failed("search memories", err)
	}
	if words == 0 {
		search = `
			SELECT key, content FROM agentd.memories
			WHERE tenant_id = $1 AND $2::text IS NOT NULL
			ORDER BY updated_at DESC, key
			LIMIT $3`
	}
	rows, err := s.pool.Query(ctx, search, tenantID, query, limit)
	if err != nil {
		return nil, failed("search memories", err)
	}
	memories, err := pgx.CollectRows(rows, pgx.RowToStructByName[loop.Memory])
	if err != nil {
		return nil, failed("search memories", err)
	}
	return memories, nil
}

// DeleteMemory forgets what the tenant stored under key. Ok is false if that
// was nothing.
func (s *Store) DeleteMemory(ctx context.Context, tenantID, key string) (ok bool, err error) {
	key, _ = event.CleanText(key)
	done, err := s.pool.Exec(ctx, `DELETE FROM agentd.memories WHERE tenant_id = $1 AND key = $2`, tenantID, key)
	if err != nil {
		return false, failed("delete memory", err)
	}
	return done.RowsAffected() > 0, nil
}

// ClearMemories forgets all memories of the tenant, and returns how many they
// were.
func (s *Store) ClearMemories(ctx context.Context, tenantID string) (n int64, err error) {
	done, err := s.pool.Exec(ctx, `DELETE FROM agentd.memories WHERE tenant_id = $1`, tenantID)
	if err != nil {
		return 0, failed("clear memories", err)
	}
	return done.RowsAffected(), nil
}
