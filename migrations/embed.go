// Package migrations holds the SQL of agentd's schema, for goose. River's own
// tables come from River's migrator; both live in the schema "agentd".
//
// A migration that was released is never edited, and the binary of the release
// before must run on the schema that it leaves behind: columns are added before
// they are written and dropped a release after they were last read. There are
// no down migrations, since undoing one would lose facts; an old binary runs on
// the new schema instead.
package migrations

import "embed"

// FS holds the migrations, NNNNN_name.sql, at its root.
//
//go:embed *.sql
var FS embed.FS
