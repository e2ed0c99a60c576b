package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// PutHookSet stores what a process is configured with, so that the digests in
// runs and decisions can be read, and [Verify] can tell which gates had to be
// asked. A set that is already there stays as it is.
func (s *Store) PutHookSet(ctx context.Context, set hooks.HookSet) error {
	// As the digest has it: without the escapes that JSON has for HTML.
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(set.Hooks); err != nil {
		return fmt.Errorf("put hook set: %w", err)
	}
	_, err := s.pool.Exec(ctx, `
		INSERT INTO agentd.hook_sets (digest, hooks) VALUES ($1, $2::text::json) ON CONFLICT (digest) DO NOTHING`,
		set.Digest, string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))))
	if err != nil {
		return failed("put hook set", err)
	}
	return nil
}
